"""Device time on a CPU: the wall time of one call, which returns only when its work is done.

Meanwhile each thread of the worker has a CPU of its own (`threads`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter_ns

from atrex_core import DeviceSamples, is_settled

METHOD = "perf_counter_ns around each call"
LEAST_SAMPLES = 5
MOST_SAMPLES = 1000
WARM_UP_SHARE = 0.2
"""Share of the budget that is spent before anything is kept."""
LEAST_SHARE = 0.2
"""Share of the budget over which samples are taken at least: neighbours in time are alike, so that
the median of few milliseconds seems to be known better than it is."""
_LOOK_EVERY = 1.25
"""By how much the samples grow before they are looked at again, which takes sorting them."""


def sample(call: Callable[[int], None], *, budget_s: float) -> DeviceSamples:
    """Time `call(0)`, `call(1)`, ... until the median is settled or `budget_s` seconds are spent.

    A warm-up, part of the budget, comes first.

    At least `LEAST_SAMPLES` calls are kept, unless a single one exceeds the budget: then it is the
    last. Of more than `MOST_SAMPLES`, evenly spaced ones are kept, so that the samples cover the
    whole window. Garbage collection is off meanwhile.
    """
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        return DeviceSamples(
            samples_us=tuple(ns / 1e3 for ns in _sample_ns(call, round(budget_s * 1e9))),
            method=METHOD,
        )
    finally:
        if collecting:
            gc.enable()


def _sample_ns(call: Callable[[int], None], budget_ns: int) -> list[int]:
    began = perf_counter_ns()
    index = _warm_up(call, until=began + round(budget_ns * WARM_UP_SHARE))
    kept: list[int] = []
    stride, taken, elapsed, look_at = 1, 0, 0, LEAST_SAMPLES
    earliest = perf_counter_ns() + round(budget_ns * LEAST_SHARE)
    while perf_counter_ns() < began + budget_ns or (
        len(kept) < LEAST_SAMPLES and elapsed <= budget_ns
    ):
        start = perf_counter_ns()
        call(index + taken)
        elapsed = perf_counter_ns() - start
        if taken % stride == 0:
            kept.append(elapsed)
        taken += 1
        if len(kept) > MOST_SAMPLES:
            kept, stride = kept[::2], stride * 2
        if taken >= look_at and perf_counter_ns() >= earliest:
            if is_settled([ns / 1e3 for ns in kept]):
                break
            look_at = round(taken * _LOOK_EVERY) + 1
    return kept


def _warm_up(call: Callable[[int], None], *, until: int) -> int:
    """Make the first call, then more until the clock reads `until`; return how many."""
    count = 0
    while count == 0 or perf_counter_ns() < until:
        call(count)
        count += 1
    return count
