"""A pack's digest: the same for the same files in the same places, whatever reads them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from atrex_core.packs import BrokenProblem, operators

_OPERATOR = """
from atrex_core import Cost, DType, TensorSpec
from atrex_core.packs import FolderProblem


class Operator(FolderProblem):
    summary = "x"

    def inputs(self, workload):
        return [TensorSpec(name="x", dtype=DType.FP32, shape=(workload.axes["n"],))]

    def outputs(self, workload):
        return self.inputs(workload)

    def expected(self, workload, inputs):
        return {"x": inputs["x"].double()}

    def cost(self, workload, inputs=None):
        return Cost(flops={}, read_bytes=0, write_bytes=0)

    def own_mutants(self):
        return {}
"""
_SHAPES = """
    {"phase": "decode", "regimes": ["nominal"],
     "published": [{"id": "one", "axes": {"n": 3}, "init": {}}]}
"""


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of a pack with files whose order, or part in the digest, is in question."""
    root = tmp_path / "a_pack_to_digest"
    public = root / "copy" / "public"
    public.mkdir(parents=True)
    (root / "__init__.py").touch()
    (root / "copy" / "private.py").write_text(_OPERATOR)
    (root / "copy" / "private.json").write_text('{"importance": 0.5}')
    (public / "shapes.json").write_text(dedent(_SHAPES))
    for name in (
        "copies.py",
        "copy-2.py",
        "copy/.py",
        "copy/notes.md",
        "copy/a.json.bak",
        ".hidden.py",
    ):
        (root / name).write_text(f"# {name}")
    (root / "folder.py").mkdir()
    (root / "folder.py" / "inner.py").write_text("# inner")
    (root / "linked").symlink_to(root / "folder.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield root
    for name in [name for name in sys.modules if name.partition(".")[0] == root.name]:
        del sys.modules[name]


def _digest(root: Path) -> str:
    (problem,) = operators(root.name, name="copies", version="1")
    assert not isinstance(problem, BrokenProblem), problem.cause
    return problem.pack.digest


def test_every_file_that_decides_counts_in_the_order_of_its_place(pack: Path) -> None:
    expected = hashlib.sha256()
    for place in (
        *(".hidden.py", "__init__.py", "copies.py"),
        *("copy/private.json", "copy/private.py", "copy/public/shapes.json"),
        *("copy-2.py", "folder.py", "folder.py/inner.py"),
    ):
        content = (pack / place).read_bytes() if (pack / place).is_file() else b""
        expected.update(f"{place}\0{len(content)}\0".encode() + content)

    assert _digest(pack) == expected.hexdigest()


@pytest.mark.parametrize("name", ["copy/public/shapes.json", "copy/variants.py", "shared.py"])
def test_a_changed_or_further_file_changes_it(pack: Path, name: str) -> None:
    before = _digest(pack)
    with (pack / name).open("a") as file:
        file.write("\n")

    assert _digest(pack) != before
