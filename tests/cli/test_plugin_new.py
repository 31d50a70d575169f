"""`plugin new problem`: what it writes installs, lints clean, and is refused where it cannot be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MakeCli = Callable[[], Any]


@pytest.fixture(scope="module")
def project(make_cli: MakeCli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the project that the command wrote for `centred`."""
    folder = tmp_path_factory.mktemp("new")
    ran = make_cli().run("plugin", "new", "problem", "centred", "--output", folder)
    assert ran.code == 0, ran.err
    assert ran.out.strip() == str(folder / "atrex-problems-centred")
    return folder / "atrex-problems-centred"


@pytest.fixture(scope="module")
def installed(project: Path, make_cli: MakeCli, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a command line that finds the project, installed as its README says."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(target)]
    subprocess.run([*pip, *offline, str(project)], check=True, timeout=120)
    cli = make_cli()
    return cli.with_variables(PYTHONPATH=f"{target}:{cli.environment['PYTHONPATH']}")


def test_a_new_problem_is_listed(installed: Any) -> None:
    rows = installed.run("list", "problems", "--format", "json").document["problems"]
    (row,) = (row for row in rows if row["name"] == "centred")

    assert row["pack"] == "centred"
    assert row["distribution"] == "atrex-problems-centred 0.1.0"
    assert (row["published"], row["smoke"]) == (2, 3)


def test_a_new_problem_lints_clean_but_for_what_its_author_alone_knows(installed: Any) -> None:
    ran = installed.run("problems", "lint", "centred", "--format", "json")

    assert ran.code == 1, ran.err
    findings = ran.document["findings"]
    assert [f["name"] for f in findings if f["change"]] == ["provenance"]
    mutants = {f["name"] for f in findings if f["kind"] == "mutant"}
    variants = {f["name"] for f in findings if f["kind"] == "variant"}
    assert {"zeros", "not_centred", "narrow_mean"} <= mutants
    assert {"reference", "partial_sums", "weight_first"} <= variants


def test_its_files_are_clean(project: Path) -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache"]
    rules = ["--select", "E,F,W,I,UP,B", "--line-length", "100"]
    subprocess.run([*ruff, *rules, str(project)], check=True, timeout=60)


def test_one_more_operator_goes_into_a_pack(
    make_cli: MakeCli, project: Path, tmp_path: Path
) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").touch()

    ran = make_cli().run("plugin", "new", "problem", "other_rows", "--into", package)

    assert ran.code == 0
    written = {
        p.relative_to(package / "other_rows")
        for p in package.rglob("*")
        if p.is_file() and p.parent != package
    }
    model = project / "atrex_problems_centred" / "centred"
    assert written == {p.relative_to(model) for p in model.rglob("*") if p.is_file()}
    assert "other_rows" in (package / "other_rows" / "private.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["My-Norm"], "cannot be the name of a folder and a module"),
        (["class"], "cannot be the name"),
        (["../up"], "cannot be the name"),
        (["norm", "--pack", "a b"], "'a b' cannot be the name"),
        (["norm", "--output", "nowhere"], "'nowhere' is no folder"),
        (["norm", "--into", "nowhere"], "'nowhere' is not the folder of a pack"),
        (["n" * 101], "a name of 101 letters is too long: 'nnnnnnnnnnnnnnnnnnnn...'"),
        (["n" * 251], "a name of 251 letters is too long"),
        (["norm", "--pack", "p" * 251], "a name of 251 letters is too long"),
        (["n" * 300, "--into", "."], "a name of 300 letters is too long"),
        (["norm", "--output", "o" * 300], "is no folder"),
        (["norm", "--into", "o" * 300], "is not the folder of a pack"),
        (["norm", "--into", ".", "--pack", "p"], "--into and --pack exclude each other"),
        (["norm", "--into", ".", "--output", "."], "--into and --output exclude each other"),
        (["torch"], "'torch' is the name of an installed module"),
        (["json", "--into", "."], "'json' is the name of an installed module"),
        (["sys"], "'sys' is the name of an installed module"),
        (["norm", "--pack", "production"], "'atrex_problems_production' is installed already"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_cannot_be_written_is_one_error(
    make_cli: MakeCli, arguments: list[str], complaint: str
) -> None:
    cli = make_cli()

    ran = cli.run("plugin", "new", "problem", *arguments)

    assert ran.code == 2
    assert complaint in ran.err
    assert ran.err.count("error:") == ran.err.count("hint:") == 1
    assert [p.name for p in cli.folder.iterdir() if "atrex" in p.name] == []


def test_the_longest_name_can_be_written(make_cli: MakeCli, tmp_path: Path) -> None:
    name = "n" * 100

    ran = make_cli().run("plugin", "new", "problem", name, "--output", tmp_path)

    assert ran.code == 0, ran.err
    assert (tmp_path / f"atrex-problems-{name}" / f"atrex_problems_{name}" / name).is_dir()


def test_nothing_is_written_over(make_cli: MakeCli, project: Path) -> None:
    before = {p: p.read_bytes() for p in project.rglob("*") if p.is_file()}

    ran = make_cli().run("plugin", "new", "problem", "centred", "--output", project.parent)

    assert ran.code == 2
    assert "is there already" in ran.err
    assert {p: p.read_bytes() for p in project.rglob("*") if p.is_file()} == before
    assert [p for p in project.parent.iterdir() if p != project] == []


def test_a_folder_that_cannot_be_written_leaves_nothing(make_cli: MakeCli) -> None:
    ran = make_cli().run("plugin", "new", "problem", "norm", "--output", "/proc")

    assert ran.code == 2
    assert "cannot write" in ran.err
