"""Where words go: results to stdout, everything else to stderr, whatever became of the two."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

_PIPE_WIDTH = 240
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def show(text: str | bytes) -> None:
    """Print results. A reader who has seen enough is no error, and changes no exit code.

    Raises:
        OSError: what stdout leads to is full or failing.
    """
    try:
        click.echo(text)
    except BrokenPipeError:
        abandon(sys.stdout)


def say(text: str) -> None:
    """Print a remark. Where stderr takes no more, it is lost: results matter more."""
    with suppress(OSError, ValueError):
        click.echo(text, err=True)


def rendered(part: RenderableType) -> str:
    """Return a table as text for stdout: in a pipe, as wide as it needs to be."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    console = Console(file=sys.stdout, width=width, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(part)
    return capture.get().rstrip("\n")


def is_full(error: BaseException) -> bool:
    """Return whether `error` says that there is no room for what was written."""
    return isinstance(error, OSError) and error.errno in _FULL


def reader_is_gone() -> bool:
    """Return whether stdout is a pipe that nobody reads any more."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def make_usable() -> None:
    """Replace standard streams that were closed, so that no file of ours takes their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
        if getattr(sys, name) is None:
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - lives as long as we do
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a file's name need not be text in any encoding
            stream.reconfigure(errors="backslashreplace")


def settle() -> None:
    """Flush what is left while a failure can still be ignored: at exit it changes the code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            abandon(stream)


def abandon(stream: IO[str]) -> None:
    """Let nothing more be flushed to a stream that takes no more."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
        stream.flush()
