"""The page through which a referee holds, releases and clocks a worker's queue.

Each word stands on a cache line of its own, behind the byte that says what the worker is doing.
A worker can write all of them: what a word says is a claim, except where the referee alone could
have made it come true, by writing the inputs that the outputs are checked against.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable
from typing import Final

from attrs import define, field

from atrex_core.interfaces import QueueGate

_RELEASED: Final = 64
_FINISHED: Final = 128
_ARMED: Final = 192
_IDLE_S = 20e-6
_SPIN_S = 2e-3
"""How long to look without a break; after that, whoever waits leaves the processor to others."""
_MOST_S = 60.0


@define(eq=False)
class GateWords:
    """Three counters in shared memory. An epoch is a number that both sides count up to."""

    _memory: mmap.mmap
    _released: ctypes.c_uint32 = field(init=False)
    _finished: ctypes.c_uint32 = field(init=False)
    _armed: ctypes.c_uint32 = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._released = ctypes.c_uint32.from_buffer(self._memory, _RELEASED)
        self._finished = ctypes.c_uint32.from_buffer(self._memory, _FINISHED)
        self._armed = ctypes.c_uint32.from_buffer(self._memory, _ARMED)

    @property
    def addresses(self) -> tuple[int, int]:
        """Where the words for release and for the end lie in this process."""
        return ctypes.addressof(self._released), ctypes.addressof(self._finished)

    def arm(self, epoch: int) -> None:
        """Say that everything is enqueued. Worker side."""
        self._armed.value = epoch

    def release(self, epoch: int) -> None:
        """Let the queue go. Referee side."""
        self._released.value = epoch

    def is_armed(self, epoch: int) -> bool:
        """Whether the worker says that everything is enqueued."""
        return self._armed.value == epoch

    def is_finished(self, epoch: int) -> bool:
        """Whether the worker's device says that everything is done."""
        return self._finished.value == epoch


class HostGate(QueueGate):
    """A gate for devices on which a call returns only when its work is done."""

    blocks_host = True

    def __init__(self, released_address: int, finished_address: int) -> None:
        """Look at the words at these addresses, which stay mapped."""
        self._released = ctypes.c_uint32.from_address(released_address)
        self._finished = ctypes.c_uint32.from_address(finished_address)

    def hold(self, epoch: int) -> None:
        """Wait, for a minute at most."""
        wait_for(lambda: self._released.value >= epoch, limit_s=_MOST_S, spin_s=_MOST_S)

    def mark(self, epoch: int) -> None:
        """Write the word."""
        self._finished.value = epoch


def wait_for(happened: Callable[[], bool], *, limit_s: float, spin_s: float = _SPIN_S) -> bool:
    """Look until something has happened, or for `limit_s`; return whether it has."""
    now = time.perf_counter()
    spins_until, ends = now + spin_s, now + limit_s
    while not happened():
        now = time.perf_counter()
        if now >= ends:
            return happened()
        if now >= spins_until:
            time.sleep(_IDLE_S)
    return True
