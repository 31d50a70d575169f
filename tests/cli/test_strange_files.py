"""Files that are not what their names say, and reports that would overwrite something."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_HAMMER = ("--backend", "hammer", "--until", "compile")
_KERNEL = "x = 1\n"


@pytest.fixture
def kernel(cli: Any) -> Path:
    """Return a candidate without a `Model`, alone in a folder."""
    path = Path(cli.folder) / "mine" / "acme_scaled_sum.py"
    path.parent.mkdir()
    path.write_text(_KERNEL)
    return path


def _refused(ran: Any, error: str) -> None:
    assert ran.err.splitlines()[0] == f"error: {error}"
    assert len(ran.err.splitlines()) == 2
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize("named", ["mine", "mine/acme_scaled_sum.py"], ids=["folder", "file"])
@pytest.mark.parametrize("link", [False, True], ids=["itself", "through a link"])
def test_report_does_not_replace_a_candidate(
    cli: Any, kernel: Path, named: str, link: bool
) -> None:
    output = "mine/acme_scaled_sum.py"
    if link:
        (cli.folder / "report.txt").symlink_to(kernel)
        output = "report.txt"

    ran = cli.run(named, *_HAMMER, "--output", output)

    _refused(ran, f"--output {output!r} is a candidate")
    assert kernel.read_text() == _KERNEL


@pytest.mark.parametrize("exists", [True, False], ids=["written", "to be written"])
def test_report_does_not_replace_the_journal(cli: Any, exists: bool) -> None:
    journal = Path(cli.folder) / "j.jsonl"
    if exists:
        cli.run(*_HAMMER, "--journal", "j.jsonl")
    before = journal.read_bytes() if exists else None

    ran = cli.run(*_HAMMER, "--journal", "j.jsonl", "--output", f"../{cli.folder.name}/j.jsonl")

    _refused(ran, f"--output '../{cli.folder.name}/j.jsonl' is the journal itself")
    assert (journal.read_bytes() if journal.exists() else None) == before


def test_what_only_looks_like_a_candidate_is_left_out(cli: Any, kernel: Path) -> None:
    folder = kernel.parent / "acme_scaled_sum"
    folder.mkdir()
    os.mkfifo(folder / "pipe.py")
    (folder / "gone.py").symlink_to("nowhere")
    (folder / "loop.py").symlink_to("loop.py")
    (folder / "zero.py").symlink_to("/dev/zero")
    (folder / "folder.py").mkdir()

    ran = cli.run("mine", *_HAMMER, "--format", "json")

    assert [found["submission"] for found in ran.document["evaluations"]] == ["mine"]
    left_out = ", ".join(f"acme_scaled_sum/{name}.py" for name in ("gone", "loop", "pipe", "zero"))
    assert ran.err == f"WARNING: left out of mine: not regular files: {left_out}\n"


@pytest.mark.parametrize("kind", ["pipe", "device", "dangling", "looping", "too long"])
def test_candidate_that_is_no_file_is_a_usage_error(cli: Any, kind: str) -> None:
    name, path = "acme_scaled_sum.py", Path(cli.folder) / "acme_scaled_sum.py"
    error = f"{name!r} is not a regular file"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "dangling":
            path.symlink_to("nowhere")
            error = f"no such file or folder: {name!r}"
        case "looping":
            path.symlink_to(name)
            error = f"cannot read {name!r}: too many levels of symbolic links"
        case _:
            name = "x" * 300 + ".py"
            error = f"cannot read {name!r}: file name too long"

    ran = cli.run("run", name, *_HAMMER, timeout_s=30)

    _refused(ran, error)


@pytest.mark.parametrize(
    "arguments",
    [
        ("journal", "show", "odd"),
        ("repro", "odd", "1"),
        (*_HAMMER, "--journal", "odd"),
        (*_HAMMER, "--journal", "odd", "--resume"),
    ],
    ids=["show", "repro", "run", "resume"],
)
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_journal_that_is_no_file_is_a_usage_error(
    cli: Any, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], kind: str
) -> None:
    monkeypatch.chdir(cli.folder)  # a socket's name must be short
    with socket.socket(socket.AF_UNIX) as bound:
        if kind == "pipe":
            os.mkfifo("odd")
        else:
            bound.bind("odd")

        ran = cli.run(*arguments, timeout_s=30)

    _refused(ran, f"'odd' is a {kind}, not a journal")


@pytest.mark.parametrize(
    ("journal", "error"),
    [
        ("~nobody-of-that-name/x", "--journal must be a path that exists, not "),
        ("x" * 300, "cannot write journal 'xxx"),
    ],
    ids=["no such user", "too long"],
)
@pytest.mark.parametrize("extra", [(), ("--resume",)], ids=["new", "resume"])
def test_journal_that_cannot_be_named(
    cli: Any, journal: str, error: str, extra: tuple[str, ...]
) -> None:
    ran = cli.run(*_HAMMER, "--journal", journal, *extra)

    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 2)
    assert ran.err.startswith(f"error: {error.replace('write', 'read') if extra else error}")


def test_names_that_are_not_text_are_recorded_in_print(cli: Any) -> None:
    folder = os.fsencode(cli.folder) + b"/caf\xe9"
    os.mkdir(folder)  # noqa: PTH102 - a name of bytes
    Path(os.fsdecode(folder), "acme_scaled_sum.py").write_text(_KERNEL)

    ran = cli.run(os.fsdecode(folder), *_HAMMER, "--format", "json", "--journal", "j.jsonl")

    (found,) = ran.document["evaluations"]
    assert (ran.code, ran.err) == (1, "")
    assert found["submission"] == "caf\\xe9"
    assert found["candidate"] == f"{cli.folder}/caf\\xe9/acme_scaled_sum.py"
    assert "caf\\xe9" in cli.run("journal", "show", "j.jsonl", found["id"]).document["submission"]


def test_deleted_working_directory_is_one_error(cli: Any) -> None:
    gone = Path(cli.folder) / "gone"
    gone.mkdir()
    script = (
        f"import os, sys; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); "
        f"os.execv({cli._command(())[0]!r}, ['atrex-eval', *sys.argv[1:]])"
    )

    ran = _python(cli, script, *_HAMMER)

    _refused(ran, "the working directory cannot be used: no such file or directory")


def test_user_without_a_home_has_no_default_journal(cli: Any) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become a user that nobody knows")
    script = (
        "import os; from atrex_core.cli.run import default_journal; os.setuid(54321); "
        "print(default_journal())"
    )
    bare = {k: v for k, v in cli.environment.items() if k not in ("HOME", "XDG_STATE_HOME")}

    ran = _python(cli, script, environment=bare)

    assert ran.out == "None\n"
    assert ran.err == "no journal is kept: there is no home folder; use --journal\n"


def _python(cli: Any, code: str, *arguments: str, environment: Any = None) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cli.folder,
        env=dict(environment or cli.environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return type(cli.run("--version"))(done.returncode, done.stdout, done.stderr)


# -- journals of strangers -------------------------------------------------------------------------


@pytest.fixture
def hostile(cli: Any) -> list[dict[str, Any]]:
    """Return the records of a run, to be changed and written back by `_write`."""
    cli.run(*_HAMMER, "--journal", "j.jsonl")
    return [json.loads(line) for line in (cli.folder / "j.jsonl").read_text().splitlines()]


def _write(cli: Any, records: list[dict[str, Any]]) -> None:
    text = "".join(f"{json.dumps(record)}\n" for record in records)
    (cli.folder / "strange.jsonl").write_text(text)


def test_markup_and_absurd_numbers_are_shown_as_they_are(
    cli: Any, hostile: list[dict[str, Any]]
) -> None:
    hostile[1] |= {
        "id": "[/oops]",
        "workload": "[bold]w\\",
        "problem": "[/]p\x1b[31m",
        "flags": ["[/red]", "[link=x]"],
        "share_of_roofline": {"device": 1e300, "call": None},
        "bound": {"t_sol_us": 1e300, "limiter": "memory", "ceiling": "spec"},
    }
    _write(cli, hostile)

    ran = cli.run("journal", "show", "strange.jsonl")

    assert (ran.code, ran.err) == (0, "")
    row = ran.out.splitlines()[1]
    assert row.split()[:3] == ["[/oops]", "[/]p\\x1b[31m", "[bold]w\\"]
    assert row.split().count("1e+300") == 2
    assert row.split()[-2:] == ["[/red]", "[link=x]"]


def test_seed_that_is_no_integer_is_a_usage_error(cli: Any, hostile: list[dict[str, Any]]) -> None:
    hostile[1] |= {"problem": "rms_norm", "workload": "smoke-7x1152"}
    hostile[1]["gates"]["compile"]["details"] = {"seed": "1; rm", "regime": "nominal"}
    _write(cli, hostile)

    ran = cli.run("repro", "strange.jsonl", hostile[1]["id"])

    identity = hostile[1]["id"]
    _refused(ran, f"the recorded seed of evaluation {identity!r} is no integer: '1; rm'")


@pytest.mark.parametrize("output", ["j.jsonl", "notes.py"])
def test_script_replaces_nothing_but_scripts(
    cli: Any, hostile: list[dict[str, Any]], output: str
) -> None:
    hostile[1] |= {"problem": "rms_norm", "workload": "smoke-7x1152"}
    _write(cli, hostile)
    (cli.folder / "strange.jsonl").rename(cli.folder / "j.jsonl")
    (cli.folder / "notes.py").write_text("mine\n")
    before = (cli.folder / output).read_bytes()

    ran = cli.run("repro", "j.jsonl", hostile[1]["id"], "--output", output)

    assert ran.code == 2
    assert (cli.folder / output).read_bytes() == before
    for _ in range(2):
        again = cli.run("repro", "j.jsonl", hostile[1]["id"], "--output", "again.py")
        assert (again.code, again.out) == (0, "again.py\n")
