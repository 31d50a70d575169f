"""What a command says and leaves when it is told to stop: by Ctrl-C, or by SIGTERM."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import click

from atrex_core.errors import AtrexError, ExitCode
from atrex_core.plugins.turn import CtrlC

_RESUMES = "what is in the journal is kept; --resume goes on from there"
_ENDS = "run the command again"
_CHOSEN, _HINT = f"{__name__}.chosen", f"{__name__}.hint"
"""Keys of what a context remembers."""


class Interrupted(AtrexError):
    """Ctrl-C, as an error like the others: click would print an empty line first."""

    exit_code = ExitCode.INTERRUPTED

    def __init__(self, hint: str = _ENDS) -> None:
        super().__init__("interrupted", hint=hint)


def remember(ctx: click.Context, command: click.Command | None, rest: Sequence[str]) -> None:
    """Note which command is about to run; `rest` is what follows its name."""
    while isinstance(command, click.Group) and rest:
        command, rest = command.commands.get(rest[0]), rest[1:]
    ctx.meta[_CHOSEN] = command


def interrupted(ctx: click.Context) -> Interrupted:
    """Return the error of a command that was interrupted, with a hint that is true of it."""
    command: click.Command | None = ctx.meta.get(_CHOSEN)
    resumes = command is not None and any(param.name == "resume" for param in command.params)
    return Interrupted(ctx.meta.get(_HINT, _RESUMES if resumes else _ENDS))


@contextmanager
def stoppable(hint: str) -> Iterator[None]:
    """Take SIGTERM for Ctrl-C meanwhile, so that what was begun is cleaned up.

    Args:
        hint: What is true of the command when it was interrupted.
    """

    def stop(_number: int, _frame: object) -> NoReturn:
        raise CtrlC

    click.get_current_context().meta[_HINT] = hint
    earlier = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)
