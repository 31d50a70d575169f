"""A plugin's turn: what is printed, interrupted or ended while its code runs is its own doing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from atrex_core.plugins.prints import prints_aside

if TYPE_CHECKING:
    from atrex_core.plugins.registry import PluginOrigin

Listener = Callable[[str], None]
"""Told whose turn it is: a plugin, or nobody's, as empty text."""

_listeners: list[Listener] = []
_turns: list[str] = []


class CtrlC(KeyboardInterrupt):
    """The user's own: a signal came. Whoever handles one raises this."""


class FalseInterrupt(Exception):
    """A plugin raised `KeyboardInterrupt` itself."""


def listen(listener: Listener) -> None:
    """Have `listener` told of every turn in this process, before it begins and after it ends."""
    _listeners.append(listener)


@contextmanager
def turn_of(origin: PluginOrigin) -> Iterator[None]:
    """Run a block of a plugin's code.

    Raises:
        FalseInterrupt: it raised `KeyboardInterrupt` though nobody interrupts.
    """
    previous = _turns[-1] if _turns else ""
    _turns.append(str(origin))
    _tell(_turns[-1])
    try:
        with prints_aside(), _telling_interrupts_apart():
            yield
    finally:
        _turns.pop()
        _tell(previous)


@contextmanager
def _telling_interrupts_apart() -> Iterator[None]:
    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if is_ours:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    except KeyboardInterrupt as error:
        if not isinstance(error, CtrlC) and _is_told_apart():
            raise FalseInterrupt("it raised KeyboardInterrupt") from error
        raise
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_told_apart() -> bool:
    return signal.getsignal(signal.SIGINT) in (_interrupt, signal.SIG_IGN)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise CtrlC


def _tell(whose: str) -> None:
    for listener in _listeners:
        listener(whose)
