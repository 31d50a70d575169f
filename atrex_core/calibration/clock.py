"""Times for a calibration: each by the clock that candidates are timed with, three times over."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Final

from attrs import define, field, frozen

from atrex_core.errors import Unavailable
from atrex_core.interfaces import DeviceContext, QueueGate
from atrex_core.model.calibration import NO_TIME, Measured
from atrex_core.precision import interval_us
from atrex_core.processes.gate import GateWords, wait_for

REPETITIONS: Final = 3
_MOST_SAMPLES: Final = 64
"""Kept of each repetition."""
_SLOPES: Final = 9
_SLOPE_S: Final = 0.01
_MOST_CALLS: Final = 10_000
_PILOT_CALLS: Final = 16
_HELD_CALLS: Final = 64
"""A queue takes about 1000 launches."""
_HELD_LIMIT_S: Final = 10.0

Operation = Callable[[], object]


class Unmeasured(Exception):
    """A figure cannot be had; the message says why."""


@frozen(kw_only=True)
class Times:
    """Samples of one operation, in microseconds, for each repetition."""

    samples_us: tuple[tuple[float, ...], ...]
    method: str

    def as_time(self) -> Measured:
        """Return the time itself, in microseconds."""
        middle, low, high = self._middle_us()
        return self._measured(middle, low, high)

    def as_rate(self, amount: float) -> Measured:
        """Return how much of `amount` is done in a second."""
        middle, low, high = self._middle_us()
        return self._measured(*(amount / us * 1e6 for us in (middle, high, low)))

    def _middle_us(self) -> tuple[float, float, float]:
        middles = [median(samples) for samples in self.samples_us]
        intervals = [_interval_us(samples) for samples in self.samples_us]
        return median(middles), min(low for low, _ in intervals), max(h for _, h in intervals)

    def _measured(self, value: float, low: float, high: float) -> Measured:
        kept = tuple(_thinned(samples) for samples in self.samples_us)
        return Measured(value=value, low=low, high=high, samples_us=kept, method=self.method)


@define(eq=False)
class Clock:
    """The clocks of one device, for as long as there is time."""

    context: DeviceContext
    budget_s: float
    """For one round of samples."""
    ends_s: float
    """When no further figure is begun, by `now`."""
    now: Callable[[], float] = time.perf_counter
    _words: GateWords | None = field(default=None, init=False)
    """Kept: a device may hold on to the page that they lie in."""

    def check_time(self) -> None:
        """Raise `Unmeasured` once the time is spent."""
        if self.now() >= self.ends_s:
            raise Unmeasured(NO_TIME)

    def times(self, operation: Operation) -> Times:
        """Time one operation by the device's own clock."""

        def call(_index: int) -> None:
            operation()

        return self._repeated(lambda: self._samples(call))

    def warm_times(self, operation: Operation, *, few: int, many: int) -> Times:
        """Time an operation that finds in the cache what the one before it left there.

        The device's clock starts each call with cold caches. So two calls are timed, of `few` and
        of `many` operations: what the latter takes longer is warm.
        """

        def repeat(count: int) -> Callable[[int], None]:
            def call(_index: int) -> None:
                for _ in range(count):
                    operation()

            return call

        def differences() -> tuple[tuple[float, ...], str]:
            short, _ = self._samples(repeat(few))
            long, method = self._samples(repeat(many))
            base_us = median(short)
            found = tuple((us - base_us) / (many - few) for us in long)
            return found, f"{method}; slope between {few} and {many} operations a call"

        return self._repeated(differences)

    def call_times(self, operation: Operation) -> Times:
        """Time back-to-back calls by the host's wall clock: the slope between N and 2N."""

        def wall_s(calls: int) -> float:
            self.context.synchronize()
            started_s = self.now()
            for _ in range(calls):
                operation()
            self.context.synchronize()
            return self.now() - started_s

        def slopes() -> tuple[tuple[float, ...], str]:
            once_s = wall_s(_PILOT_CALLS) / _PILOT_CALLS
            calls = int(min(_MOST_CALLS, max(_PILOT_CALLS, _SLOPE_S / max(once_s, 1e-7))))
            return _slopes_us(wall_s, calls), "wall time, slope between N and 2N calls"

        return self._repeated(slopes)

    def held_times(self, operation: Operation) -> Times:
        """Time calls that wait in a queue: the slope between N and 2N, from release to end."""
        words = self._words = GateWords(mmap.mmap(-1, mmap.PAGESIZE))
        try:
            gate = self.context.open_gate(*words.addresses)
        except Unavailable as error:
            raise Unmeasured(str(error)) from error
        if gate.blocks_host:
            raise Unmeasured("this device has no queue that could be held")
        held = _HeldRounds(self, words, gate, operation)
        method = "held queue, slope between N and 2N calls"
        return self._repeated(lambda: (_slopes_us(held.wall_s, _HELD_CALLS), method))

    def _samples(self, call: Callable[[int], None]) -> tuple[tuple[float, ...], str]:
        found = self.context.sample(call, budget_s=self.budget_s)
        if not found.samples_us:
            raise Unmeasured(found.reason or "the device's clock gave no samples")
        return found.samples_us, found.method

    def _repeated(self, once: Callable[[], tuple[tuple[float, ...], str]]) -> Times:
        found: list[tuple[float, ...]] = []
        method = ""
        for _ in range(REPETITIONS):
            samples, method = once()
            if _interval_us(samples)[0] <= 0:
                raise Unmeasured("the times scatter by more than there is to measure")
            found.append(samples)
        return Times(samples_us=tuple(found), method=method)


@define(eq=False)
class _HeldRounds:
    clock: Clock
    words: GateWords
    gate: QueueGate
    operation: Operation
    epoch: int = 0

    def wall_s(self, calls: int) -> float:
        self.epoch += 1
        self.clock.context.synchronize()
        self.gate.hold(self.epoch)
        try:
            for _ in range(calls):
                self.operation()
            self.gate.mark(self.epoch)
        finally:
            started_s = self.clock.now()
            self.words.release(self.epoch)
        if not wait_for(
            lambda: self.words.is_finished(self.epoch), limit_s=_HELD_LIMIT_S, spin_s=_HELD_LIMIT_S
        ):
            raise Unmeasured(f"the queue did not end within {_HELD_LIMIT_S:g} s of its release")
        return self.clock.now() - started_s


def _slopes_us(wall_s: Callable[[int], float], calls: int) -> tuple[float, ...]:
    wall_s(calls)
    found = []
    for _ in range(_SLOPES):
        single_s = wall_s(calls)
        found.append((wall_s(2 * calls) - single_s) / calls * 1e6)
    return tuple(found)


def _interval_us(samples: Sequence[float]) -> tuple[float, float]:
    """Return the interval of the median; of few samples, their extremes."""
    return interval_us(samples) or (min(samples), max(samples))


def _thinned(samples: Sequence[float]) -> tuple[float, ...]:
    """Return evenly spaced samples where there are many."""
    count = len(samples)
    if count <= _MOST_SAMPLES:
        return tuple(samples)
    return tuple(samples[index * count // _MOST_SAMPLES] for index in range(_MOST_SAMPLES))
