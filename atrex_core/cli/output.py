"""The report of a command: what it may be written over, and how it gets to its reader."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from atrex_core.candidates import source_files
from atrex_core.cli.console import abandon, is_full, say, show
from atrex_core.errors import UsageError
from atrex_core.printable import one_line

_HINT = "choose another --output"


def check_output(output: Path | None, journal: Path | None) -> None:
    """Find out before hours of work whether the report can be written, and over what.

    Raises:
        UsageError: `output` is the journal, or cannot be written.
    """
    if output is None:
        return
    if journal is not None and _is_same(output, journal):
        raise UsageError(f"--output {str(output)!r} is the journal itself", hint=_HINT)
    try:
        if output.exists() and stat.S_ISFIFO(output.stat().st_mode):
            return  # opening it would wait for a reader, and closing it would send him away
        with output.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise _unwritable(output, error) from error


def keep_candidates(output: Path | None, paths: Sequence[Path | None]) -> None:
    """Refuse to write the report over what the command reads.

    Args:
        paths: Files, and folders of such files.

    Raises:
        UsageError: `output` is one of them.
    """
    for path in paths:
        if path is None or output is None:
            continue
        files = source_files(path, quiet=True) if path.is_dir() else [path]
        if any(_is_same(output, file) for file in files):
            raise UsageError(f"--output {str(output)!r} is a candidate", hint=_HINT)


def deliver(text: str, output: Path | None, *, otherwise: str) -> None:
    """Write the report to `output`, or print it; print it, too, where it cannot be written.

    A full disk below stdout must not hide the verdict, which the exit code still tells.

    Args:
        otherwise: Where else the results are, or could be.

    Raises:
        UsageError: `output` cannot be written.
    """
    if output is None:
        _print(text, otherwise)
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        _print(text, otherwise)  # nothing found out is lost
        raise _unwritable(output, error) from error


def _print(text: str, otherwise: str) -> None:
    try:
        show(text)
    except OSError as error:
        if not is_full(error):
            raise
        abandon(sys.stdout)
        say(f"error: cannot write the results: {(error.strerror or '').lower()}")
        say(one_line(f"hint: free some space; {otherwise}"))


def _is_same(first: Path, second: Path) -> bool:
    try:
        return first.samefile(second)
    except OSError:  # one of them is still to be written
        return os.path.realpath(first) == os.path.realpath(second)


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot write {str(path)!r}: {(error.strerror or '').lower()}", hint=_HINT)
