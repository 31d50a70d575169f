"""Device time on a CPU: the wall time of one call, which returns only when its work is done."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter_ns

from atrex_core import DeviceSamples

METHOD = "perf_counter_ns around each call"
LEAST_SAMPLES = 5
MOST_SAMPLES = 1000
WARM_UP_SHARE = 0.2
"""Share of the budget that is spent before anything is kept."""


def sample(call: Callable[[int], None], *, budget_s: float) -> DeviceSamples:
    """Time `call(0)`, `call(1)`, ... for about `budget_s` seconds, after a warm-up.

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
    stride, taken, elapsed = 1, 0, 0
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
    return kept


def _warm_up(call: Callable[[int], None], *, until: int) -> int:
    """Make the first call, then more until the clock reads `until`; return how many."""
    count = 0
    while count == 0 or perf_counter_ns() < until:
        call(count)
        count += 1
    return count
