"""Processes below one of ours: found, and brought to a standstill for a while."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from attrs import define, field

from atrex_core.processes import linux

_PATIENCE_S = 0.5
_LOOK_S = 0.001
_STOPPED = "TtZX"
"""States in which a process uses no processor, and takes up no work by itself."""


def below(pid: int, *, besides: Collection[int] = ()) -> list[int]:
    """Return every process below `pid`, except some of its children and all that is below them."""
    found: list[int] = []
    for child in linux.children(pid):
        if child not in besides:
            found += [child, *linux.descendants(child)]
    return found


def end_orphans(pid: int, *, besides: Collection[int], within_s: float) -> None:
    """Kill every process below `pid`, which is ours, and reap those that become our children."""
    ends = time.monotonic() + within_s
    while (orphans := below(pid, besides=besides)) and time.monotonic() < ends:
        for orphan in orphans:
            linux.send_quietly(orphan, signal.SIGKILL)
            with suppress(ChildProcessError):  # it is a child of theirs, so far
                os.waitpid(orphan, os.WNOHANG)
        time.sleep(_LOOK_S)


@define(eq=False)
class Standstill:
    """Processes that were stopped, and may run on only when it ends."""

    _ran: Mapping[int, int] = field(factory=dict, alias="ran")
    """Nanoseconds that each had run when it stood still."""
    _moved: tuple[int, ...] = field(default=(), init=False)

    @classmethod
    def of(cls, roots: Iterable[int]) -> Standstill:
        """Stop all that is below the processes `roots`, but not these."""
        roots = tuple(roots)
        ends = time.monotonic() + _PATIENCE_S
        before: set[int] | None = None
        while time.monotonic() < ends:
            found = {pid for root in roots for pid in linux.descendants(root)}
            if found == before and all(_state(pid) in _STOPPED for pid in found):
                break  # and none has forked while it was not stopped yet
            for pid in found:
                linux.send_quietly(pid, signal.SIGSTOP)
            before = found
            time.sleep(_LOOK_S)
        return cls(ran={pid: _ran_ns(pid) for pid in before or ()})

    @property
    def moved(self) -> tuple[int, ...]:
        """Those that somebody has woken, as far as is known when the standstill has ended."""
        return self._moved

    def end(self) -> None:
        """Let them run on."""
        self._moved = tuple(
            pid
            for pid, before in self._ran.items()
            if _ran_ns(pid) > before or _state(pid) not in _STOPPED
        )
        for pid in self._ran:
            linux.send_quietly(pid, signal.SIGCONT)


def _state(pid: int) -> str:
    """Return the letter of a process's state; one that is gone is dead."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"


def _ran_ns(pid: int) -> int:
    """Return how long all threads of a process have run, 0 where the system does not say."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(OSError, ValueError, IndexError):  # it ended while we looked
            total += int(path.read_text().split()[0])
    return total
