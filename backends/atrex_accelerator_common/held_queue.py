"""The held queue on a real device."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

from atrex_accelerator_common.timing import Batch, Call

Event = Any
"""An event handle of a driver."""


class EventDriver(Protocol):
    """A driver that keeps the time on a stream. Each method raises an error of its own."""

    def event(self) -> Event:
        """Return an event that keeps the time."""
        ...

    def record(self, event: Event, stream: int) -> None:
        """Enqueue `event` on `stream`."""
        ...

    def has_happened(self, event: Event) -> bool:
        """Return whether the device has reached `event`."""
        ...

    def wait(self, event: Event) -> None:
        """Return once the device has reached `event`."""
        ...

    def elapsed_us(self, start: Event, end: Event) -> float:
        """Return the device time between two events."""
        ...


class Holder(Protocol):
    """What keeps a stream back."""

    def start(self, stream: int, limit_s: float) -> None:
        """Keep back what is enqueued from now on, until `release`, or for `limit_s` at most."""
        ...

    def release(self) -> None:
        """Let it run."""
        ...


class HeldQueue:
    """Runs calls on the stream that is current when a batch starts."""

    def __init__(
        self,
        driver: EventDriver,
        hold: Holder,
        *,
        current_stream: Callable[[], int],
        synchronize: Callable[[], None],
    ) -> None:
        """Warm the hold up and create the events, so that no batch pays for it."""
        self._driver = driver
        self._hold = hold
        self._current_stream = current_stream
        self._synchronize = synchronize
        self._start = driver.event()
        self._end = driver.event()
        self._hold.start(current_stream(), limit_s=0.0)
        self._hold.release()
        self._synchronize()

    def run_free(self, call: Call, index: int) -> float:
        """Make one call without a hold; return how long it kept the host, in seconds."""
        began_s = time.perf_counter()
        call(index)
        kept_s = time.perf_counter() - began_s
        self._synchronize()
        return kept_s

    def run_held(self, call: Call, *, first: int, calls: int, limit_s: float) -> Batch:
        """Make calls `first`, `first + 1`, ... behind a hold of at most `limit_s`."""
        stream = self._current_stream()
        self._hold.start(stream, limit_s)
        try:
            self._driver.record(self._start, stream)
            times_s = [time.perf_counter()]
            for index in range(first, first + calls):
                call(index)
                times_s.append(time.perf_counter())
            self._driver.record(self._end, stream)
            held = not self._driver.has_happened(self._start)
        finally:
            self._hold.release()
        self._driver.wait(self._end)
        ended_s = time.perf_counter()
        self._synchronize()
        tail_s = time.perf_counter() - ended_s
        kept_s = [after - before for before, after in pairwise(times_s)]
        return Batch(
            calls=calls,
            held=held,
            slowest=kept_s.index(max(kept_s)) if kept_s else 0,
            device_us=self._driver.elapsed_us(self._start, self._end),
            tail_us=tail_s * 1e6,
        )
