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
LEAST_WARM_UP_CALLS = 3


def sample(call: Callable[[int], None], *, budget_s: float) -> DeviceSamples:
    """Time `call(0)`, `call(1)`, ... for about `budget_s` seconds.

    At least `LEAST_SAMPLES` calls are kept, unless the very first one exceeds the budget: then it
    is the only sample. Of more than `MOST_SAMPLES` calls, evenly spaced ones are kept, so that the
    samples cover the whole window. Garbage collection is off meanwhile.
    """
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        return _sample(call, budget_ns=round(budget_s * 1e9))
    finally:
        if collecting:
            gc.enable()


def _sample(call: Callable[[int], None], *, budget_ns: int) -> DeviceSamples:
    began = perf_counter_ns()
    first_ns = _timed_ns(call, 0)
    if first_ns > budget_ns:
        return DeviceSamples(
            samples_us=(first_ns / 1e3,),
            method=f"{METHOD}, once and without warm-up: it exceeds the budget",
        )
    index = 1
    warm_until = began + round(budget_ns * WARM_UP_SHARE)
    while index < LEAST_WARM_UP_CALLS or perf_counter_ns() < warm_until:
        call(index)
        index += 1
    kept: list[int] = []
    stride, taken = 1, 0
    while len(kept) < LEAST_SAMPLES or perf_counter_ns() < began + budget_ns:
        elapsed_ns = _timed_ns(call, index)
        index += 1
        if taken % stride == 0:
            kept.append(elapsed_ns)
        taken += 1
        if len(kept) > MOST_SAMPLES:
            kept, stride = kept[::2], stride * 2
    return DeviceSamples(samples_us=tuple(ns / 1e3 for ns in kept), method=METHOD)


def _timed_ns(call: Callable[[int], None], index: int) -> int:
    start = perf_counter_ns()
    call(index)
    return perf_counter_ns() - start
