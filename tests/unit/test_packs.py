"""Operators of a pack: each is loaded by itself, and what is wrong with one is said of it alone."""

from __future__ import annotations

import importlib
import itertools
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from atrex_core import Problem
from atrex_core.packs import BrokenProblem, operators
from atrex_core.scaffold import new_problem

_NUMBERS = itertools.count()


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of a pack with one operator, `sound`, that can be imported."""
    name = f"pack_{next(_NUMBERS)}"
    made = new_problem("sound", parent=tmp_path, pack=name)
    monkeypatch.syspath_prepend(str(made.root))
    importlib.invalidate_caches()
    yield made.root / f"atrex_problems_{name}"
    for module in [m for m in sys.modules if m.startswith(f"atrex_problems_{name}")]:
        del sys.modules[module]


def _found(pack: Path) -> dict[str, Problem | BrokenProblem]:
    return {p.name: p for p in operators(pack.name, name="p", version="1")}


def _copied(pack: Path, name: str = "odd") -> Path:
    shutil.copytree(pack / "sound", pack / name)
    return pack / name


def _edit(file: str, old: str, new: str) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        path = folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return edit


def _without(file: str) -> Callable[[Path], object]:
    return lambda folder: (folder / file).unlink()


_SHAPES, _FACTS = "public/shapes.json", "private.json"
_SLIPS: dict[str, tuple[Any, str]] = {
    "phase": (
        _edit(_SHAPES, '"both"', '"decod"'),
        "odd/public/shapes.json: 'phase' is 'decod', not one of prefill, decode, both",
    ),
    "phase of a workload": (
        _edit(_SHAPES, '"id": "0",', '"id": "0", "phase": "x",'),
        "odd/public/shapes.json: 'phase' of workload 1 of 'published' is 'x', not one of",
    ),
    "key": (
        _edit(_SHAPES, '"smoke"', '"smok"'),
        "odd/public/shapes.json: unknown key 'smok': did you mean 'smoke'?",
    ),
    "key of a workload": (
        _edit(_SHAPES, '"axes": {"rows": 4096', '"axis": {"rows": 4096'),
        "unknown key 'axis' of workload 1 of 'published': did you mean 'axes'?",
    ),
    "hint": (
        _edit(_SHAPES, '"init": {}', '"init": {}, "times": 1'),
        "unknown key 'times' of workload 1 of 'published': it may hold id, axes, init, phase",
    ),
    "no axes": (
        _edit(_SHAPES, ', "axes": {"rows": 4096, "width": 4096}', ""),
        "odd/public/shapes.json: 'axes' of workload 1 of 'published' is missing",
    ),
    "no JSON": (_edit(_SHAPES, "[", "[["), "odd/public/shapes.json': Expecting "),
    "importance": (
        _edit(_FACTS, '"importance": 1.0,', ""),
        "odd/private.json: 'importance' is missing",
    ),
    "importance as text": (
        _edit(_FACTS, "1.0", '"1.0"'),
        "odd/private.json: 'importance' is '1.0', not a number from 0",
    ),
    "release-id": (
        _edit(_FACTS, "1.0,", '1.0, "release-id": "op_1",'),
        "odd/private.json: unknown key 'release-id': did you mean 'release_id'?",
    ),
    "release id": (
        _edit(_FACTS, "1.0,", '1.0, "release_id": "op-1",'),
        "odd/private.json: 'release_id' is 'op-1', not a Python identifier",
    ),
    "provenence": (
        _edit(_FACTS, "provenance", "provenence"),
        "odd/private.json: unknown key 'provenence': did you mean 'provenance'?",
    ),
    "mutants": (
        _edit("private.py", "own_mutants", "own_mutant"),
        "odd/private.py: `Operator` has no own_mutants",
    ),
    "class": (
        _edit("private.py", "class Operator", "class Operater"),
        "odd/private.py has no class `Operator`",
    ),
    "syntax": (_edit("private.py", "def inputs(", "def inputs(("), "(at odd/private.py:26)"),
    "import": (
        _edit("private.py", "from typing import Any", "import a_missing_module"),
        "ModuleNotFoundError: No module named 'a_missing_module' (at odd/private.py:6)",
    ),
    "exit": (
        _edit("private.py", "from typing import Any", "raise SystemExit(0)"),
        "SystemExit: 0 (at odd/private.py:6)",
    ),
    "no private.py": (_without("private.py"), "there is no odd/private.py"),
    "no private.json": (_without(_FACTS), "there is no odd/private.json"),
    "no shapes.json": (_without(_SHAPES), "there is no odd/public/shapes.json"),
}


@pytest.mark.parametrize(("slip", "cause"), _SLIPS.values(), ids=_SLIPS)
def test_a_slip_in_one_operator_costs_it_alone(
    pack: Path, slip: Callable[[Path], object], cause: str
) -> None:
    slip(_copied(pack))

    found = _found(pack)

    assert isinstance(found["sound"], Problem)
    broken = [p for p in found.values() if isinstance(p, BrokenProblem)]
    assert len(found) == 2
    assert len(broken) == 1
    assert cause in broken[0].cause
    assert "\n" not in broken[0].cause


@pytest.mark.parametrize("name", ["my op", "2d", "class", "rms-norm", "all"])
def test_a_folder_that_cannot_be_an_operator_is_named(pack: Path, name: str) -> None:
    _copied(pack, name)

    broken = _found(pack)[name]

    assert isinstance(broken, BrokenProblem)
    assert broken.cause.startswith(f"folder {name!r} cannot be the name of an operator")


def test_folders_without_an_operator_are_none(pack: Path) -> None:
    (pack / "notes").mkdir()
    _copied(pack, "_shelved")

    assert set(_found(pack)) == {"sound"}


def test_a_copy_with_the_release_id_of_its_model_is_broken_alone(pack: Path) -> None:
    _edit(_FACTS, "1.0,", '1.0, "release_id": "op_1",')(pack / "sound")
    _copied(pack, "twin")

    found = _found(pack)

    assert isinstance(found["sound"], Problem)
    twin = found["twin"]
    assert isinstance(twin, BrokenProblem)
    assert twin.cause == "twin/private.json: 'sound' answers to 'op_1' already"


def test_a_name_that_a_workload_lacks_is_an_error_that_says_where(pack: Path) -> None:
    _edit("private.py", 'axes["width"]', 'axes["widht"]')(pack / "sound")
    problem = _found(pack)["sound"]
    assert isinstance(problem, Problem)

    with pytest.raises(KeyError, match="among the axes of workload '0' in sound/public/shapes"):
        problem.inputs(problem.workloads[0])


def test_facts_of_the_files_are_facts_of_the_problem(pack: Path) -> None:
    _edit(_FACTS, "write here where shapes and weight were observed", "seen in a dream")(
        pack / "sound"
    )
    problem = _found(pack)["sound"]

    assert isinstance(problem, Problem)
    assert (problem.provenance, problem.importance) == ("seen in a dream", 1.0)
    assert [w.id for w in problem.workloads][:2] == ["0", "1"]
