"""An operator that cannot be loaded is set aside alone; its lint says what is wrong, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_KERNEL = """
    import torch

    class Model(torch.nn.Module):
        def forward(self, x, weight):
            return x
"""


@pytest.fixture(scope="module")
def cli(make_cli: Callable[[], Any]) -> Any:
    """Return a command line with a pack of two operators, one of them with a slip."""
    cli = make_cli()
    cli.run("plugin", "new", "problem", "sound", "--pack", "mine")
    root = Path(cli.folder) / "atrex-problems-mine"
    cli.run("plugin", "new", "problem", "slip", "--into", root / "atrex_problems_mine")
    shapes = root / "atrex_problems_mine" / "slip" / "public" / "shapes.json"
    shapes.write_text(shapes.read_text().replace('"both"', '"decod"'))
    info = root / "mine-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[atrex_eval]\nmine = atrex_problems_mine\n")
    (Path(cli.folder) / "sound.py").write_text(_KERNEL.replace("\n    ", "\n"))
    return cli.with_variables(PYTHONPATH=f"{cli.environment['PYTHONPATH']}:{root}")


_CAUSE = "slip/public/shapes.json: 'phase' is 'decod', not one of prefill, decode, both"
_WARNING = (
    "WARNING: problem 'slip' of plugin 'mine' (mine 1) is broken, and set aside: "
    "`atrex-eval problems lint slip` says why"
)


def test_its_lint_is_a_finding_that_names_the_file(cli: Any) -> None:
    ran = cli.run("problems", "lint", "slip")

    assert (ran.code, ran.err.splitlines()) == (3, [_WARNING])
    assert f"broken: slip strict check 'loads': {_CAUSE}" in ran.out.splitlines()
    assert ran.out.count(_CAUSE) == 1


def test_others_of_its_pack_stay(cli: Any) -> None:
    ran = cli.run("problems", "lint", "s*", "--spread", "1", "--format", "json")
    rows = cli.run("list", "problems", "slip", "sound", "--format", "json").document["problems"]

    assert ran.code == 3
    mutants = ran.document["summary"]["by_problem"]["sound"]["strict"]["mutants"]
    assert mutants["right"] == mutants["total"] > 0
    assert [(row["name"], row["fault"]) for row in rows] == [("slip", _CAUSE), ("sound", None)]
    assert cli.run("problems", "show", "sound").code == 0
    assert cli.run("release", "build", "--output", "out", "--problem", "sound").code == 0


def test_it_is_an_error_to_whoever_needs_it(cli: Any) -> None:
    for arguments in (("problems", "show", "slip"), ("weights", "show", "slip")):
        ran = cli.run(*arguments)
        assert (ran.code, ran.out) == (3, "")
        error = f"error: problem 'slip' of plugin 'mine' (mine 1) is broken: {_CAUSE}"
        assert ran.err.splitlines()[:2] == [_WARNING, error]


@pytest.mark.parametrize(
    ("options", "code"),
    [((), 3), (("--problem", "sound"), 0), (("--scale", "smoke"), 0)],
    ids=["whole pack", "one problem", "smoke"],
)
def test_a_pack_is_not_scored_without_it(cli: Any, options: tuple[str, ...], code: int) -> None:
    scale = () if "--scale" in options else ("--scale", "full")

    ran = cli.run("sound.py", "--backend", "hammer", "--until", "compile", *scale, *options)

    assert (ran.code == 3) is (code == 3), ran.err
    assert (f"is broken: {_CAUSE}" in ran.err) is (code == 3)
