"""Device time of a call, from events around batches that wait behind a held queue.

A batch is N calls enqueued while the device is held, so that it then runs them back to back
however slow the host is. One sample is the time between the events around the batch, divided
by N.

Precision: an event resolves about 0.5 us, and the events add 1 to 2 us to a batch, that is
less than 0.05 us per call at N = 64. Between two kernels the device idles for about 1 us; that
is part of what a call costs and is included, whereas activity records leave it out.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Final, Protocol

from attrs import define, frozen

from atrex_core import DeviceSamples

METHOD: Final = "events around a held queue"
SYNCHRONISES: Final = "forward synchronises; only call time is known"
OUTLIVES: Final = "work outlives the stream it was launched from"
NO_WORK: Final = "forward puts no work on its stream"

WANTED_SAMPLES: Final = 10
MAX_CALLS: Final = 64
"""A queue takes about 1000 launches before it blocks the host; a call may make several."""
MIN_BATCH_US: Final = 1000.0
MAX_HOLD_S: Final = 1.0
"""Also what a hold wastes when the host that should release it has died."""

_MIN_HOLD_S = 0.05
_HOST_MARGIN = 5
_WARM_CALLS = 6
"""Enough for the caching allocator to own all it needs: asking the driver can wait for the hold."""
_WARM_S = 0.008
"""Long enough for an idle device's clocks to rise."""
_PROBES = 3
_BASELINES = 5
_MAX_MISSES = 14
_LEAST_CALL_US = 0.5
"""An empty kernel takes about 1 us on every device so far."""
_TAIL_US = 25.0
_TAIL_SHARE = 0.05

Call = Callable[[int], None]


@frozen(kw_only=True)
class Batch:
    """What one batch showed."""

    calls: int
    held: bool
    """Whether the device was still held when the last call had been enqueued."""
    slowest: int = 0
    """Which call kept the host longest, counted from 0; all before it fit into the hold."""
    device_us: float
    """Between the events before and after."""
    tail_us: float
    """From the last event until the whole device was idle, by the host's clock."""


class Queue(Protocol):
    """A device that can be held. Each method returns with the device idle."""

    def run_free(self, call: Call, index: int) -> float:
        """Make one call without a hold; return how long it kept the host, in seconds."""
        ...

    def run_held(self, call: Call, *, first: int, calls: int, limit_s: float) -> Batch:
        """Make calls `first`, `first + 1`, ... behind a hold of at most `limit_s`."""
        ...


def measure(
    queue: Queue,
    call: Call,
    *,
    budget_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> DeviceSamples:
    """Return device times of `call`, or the reason why this method cannot have them.

    Indices start at 0 and never repeat. Whatever `call` raises passes through.
    """
    started_s = clock()
    turn = Turn(queue=queue, call=call)
    turn.warm_up(budget_s, clock)
    if 2 * turn.host_s > MAX_HOLD_S:
        return _unmeasured(
            f"one call keeps the host for {turn.host_s:.2f} s, and the device can be held for "
            f"only {MAX_HOLD_S:g} s; only call time is known"
        )
    empty = [_run_empty(queue) for _ in range(_BASELINES)]
    probe = turn.probe()
    if probe is None:
        return _unmeasured(SYNCHRONISES)
    calls = _calls_per_batch(turn.host_s, probe.device_us, budget_s)
    batches: list[Batch] = []
    misses = misses_in_a_row = 0
    while len(batches) < WANTED_SAMPLES and (not batches or clock() - started_s < budget_s):
        batch = turn.run_held(calls)
        if batch.held:
            batches.append(batch)
            misses_in_a_row = 0
            continue
        misses += 1
        misses_in_a_row += 1
        if misses > _MAX_MISSES:
            return _unmeasured(
                f"the host was kept past the hold in {misses} of {misses + len(batches)} batches: "
                "forward synchronises at times; only call time is known"
            )
        # Once can be an interrupt. Twice, and the launches of so many calls overrun the queue:
        # the host is stopped at the first that does not fit.
        if misses_in_a_row > 1:
            calls = batch.slowest if batch.slowest > 0 else max(1, calls // 2)
            misses_in_a_row = 0
    return _judge(batches, empty)


@define(eq=False)
class Turn:
    """One candidate's turn on the device: what to call, with which index, and its pace."""

    queue: Queue
    call: Call
    index: int = 0
    host_s: float = math.inf
    """The least time that a call kept the host."""

    def warm_up(self, budget_s: float, clock: Callable[[], float]) -> None:
        """Call without a hold until allocator and clocks have settled, or half the budget."""
        started_s = clock()
        while True:
            elapsed_s = clock() - started_s
            settled = self.index >= _WARM_CALLS and elapsed_s >= min(_WARM_S, budget_s / 10)
            if settled or (self.index >= 2 and elapsed_s >= budget_s / 2):
                return
            self.host_s = min(self.host_s, self.queue.run_free(self.call, self.index))
            self.index += 1

    def probe(self) -> Batch | None:
        """Run one call behind a hold that outlasts its host work many times over.

        None means that the call waits for the device, since it never comes back before that.
        """
        for attempt in range(_PROBES):
            batch = self.run_held(1, patience=2**attempt)
            if batch.held:
                return batch
        return None

    def can_be_held(self) -> bool:
        """Whether a call comes back before its work is done."""
        return 2 * self.host_s <= MAX_HOLD_S and self.probe() is not None

    def run_free(self) -> None:
        """Make the next call without a hold."""
        self.queue.run_free(self.call, self.index)
        self.index += 1

    def run_held(self, calls: int, *, patience: int = 1) -> Batch:
        """Run the next `calls` calls behind a hold."""
        limit_s = max(_MIN_HOLD_S, _HOST_MARGIN * calls * self.host_s) * patience
        first, self.index = self.index, self.index + calls
        return self.queue.run_held(
            self.call, first=first, calls=calls, limit_s=min(MAX_HOLD_S, limit_s)
        )


def _run_empty(queue: Queue) -> Batch:
    return queue.run_held(_nothing, first=0, calls=0, limit_s=_MIN_HOLD_S)


def _nothing(_index: int) -> None:
    """Stand in for a call where a batch has none."""


def _calls_per_batch(host_s: float, device_us: float, budget_s: float) -> int:
    """Return the fewest calls that fill `MIN_BATCH_US`, as far as hold and budget allow."""
    filling = math.ceil(MIN_BATCH_US / max(device_us, 1e-3))
    holdable = math.floor(MAX_HOLD_S / (2 * max(host_s, 1e-9)))
    call_s = host_s + device_us * 1e-6
    affordable = math.floor(budget_s / (WANTED_SAMPLES * max(call_s, 1e-9)))
    return max(1, min(MAX_CALLS, filling, holdable, affordable))


def _judge(batches: list[Batch], empty: list[Batch]) -> DeviceSamples:
    length_us = statistics.median(batch.device_us for batch in batches)
    tail_us = statistics.median(batch.tail_us for batch in batches)
    usual_tail_us = statistics.median(batch.tail_us for batch in empty)
    # Medians, because one interrupt of the host lengthens one tail.
    if tail_us - usual_tail_us > max(_TAIL_US, _TAIL_SHARE * length_us):
        return _unmeasured(OUTLIVES)
    usual_us = statistics.median(batch.device_us for batch in empty)
    if length_us - usual_us < _LEAST_CALL_US * batches[-1].calls:
        return _unmeasured(NO_WORK)
    return DeviceSamples(
        samples_us=tuple(batch.device_us / batch.calls for batch in batches), method=METHOD
    )


def _unmeasured(reason: str) -> DeviceSamples:
    return DeviceSamples(method=METHOD, reason=reason)
