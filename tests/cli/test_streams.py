"""Closed, full and abandoned standard streams: results go where they can, the code stays."""

from __future__ import annotations

import shlex
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

_HAMMER = ("--backend", "hammer", "--until", "correctness")
_NO_MODEL = "x = 1\n"


def _shell(cli: Any, redirection: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = shlex.join(cli._command(arguments))
    return subprocess.run(
        ["bash", "-c", f"{words} {redirection}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        **cli._place,
    )


@pytest.fixture(scope="module")
def wrong(shared_cli: Any) -> str:
    """Return a candidate that fails, so that the verdict's code is 1."""
    (shared_cli.folder / "acme_scaled_sum.py").write_text(_NO_MODEL)
    return "acme_scaled_sum.py"


@pytest.mark.parametrize(
    ("redirection", "shows"),
    [
        pytest.param("2>&-", True, id="stderr closed"),
        pytest.param("2>/dev/full", True, id="stderr full"),
        pytest.param(">&-", False, id="stdout closed"),
        pytest.param(">/dev/full", False, id="stdout full"),
        pytest.param("| true; exit ${PIPESTATUS[0]}", False, id="nobody reads"),
        pytest.param("2>&1 | true; exit ${PIPESTATUS[0]}", False, id="nobody reads either"),
        pytest.param("| head -n 1; exit ${PIPESTATUS[0]}", False, id="one line is read"),
        pytest.param("<&- >&- 2>&-", False, id="all closed"),
    ],
)
def test_code_is_the_verdict_and_the_journal_is_kept(
    shared_cli: Any, wrong: str, redirection: str, shows: bool
) -> None:
    journal = Path(shared_cli.folder) / "streams.jsonl"
    journal.unlink(missing_ok=True)

    ran = _shell(shared_cli, redirection, wrong, *_HAMMER, "--journal", journal.name)

    assert ran.returncode == 1
    assert ("1 evaluation: 1 failed" in ran.stdout) is shows
    assert "Traceback" not in ran.stderr
    assert all(line.startswith(b'{"schema":') for line in journal.read_bytes().splitlines())
    assert len(journal.read_bytes().splitlines()) == 2


def test_full_stdout_is_told(shared_cli: Any, wrong: str) -> None:
    ran = _shell(shared_cli, ">/dev/full", wrong, *_HAMMER, "--journal", "told.jsonl")

    assert ran.stderr.splitlines() == [
        "error: cannot write the results: no space left on device",
        "hint: free some space; the results are in 'told.jsonl'",
        "journal: told.jsonl",
    ]


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "2>&1 | true; exit ${PIPESTATUS}"])
def test_error_without_a_stderr_keeps_its_code(shared_cli: Any, redirection: str) -> None:
    ran = _shell(shared_cli, redirection, "list", "bakends")

    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", "")


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("--version",)])
def test_help_that_nobody_reads_is_no_error(shared_cli: Any, arguments: tuple[str, ...]) -> None:
    ran = _shell(shared_cli, "| true; exit ${PIPESTATUS[0]}", *arguments)

    assert (ran.returncode, ran.stderr) == (0, "")


_NOISY = """
    from atrex_core import hookimpl

    print("imported")

    @hookimpl
    def atrex_problems():
        print("asked")
        return []

    @hookimpl
    def atrex_evaluation_finished(evaluation):
        print("told")
"""


def test_what_plugins_print_is_no_result(cli: Any) -> None:
    loud = _with_plugin(cli, "noisy", textwrap.dedent(_NOISY))

    ran = loud.run(*_HAMMER, "--format", "json")

    assert ran.code == 0
    assert len(ran.document["evaluations"]) == 1
    assert {"imported", "asked", "told"} <= set(ran.err.split())
    closed = _shell(loud, "2>&-", *_HAMMER, "--format", "json")
    assert (closed.returncode, closed.stdout[:1]) == (0, "{")


def _with_plugin(cli: Any, name: str, source: str) -> Any:
    site = Path(cli.folder) / "site"
    info = site / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (site / f"{name}_plugin.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[atrex_eval]\n{name} = {name}_plugin\n")
    return cli.with_variables(PYTHONPATH=f"{cli.environment['PYTHONPATH']}:{site}")
