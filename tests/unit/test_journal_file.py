"""A journal's file: full disks, wrong files, and two runs at once."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from attrs import evolve

from atrex_core import ExitCode, HarnessError, UsageError
from atrex_core.codec import EncodeError
from atrex_core.journal import Journal

EVALUATION = next(iter(Journal(Path(__file__).parents[1] / "journals" / "v1.jsonl")))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "atrex.jsonl"


def test_nan_is_refused_and_nothing_is_written(path: Path) -> None:
    with Journal(path) as journal:
        with pytest.raises(EncodeError, match=r"cannot write \$\.seconds as JSON: it is nan"):
            journal.append(evolve(EVALUATION, seconds=float("nan")))

        journal.append(EVALUATION)

    assert list(Journal(path)) == [EVALUATION]


def test_a_full_disk_is_one_line_with_a_hint() -> None:
    with Journal(Path("/dev/full")) as journal, pytest.raises(HarnessError) as caught:
        journal.append(EVALUATION)

    assert str(caught.value) == "cannot write journal '/dev/full': no space left on device"
    assert caught.value.hint == (
        "free some space and run again with --resume: earlier lines are safe"
    )


def test_a_file_that_may_grow_no_more_keeps_its_earlier_lines(path: Path) -> None:
    Journal(path).append(EVALUATION)
    size = path.stat().st_size
    script = textwrap.dedent(f"""
        import resource, signal
        from atrex_core.errors import HarnessError
        from atrex_core.journal import Journal
        from pathlib import Path
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 100}, {size + 100}))
        journal = Journal(Path({str(path)!r}))
        try:
            journal.append(next(iter(journal)))
        except HarnessError as error:
            print(error)
    """)

    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert out.stdout == f"cannot write journal '{path}': file too large\n"
    assert path.stat().st_size == size + 100
    assert list(Journal(path)) == [EVALUATION]
    assert [damage.line for damage in Journal(path).damaged] == [2]


def use(path: Path, action: str) -> None:
    """Read or write a journal."""
    if action == "read":
        list(Journal(path))
    else:
        Journal(path).append(EVALUATION)


UNUSABLE: dict[str, tuple[str, str, str]] = {
    "read a folder": ("read", ".", "cannot read journal '{}': is a directory"),
    "write a folder": ("write", ".", "cannot write journal '{}': is a directory"),
    "read nothing": ("read", "none.jsonl", "cannot read journal '{}': no such file or directory"),
    "write in no folder": (
        "write",
        "none/a.jsonl",
        "cannot write journal '{}': no such file or directory",
    ),
    "write below a file": ("write", "file/a.jsonl", "cannot write journal '{}': not a directory"),
    "write over a file": ("write", "file", "'{}' exists and is not a journal"),
    "read a device": ("read", "/dev/zero", "'{}' is a device, not a journal"),
}


@pytest.mark.parametrize(("action", "name", "message"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_file_that_cannot_be_used_is_one_line_with_a_hint(
    tmp_path: Path, action: str, name: str, message: str
) -> None:
    (tmp_path / "file").write_text("print('a kernel, not a journal')\n")
    path = tmp_path / name

    with pytest.raises(UsageError) as caught:
        use(path, action)

    assert str(caught.value) == message.format(path)
    assert caught.value.exit_code is ExitCode.USAGE
    assert "\n" not in caught.value.hint
    assert (tmp_path / "file").read_text() == "print('a kernel, not a journal')\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may use every file")
@pytest.mark.parametrize("action", ["read", "write"])
def test_a_file_without_permission_is_one_line_with_a_hint(path: Path, action: str) -> None:
    Journal(path).append(EVALUATION)
    path.chmod(0)

    with pytest.raises(UsageError, match=f"cannot {action} journal .*: permission denied"):
        use(path, action)


def test_two_runs_cannot_write_one_journal(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(EVALUATION)
        with pytest.raises(UsageError) as caught:
            Journal(path).append(EVALUATION)

    assert str(caught.value) == f"another run is writing journal '{path}'"
    assert caught.value.hint == (
        "choose another file with --journal; journals can be joined with cat"
    )
    assert list(Journal(path)) == [EVALUATION]


def test_another_process_cannot_write_the_journal_of_a_run(path: Path) -> None:
    script = textwrap.dedent(f"""
        from atrex_core.errors import UsageError
        from atrex_core.journal import Journal
        from pathlib import Path
        try:
            Journal(Path({str(path)!r})).__enter__()
        except UsageError as error:
            print(error)
        else:
            print("locked")
    """)

    def other_process() -> str:
        command = [sys.executable, "-c", script]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    with Journal(path):
        during = other_process()
    after = other_process()

    assert during == f"another run is writing journal '{path}'\n"
    assert after == "locked\n"


def test_a_journal_that_nobody_holds_is_unlocked(path: Path) -> None:
    Journal(path).append(EVALUATION)
    gc.collect()

    Journal(path).append(evolve(EVALUATION, id="second"))

    assert len(list(Journal(path))) == 2
