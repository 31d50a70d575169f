"""`atrex-eval release`: a folder is built whole or not at all, and what it claims is proved."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba", reason="candidates are judged on its backend")

_PROBLEMS = ("--problem", "rms_norm,op_f362")
_KERNEL = Path(__file__).parents[1] / "hostile" / "rms_norm" / "a_first_honest.py"

_NO_BACKEND = tuple(
    word
    for name in ("acme", "cpu", "cuda", "numba", "triton")
    for word in ("--disable-plugin", name)
)
"""A spy that cannot run: quick, and the other claims are made as ever."""
_STOPS = {
    "terminated": "os.kill(os.getpid(), 15)",
    "interrupted": "raise KeyboardInterrupt",
    "killed": "os.kill(os.getpid(), 9)",
    "disk full": "raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))",
}
_HOOK = """
import errno, os, sys

def stop(event, arguments):
    if event == "open" and "partial-" in str(arguments[0]):
        opened.append(arguments[0])
        if len(opened) == 3:
            STOP

opened = []
sys.addaudithook(stop)
"""


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def _check_error(ran: Any, code: int, error: str, hint: str) -> None:
    lines = ran.err.splitlines()
    assert len(lines) == 2, ran.err
    assert re.fullmatch(f"error: {error}", lines[0])
    assert re.fullmatch(f"hint: {hint}", lines[1])
    assert (ran.code, ran.out) == (code, "")


def test_build_writes_a_folder_and_prints_its_digest(cli: Any) -> None:
    ran = cli.run("release", "build", "--output", "out", *_PROBLEMS)

    out = Path(cli.folder) / "out"
    assert (ran.code, ran.err) == (0, "")
    manifest = json.loads((out / "manifest.json").read_bytes())
    assert ran.out == f"{manifest['digest']}\n"
    assert manifest["problems"] == ["op_e9b9", "op_f362"]
    names = ("INTERFACE.md", "inputs.py", "reference.py", "shapes.json")
    assert set(_files(out)) == {
        *("README.md", "manifest.json"),
        *(f"{problem}/{name}" for problem in manifest["problems"] for name in names),
    }


def test_build_gives_the_same_twice_wherever_it_is_made(cli: Any) -> None:
    first = cli.run("release", "build", "--output", "one", *_PROBLEMS)
    again = cli.run("release", "build", "--output", "one", *_PROBLEMS)
    moved = cli.with_variables(TZ="Asia/Tokyo", PYTHONHASHSEED="7", LC_ALL="C")
    other = moved.run("release", "build", "--output", cli.folder / "two", *_PROBLEMS)

    assert first.out == again.out == other.out
    assert _files(Path(cli.folder) / "one") == _files(Path(cli.folder) / "two")


@pytest.mark.parametrize("stop", _STOPS.values(), ids=_STOPS)
@pytest.mark.parametrize("earlier", [True, False], ids=["earlier release", "nothing there"])
def test_build_that_ends_early_leaves_what_was_there(cli: Any, stop: str, earlier: bool) -> None:
    out, site = Path(cli.folder) / "out", Path(cli.folder) / "site"
    if earlier:
        cli.run("release", "build", "--output", "out", "--problem", "silu_and_mul")
    before = _files(out) if earlier else None
    site.mkdir()
    (site / "sitecustomize.py").write_text(_HOOK.replace("STOP", stop))
    path = f"{cli.environment['PYTHONPATH']}:{site}"

    ran = cli.with_variables(PYTHONPATH=path).run("release", "build", "--output", "out", *_PROBLEMS)

    assert (_files(out) if out.exists() else None) == before
    left = [path.name for path in Path(cli.folder).glob(".out.*")]
    if stop == _STOPS["killed"]:
        assert (ran.code, len(left)) == (-9, 1)
    elif stop == _STOPS["disk full"]:
        hint = "free some space, or choose another --output; what was there is as it was"
        _check_error(ran, 3, "cannot write the release: no space left on device", hint)
        assert left == []
    else:
        assert (ran.code, left) == (130, [])
        assert ran.err == (
            "error: interrupted\n"
            "hint: the folder is as it was before, or the whole new release; run it again\n"
        )
    again = cli.run("release", "build", "--output", "out", *_PROBLEMS)
    assert again.code == 0
    assert not list(Path(cli.folder).glob(".out.*"))


@pytest.mark.parametrize(
    ("output", "error", "hint"),
    [
        ("file", "'file' is no folder", "choose another --output"),
        ("full", "'full' is not empty, and no release", "choose another --output"),
        ("absent/out", "cannot write 'absent/out': no such file or directory", "choose another.*"),
        ("file/out", "cannot write 'file/out': not a directory", "its parent is no folder"),
        ("/proc/out", "cannot write '/proc/out': no such file or directory", "choose another.*"),
    ],
)
def test_output_that_cannot_be_is_one_error(cli: Any, output: str, error: str, hint: str) -> None:
    (Path(cli.folder) / "file").write_text("mine")
    (Path(cli.folder) / "full").mkdir()
    (Path(cli.folder) / "full" / "mine").write_text("mine")

    ran = cli.run("release", "build", "--output", output, *_PROBLEMS)

    _check_error(ran, 2, error, hint)
    assert (Path(cli.folder) / "file").read_text() == "mine"
    assert (Path(cli.folder) / "full" / "mine").read_text() == "mine"


def test_empty_output_is_an_error(cli: Any) -> None:
    ran = cli.run("release", "build", "--output", "", *_PROBLEMS)

    _check_error(ran, 2, "invalid value for '--output': name a folder: this is empty", "see .*")
    assert not (Path(cli.folder) / "manifest.json").exists()


def test_folder_without_a_manifest_is_no_release(cli: Any) -> None:
    (Path(cli.folder) / "out").mkdir()

    ran = cli.run("release", "verify", "out")

    hint = "name a folder that `atrex-eval release build` has written"
    _check_error(ran, 2, "'out' is no release: it has no manifest.json", hint)


def test_problem_without_a_public_half_is_named(cli: Any) -> None:
    ran = cli.run("release", "build", "--output", "out", "--problem", "acme*")

    error = "problem 'acme_scaled_sum' cannot be released: it has no public reference.py"
    _check_error(ran, 2, error, "select others with --problem, .*")
    assert not (Path(cli.folder) / "out").exists()


def test_unknown_problem_is_named(cli: Any) -> None:
    ran = cli.run("release", "build", "--output", "out", "--problem", "op_0000")

    _check_error(ran, 2, "no problem matches 'op_0000'", ".*available: .*")


def test_folder_that_is_not_there_is_one_error(cli: Any) -> None:
    ran = cli.run("release", "verify", "nowhere")

    error = "cannot read 'nowhere': no such file or directory"
    _check_error(ran, 2, error, "name a folder that `atrex-eval release build` has written")


def test_verify_finds_a_changed_file_and_says_what_it_could_not_prove(cli: Any) -> None:
    cli.run("release", "build", "--output", "out", *_PROBLEMS)
    changed = Path(cli.folder) / "out" / "op_e9b9" / "reference.py"
    changed.write_text(changed.read_text().replace("the definition", "weight 0.027508"))

    ran = cli.run("release", "verify", "out", *_NO_BACKEND)

    failed = [line for line in ran.out.splitlines() if line.startswith("FAIL")]
    assert ran.code == 1
    assert ran.err == "5 of 16 claims do not hold\n"
    assert [line.split()[1] for line in failed] == [*["folder"] * 3, "text", "worker"]
    assert "'op_e9b9/reference.py' was changed" in failed[0]
    assert "'op_e9b9/reference.py' has a time of its own" in failed[1]
    assert "'op_e9b9/reference.py' differs" in failed[2]
    assert "'op_e9b9/reference.py' has 0.027508 (importance)" in failed[3]
    assert "not proved: no backend is installed" in failed[4]


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (("--backend", "nope"), "no backend is named 'nope'", ".*available: .*"),
        (("--backend", "nunba"), "no backend is named 'nunba'", "did you mean 'numba'.*"),
        (("--device", "nope:0"), "no .* 'nope.*", ".*"),
        (("--problem", ""), "an empty glob '' selects no problem", "leave it out to .*"),
        (("--problem", "rms_nrm"), "no problem matches 'rms_nrm'", "did you mean 'rms_norm'.*"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_verify_with_a_wrong_name_is_one_error(
    cli: Any, arguments: tuple[str, ...], error: str, hint: str
) -> None:
    cli.run("release", "build", "--output", "out", "--problem", "rms_norm")

    ran = cli.run("release", "verify", "out", *arguments)

    _check_error(ran, 2, error, hint)


@pytest.mark.parametrize("glob", ["", ",", " , "])
@pytest.mark.parametrize(
    "command",
    [
        ("release", "build", "--output", "out", "--problem"),
        ("problems", "lint"),
        ("weights", "show"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_empty_glob_is_one_error(cli: Any, command: tuple[str, ...], glob: str) -> None:
    ran = cli.run(*command, glob)

    hint = "leave it out to select every problem; available: .*"
    _check_error(ran, 2, f"an empty glob '{glob}' selects no problem", hint)
    assert not (Path(cli.folder) / "out").exists()


@pytest.mark.parametrize("option", ["--problem", "--workload"])
def test_empty_glob_of_a_run_is_one_error(cli: Any, option: str) -> None:
    ran = cli.run("run", "--backend", "numba", option, "")

    hint = "leave it out where none is meant"
    _check_error(ran, 2, rf"{option} must be one name or more, not \('',\)", hint)


def test_verify_that_is_terminated_is_clean(cli: Any) -> None:
    cli.run("release", "build", "--output", "out", "--problem", "rms_norm")
    verifying = cli.start("release", "verify", "out", "--backend", "numba")
    deadline = time.monotonic() + 60
    while not (found := list(Path(cli.environment["TMPDIR"]).glob("atrex-canary-*"))):
        assert verifying.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)

    verifying.terminate()
    _, err = verifying.communicate(timeout=60)

    assert verifying.returncode == 130
    assert err.decode() == "error: interrupted\nhint: nothing is proved; run it again\n"
    assert not any(path.exists() for path in found)


def test_verify_wants_the_problems_that_are_named(cli: Any) -> None:
    cli.run("release", "build", "--output", "out", "--problem", "rms_norm")

    ran = cli.run(*("release", "verify", "out", *_PROBLEMS, *_NO_BACKEND, "--format", "json"))

    found = {row["claim"]: row for row in ran.document["claims"]}
    rebuilt = found["the installed packs give the same release"]
    assert ran.code == 1
    assert rebuilt["standing"] == "FAIL"
    assert "'op_f362/INTERFACE.md' differs" in rebuilt["detail"]


@pytest.mark.slow
def test_release_keeps_every_claim(cli: Any) -> None:
    cli.run("release", "build", "--output", "out", *_PROBLEMS)

    ran = cli.run("release", "verify", "out", "--format", "json", timeout_s=280)

    rows = ran.document["claims"]
    assert (ran.code, ran.err) == (0, "")
    assert [row for row in rows if row["standing"] == "FAIL"] == []
    assert {row["subject"] for row in rows if row["standing"] == "PASS"} >= {
        *("folder", "text", "alone", "worker", "results"),
    }
    limits = {row["claim"]: row["detail"] for row in rows if row["standing"] == "LIMIT"}
    assert "a worker cannot read private files installed on this machine" in limits
    assert all("isolation" in text or "pack author" in text for text in limits.values())
    assert cli.leftovers() == ({}, [])


# -- release ids ----------------------------------------------------------------------------------


def test_problems_are_listed_with_their_release_ids(cli: Any) -> None:
    ran = cli.run("list", "problems", "--format", "json")

    ids = {row["name"]: row["release_id"] for row in ran.document["problems"]}
    assert (ids["rms_norm"], ids["acme_scaled_sum"]) == ("op_e9b9", "acme_scaled_sum")


@pytest.mark.parametrize("name", ["op_e9b9.py", "op_e9b9/mine.py", "mine.py"])
def test_candidate_is_judged_by_release_id_and_recorded_by_name(cli: Any, name: str) -> None:
    path = Path(cli.folder) / name
    path.parent.mkdir(exist_ok=True)
    shutil.copy(_KERNEL, path)
    chosen = ("--problem", "op_e9b9") if name == "mine.py" else ()

    ran = cli.run(
        *("run", name, *chosen, "--backend", "numba", "--workload", "smoke-1x128"),
        *("--until", "correctness", "--format", "json"),
    )

    (found,) = ran.document["evaluations"]
    assert ran.code == 0
    assert (found["problem"], found["submission"]) == ("rms_norm", path.stem)


_CLASH = """
from atrex_acme.problem import ScaledSum
from atrex_core import hookimpl

class Other(ScaledSum):
    name = "other"
    release_id = "RELEASE_ID"

@hookimpl
def atrex_problems():
    return [Other()]
"""


@pytest.mark.parametrize("release_id", ["op_e9b9", "acme_scaled_sum"])
def test_clash_of_release_ids_is_one_error(
    cli: Any, release_id: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site = tmp_path_factory.mktemp("site")
    info = site / "odd-1.dist-info"
    info.mkdir()
    (site / "odd_plugin.py").write_text(_CLASH.replace("RELEASE_ID", release_id))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[atrex_eval]\nodd = odd_plugin\n")
    path = f"{cli.environment['PYTHONPATH']}:{site}"

    ran = cli.with_variables(PYTHONPATH=path).run("list", "problems")

    error, hint = ran.err.splitlines()
    assert (ran.code, ran.out) == (3, "")
    assert re.fullmatch(
        rf"error: problems '.*' of plugin .* and '.*' of plugin .* both answer to '{release_id}'",
        error,
    )
    assert "'other' of plugin 'odd' (odd 1)" in error
    assert hint.startswith(
        "hint: give one of them another release id, or run with --disable-plugin"
    )
