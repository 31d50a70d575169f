"""The architecture, enforced: plugins get no privileges, imports point one way, files stay small.

Four guards keep the folder layout working: shelves are not packages, nothing imports through
them, the wheel ships `atrex_*` packages alone, and plugins see only the public API.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
CORE = ROOT / "atrex_core"
SHELVES = ("backends", "dsl_detectors", "hardware_profiles", "problems")
PUBLIC = {"atrex_core", "atrex_core.packs", "atrex_core.testing"}
MAX_LINES = 400

LAYERS: tuple[tuple[str, ...], ...] = (
    ("_project", "beside", "errors", "memory", "precision", "printable", "suggest", "traces"),
    ("scaffold",),
    ("model",),
    ("interfaces", "tensors", "codec", "profile_files"),
    ("blank", "hookspecs", "comparison", "roofline", "journal", "config", "packs", "probe"),
    ("repro", "isolated"),
    ("plugins", "scoring"),
    ("candidates", "device_choice", "profile_choice"),
    ("processes", "planning", "report", "live"),
    ("release", "calibration"),
    ("referee",),
    ("referee_process", "lint_process"),
    ("scheduling",),
    ("session",),
    ("linting",),
    ("cli", "testing"),
    ("__main__",),
)
"""Parts of the core, lowest first. Each imports lower ones only, never beside or above."""
RANK = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}

WORDS = (
    # vendors and their software
    *("nvidia", "amd", "intel", "apple", "qualcomm", "huawei", "ascend", "cambricon", "nvml"),
    *("cuda", "cudnn", "cublas", "cutlass", "cupti", "hip", "rocm", "hsa", "oneapi", "musa"),
    # devices and architectures
    *("a100", "h20", "h100", "h200", "b200", "mi300", "mi300x", "mi308x", "hopper", "blackwell"),
    *("ampere", "cdna", "rdna", "tpu", "ptx", "cubin", "hsaco"),
    # DSLs
    *("triton", "gluon", "tilelang", "flydsl", "cupy", "numba", "llvmlite", "cute", "pallas"),
    # operators
    *("rmsnorm", "layernorm", "softmax", "gemm", "silu", "gelu", "rope", "moe", "topk"),
)
PATTERNS = (r"sm_\d+\w*", r"gfx\d+\w*", r"mi\d{3}\w*")


def python_files(folder: Path) -> list[Path]:
    """Return the Python files of a folder, sorted."""
    return sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports_of(tree: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every module that is imported anywhere in a file, with the names taken from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or ""), tuple(a.name for a in node.names)


def core_parts_imported(path: Path) -> Iterator[str]:
    """Yield the parts of the core that a core file imports; the empty name is the whole of it."""
    for module, names in imports_of(ast.parse(path.read_text())):
        top, _, rest = module.partition(".")
        assert top, "core uses absolute imports"
        if top != "atrex_core":
            continue
        if rest:
            yield rest.split(".")[0]
        else:
            yield from (name if name in RANK else "" for name in names or ("",))


def part_of(path: Path) -> str:
    return path.relative_to(CORE).parts[0].removesuffix(".py")


CORE_FILES = python_files(CORE)
PLUGIN_FILES = [path for shelf in SHELVES for path in python_files(ROOT / shelf)]
OWN_FILES = [path for path in PLUGIN_FILES if not {"kernels", "public"} & set(path.parts)]
"""Without bundled kernels and the public halves of problems: they run outside the evaluator."""


# -- the four guards ------------------------------------------------------------------------------


@pytest.mark.parametrize("shelf", SHELVES)
def test_a_shelf_holds_plugins_and_a_readme(shelf: str) -> None:
    names = {path.name for path in (ROOT / shelf).iterdir()} - {"__pycache__"}

    assert "README.md" in names
    assert [n for n in sorted(names - {"README.md"}) if not n.startswith("atrex_")] == []
    assert all((ROOT / shelf / n / "__init__.py").is_file() for n in names - {"README.md"})


def test_tests_are_not_packages() -> None:
    found = {path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("__init__.py")}

    # tests/plugins holds a vendor's project, to be installed: packages belong in it.
    assert {path for path in found if path.parts[0] != "plugins"} == set()


@pytest.mark.parametrize("shelf", SHELVES)
@pytest.mark.parametrize("statement", ["import {}.atrex_x", "from {} import atrex_x"])
def test_importing_through_a_shelf_is_a_lint_error(shelf: str, statement: str) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--output-format", "concise"]
    command += ["--no-cache", "--stdin-filename", "atrex_core/example.py", "-"]

    done = subprocess.run(
        command, input=statement.format(shelf) + "\n", capture_output=True, text=True, cwd=ROOT
    )

    assert f"TID251 `{shelf}" in done.stdout
    assert "a shelf, not a package" in done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Build the wheel, and return the names of the files in it."""
    folder = tmp_path_factory.mktemp("wheel")
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def test_the_wheel_ships_atrex_packages_and_nothing_else(wheel: set[str]) -> None:
    tops = {name.split("/")[0] for name in wheel}

    assert [top for top in sorted(tops) if not top.startswith("atrex_")] == []
    assert [name for name in wheel if "/" not in name] == []
    assert {"atrex_core/py.typed", "atrex_core/hookspecs.py"} <= wheel


def test_the_wheel_ships_every_file_of_the_plugins(wheel: set[str]) -> None:
    files = {
        str(path.relative_to(ROOT / shelf))
        for shelf in SHELVES
        for path in (ROOT / shelf).glob("atrex_*/**/*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert {"atrex_accelerator_cpu/__init__.py", "atrex_accelerator_cpu/py.typed"} <= files
    assert files - wheel == set()


@pytest.mark.parametrize("path", OWN_FILES, ids=relative)
def test_a_plugin_imports_only_the_public_api(path: Path) -> None:
    modules = {module for module, _ in imports_of(ast.parse(path.read_text()))}

    assert {m for m in modules if m.split(".")[0] == "atrex_core"} <= PUBLIC


# -- directions -----------------------------------------------------------------------------------


def test_every_part_of_the_core_has_a_layer() -> None:
    parts = {part_of(path) for path in CORE_FILES} - {"__init__"}

    assert parts - set(RANK) == set(), "give it a place in LAYERS"


@pytest.mark.parametrize("path", CORE_FILES, ids=relative)
def test_core_imports_point_one_way(path: Path) -> None:
    part = part_of(path)
    if part == "__init__":
        return
    imported = {name for name in core_parts_imported(path) if name != part}

    assert "" not in imported or part in ("cli", "testing"), "import the part, not the package"
    assert [n for n in sorted(imported) if n and RANK[n] >= RANK[part]] == []


def test_no_core_module_imports_a_plugin() -> None:
    plugins = {p.name for shelf in SHELVES for p in (ROOT / shelf).glob("atrex_*")}

    for path in CORE_FILES:
        modules = {m.split(".")[0] for m, _ in imports_of(ast.parse(path.read_text()))}
        assert modules & plugins == set(), relative(path)


def test_only_the_codec_knows_cattrs() -> None:
    users = [
        relative(path)
        for path in [*CORE_FILES, *OWN_FILES]
        if any(m.split(".")[0] == "cattrs" for m, _ in imports_of(ast.parse(path.read_text())))
    ]

    assert users == ["atrex_core/codec.py"]


# -- sizes and words ------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*CORE_FILES, *PLUGIN_FILES], ids=relative)
def test_files_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


def operators() -> set[str]:
    """Return the names of the operators on the problems shelf."""
    return {path.parent.name for path in (ROOT / "problems").glob("*/*/public")}


@pytest.mark.parametrize("path", CORE_FILES, ids=relative)
def test_core_names_no_vendor_device_dsl_or_operator(path: Path) -> None:
    words = "|".join([*map(re.escape, {*WORDS, *operators()}), *PATTERNS])
    pattern = re.compile(rf"(?<![a-z0-9])(?:{words})(?![a-z0-9])", re.IGNORECASE)

    found = [
        f"{number}: {match.group()}"
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        for match in pattern.finditer(line)
    ]

    assert found == []


def test_the_word_list_finds_what_it_should() -> None:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert "triton" in WORDS
    assert set(project["entry-points"]["atrex_eval"]) >= {"cpu"}
    assert operators() >= {"rms_norm", "paged_attention_decode"}
