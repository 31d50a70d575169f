"""Every way to ask wrongly: one `error:` line, one `hint:` line, nothing on stdout."""

from __future__ import annotations

import fcntl
import re
from pathlib import Path
from typing import Any

import pytest

_HAMMER = ("--backend", "hammer")


def _check(ran: Any, code: int, error: str, hint: str) -> None:
    lines = ran.err.splitlines()
    assert len(lines) == 2, ran.err
    assert re.fullmatch(f"error: {error}", lines[0])
    assert re.fullmatch(f"hint: {hint}", lines[1])
    assert (ran.code, ran.out) == (code, "")


@pytest.mark.parametrize(
    ("arguments", "code", "error", "hint"),
    [
        pytest.param(
            ("--backend", "hamer"),
            2,
            "no backend is named 'hamer'",
            r"did you mean 'hammer'\? available: .*hammer.*",
            id="backend",
        ),
        pytest.param(
            (*_HAMMER, "--problem", "zzz*"),
            2,
            r"no problem matches 'zzz\*'",
            "available: acme_scaled_sum, .*",
            id="problem glob",
        ),
        pytest.param(
            (*_HAMMER, "--device", "anvil:7"),
            4,
            "device 'anvil:7' is not available here: there is only anvil:0",
            "see `atrex-eval list devices`",
            id="device that is absent",
        ),
        pytest.param(
            (*_HAMMER, "--device", "anvill:0"),
            2,
            "no device is named 'anvill:0'",
            r"did you mean 'anvil:0'\? available: anvil:0.*",
            id="device of no accelerator",
        ),
        pytest.param(
            (*_HAMMER, "--device", "cpu"),
            4,
            "backend 'hammer' does not run on 'cpu'",
            "it runs on: anvil",
            id="device of another backend",
        ),
        pytest.param(
            (*_HAMMER, "--device", "virtual:sm_90"),
            4,
            "backend 'hammer' cannot stand in for 'sm_90'",
            "virtual devices it offers: none",
            id="virtual device",
        ),
        pytest.param(
            (*_HAMMER, "--target", "sm_90"),
            2,
            "backend 'hammer' cannot compile for target 'sm_90'",
            "targets: none",
            id="target",
        ),
        pytest.param(
            (*_HAMMER, "--profile", "acme-anvil"),
            2,
            "no hardware profile is named 'acme-anvil'",
            r"did you mean 'acme-anvil-2'\? available: .*",
            id="profile",
        ),
        pytest.param(
            ("problems", "lst"),
            2,
            "'atrex-eval problems' has no command 'lst'",
            "available: lint, show",
            id="command of a group",
        ),
        pytest.param(
            (*_HAMMER, "--workload", "huge*"),
            5,
            r"no workload matches 'huge\*' at this scale",
            "`atrex-eval problems show NAME` lists a problem's workloads",
            id="workload glob",
        ),
        pytest.param(
            (*_HAMMER, "--problem", "rms_norm"),
            5,
            "backend 'hammer' ships no kernel for the selected problems",
            "`atrex-eval list problems` shows names; .*",
            id="problem without a kernel",
        ),
        pytest.param(
            (*_HAMMER, "--until", "corectness"),
            2,
            "--until must be one of compile, correctness, .*, not 'corectness'",
            r"did you mean 'correctness'\?",
            id="gate",
        ),
        pytest.param(
            (*_HAMMER, "--scale", "huge"),
            2,
            "--scale must be one of full, smoke, not 'huge'",
            "see `atrex-eval --help`",
            id="scale",
        ),
        pytest.param(
            (*_HAMMER, "--timeout", "soon"),
            2,
            "invalid value for '--timeout': 'soon' is not a valid float.",
            "see `atrex-eval run --help`",
            id="number",
        ),
        pytest.param(
            (*_HAMMER, "--cases", "2"),
            2,
            "2 cases are too few: the strict protocol asks for at least 5",
            "leave --cases out, or ask for more",
            id="too few cases",
        ),
        pytest.param(
            (*_HAMMER, "--format", "xml"),
            2,
            "no format is named 'xml'",
            "available: .*json.*table.*",
            id="format",
        ),
        pytest.param(
            (*_HAMMER, "--disable-plugin", "acmee"),
            2,
            "no plugin named 'acmee' is installed",
            r"did you mean 'acme'\? available: acme, .*",
            id="plugin",
        ),
        pytest.param(
            ("--backend", "hammer", "--disable-plugin", "acme"),
            2,
            "no backend is named 'hammer'",
            "available: .*",
            id="backend of a disabled plugin",
        ),
        pytest.param(
            ("--bakend", "hammer"),
            2,
            r"no such option '--bakend'. Did you mean '--backend'\?",
            "see `atrex-eval run --help`",
            id="option",
        ),
        pytest.param(
            ("lsit",),
            2,
            "no command is named 'lsit'",
            r"did you mean 'list'\? available: .*list.*",
            id="command",
        ),
        pytest.param(
            ("list", "bakends"),
            2,
            "cannot list 'bakends'",
            r"did you mean 'backends'\? available: .*",
            id="kind",
        ),
        pytest.param(
            ("rms_norm.py", *_HAMMER),
            2,
            "no such file or folder: 'rms_norm.py'",
            "a candidate is a .py file that exposes `Model`",
            id="file",
        ),
        pytest.param(
            ("run", "nothing/here", *_HAMMER),
            2,
            "no such file or folder: 'nothing/here'",
            "a candidate is a .py file that exposes `Model`",
            id="folder",
        ),
        pytest.param(
            ("x" * 5000,),
            2,
            r"no command is named 'x+ \.\.\.",
            "available: .*",
            id="name that no file system takes",
        ),
        pytest.param(
            ("run", "--problem", "acme_scaled_sum", "/proc/self/mem", *_HAMMER),
            2,
            "cannot read '/proc/self/mem': input/output error",
            "check the path and its rights",
            id="unreadable file",
        ),
        pytest.param(
            (*_HAMMER, "--output", "nowhere/report.txt"),
            2,
            "cannot write 'nowhere/report.txt': no such file or directory",
            "choose another --output",
            id="unwritable report",
        ),
        pytest.param(
            (*_HAMMER, "--resume"),
            2,
            "--resume needs a journal",
            "add --journal FILE",
            id="resume without a journal",
        ),
        pytest.param(
            (*_HAMMER, "--journal", "nowhere/j.jsonl"),
            2,
            "cannot write journal 'nowhere/j.jsonl': no such file or directory",
            "create folder 'nowhere' first",
            id="unwritable journal",
        ),
        pytest.param(
            (*_HAMMER, "--journal", "."),
            2,
            "cannot write journal '.': is a directory",
            "name a file inside it",
            id="journal that is a folder",
        ),
        pytest.param(
            ("journal", "show", "absent.jsonl"),
            2,
            "cannot read journal 'absent.jsonl': no such file or directory",
            "check the path; a run writes it with --journal",
            id="journal to show",
        ),
        pytest.param(
            ("repro", "absent.jsonl", "1234"),
            2,
            "cannot read journal 'absent.jsonl': no such file or directory",
            "check the path; a run writes it with --journal",
            id="journal to reproduce from",
        ),
        pytest.param(
            ("doctor", "--backend", "hamer"),
            2,
            "no backend is named 'hamer'",
            r"did you mean 'hammer'\? .*",
            id="backend to examine",
        ),
    ],
)
def test_wrong_request_is_one_error_and_one_hint(
    shared_cli: Any, arguments: tuple[str, ...], code: int, error: str, hint: str
) -> None:
    ran = shared_cli.run(*arguments)

    _check(ran, code, error, hint)


def test_empty_folder_has_nothing_to_do(cli: Any) -> None:
    (cli.folder / "candidates").mkdir()

    ran = cli.run("candidates", *_HAMMER)

    _check(ran, 5, "no candidate for the selected problems in candidates", "`atrex-eval list .*")


def test_file_of_no_problem_is_asked_about(cli: Any) -> None:
    (cli.folder / "kernel.py").write_text("")

    ran = cli.run("kernel.py", *_HAMMER)

    _check(ran, 2, "cannot tell which problem 'kernel.py' solves", "name the file after .*")


def test_broken_settings_file_is_named(cli: Any) -> None:
    (cli.folder / "atrex.toml").write_text("backend = hammer")

    ran = cli.run()

    _check(
        ran, 2, r".*/atrex.toml is not valid TOML: .* \(at line 1, column 11\)", "correct the .*"
    )


def test_misspelt_variable_is_named(cli: Any) -> None:
    ran = cli.with_variables(ATREX_BACKENT="hammer").run()

    _check(ran, 2, "unknown variable ATREX_BACKENT", r"did you mean ATREX_BACKEND\?")


def test_file_that_is_no_journal_is_left_alone(cli: Any) -> None:
    (cli.folder / "notes.txt").write_text("do not lose me\n")

    ran = cli.run(*_HAMMER, "--journal", "notes.txt")

    _check(ran, 2, "'notes.txt' exists and is not a journal", "choose another file: .*")
    assert (cli.folder / "notes.txt").read_text() == "do not lose me\n"


def test_journal_of_another_run_is_left_alone(cli: Any) -> None:
    with Path(cli.folder / "j.jsonl").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        ran = cli.run(*_HAMMER, "--journal", "j.jsonl")

    _check(ran, 2, "another run is writing journal 'j.jsonl'", "choose another file with .*")


def test_full_disk_under_the_journal_leaves_the_results_on_stdout(cli: Any) -> None:
    ran = cli.run(*_HAMMER, "--journal", "/dev/full")

    assert ran.code == 3
    error, hint = ran.err.splitlines()
    assert error == "error: cannot write journal '/dev/full': no space left on device"
    assert hint.startswith("hint: free some space ")
    assert "1 evaluation: 1 passed" in ran.out


def test_full_disk_under_the_report_leaves_it_on_stdout(cli: Any) -> None:
    ran = cli.run(*_HAMMER, "--output", "/dev/full", "--format", "json")

    assert ran.code == 2
    assert ran.err.splitlines() == [
        "error: cannot write '/dev/full': no space left on device",
        "hint: choose another --output",
    ]
    assert len(ran.document["evaluations"]) == 1


def test_full_disk_under_stdout(cli: Any) -> None:
    with Path("/dev/full").open("w") as full:
        ran = cli.run("list", "problems", stdout=full)

    _check(ran, 3, "cannot write the results: no space left on device", "free some space; .*")


def test_reader_that_has_gone_is_no_error(cli: Any) -> None:
    running = cli.start("list", "problems", "--format", "json")
    running.stdout.close()
    _, err = running.communicate(timeout=60)

    assert (running.returncode, err) == (0, b"")
