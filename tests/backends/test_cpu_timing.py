"""Samples of a CPU call: how many, of what, and in how much time."""

from __future__ import annotations

import gc
from collections.abc import Callable
from statistics import median
from time import perf_counter

import pytest
from atrex_accelerator_cpu import timing


def spin(seconds: float) -> Callable[[int], None]:
    def call(index: int) -> None:
        until = perf_counter() + seconds
        while perf_counter() < until:
            pass

    return call


def test_samples_are_the_time_of_one_call() -> None:
    result = timing.sample(spin(2e-3), budget_s=0.1)

    assert 2000.0 <= min(result.samples_us) < 4000.0
    assert result.reason is None
    assert result.method == "perf_counter_ns around each call"


def test_twice_the_work_takes_twice_as_long() -> None:
    once = min(timing.sample(spin(1e-3), budget_s=0.1).samples_us)
    twice = min(timing.sample(spin(2e-3), budget_s=0.1).samples_us)

    assert twice / once == pytest.approx(2.0, rel=0.2)


def test_indices_count_up_through_warm_up_and_samples() -> None:
    seen: list[int] = []

    result = timing.sample(seen.append, budget_s=0.01)

    assert seen == list(range(len(seen)))
    assert len(seen) > len(result.samples_us)


def test_the_first_call_is_not_a_sample() -> None:
    def call(index: int) -> None:
        spin(20e-3 if index == 0 else 1e-3)(index)

    result = timing.sample(call, budget_s=0.05)

    assert median(result.samples_us) < 20_000.0


def test_the_budget_is_kept() -> None:
    began = perf_counter()

    timing.sample(spin(1e-3), budget_s=0.2)

    assert 0.2 <= perf_counter() - began < 1.0


def test_a_slow_call_is_sampled_five_times_all_the_same() -> None:
    result = timing.sample(spin(8e-3), budget_s=0.01)

    assert len(result.samples_us) == 5


def test_a_call_beyond_the_budget_is_sampled_once_after_its_warm_up() -> None:
    seen: list[int] = []

    def call(index: int) -> None:
        seen.append(index)
        spin(20e-3)(index)

    result = timing.sample(call, budget_s=0.01)

    assert len(result.samples_us) == 1
    assert seen == [0, 1]


def test_kept_samples_span_the_window_and_are_limited() -> None:
    began = perf_counter()
    moments: list[float] = []

    result = timing.sample(lambda _: moments.append(perf_counter() - began), budget_s=0.1)

    assert len(moments) > 4 * timing.MOST_SAMPLES
    assert timing.MOST_SAMPLES // 2 <= len(result.samples_us) <= timing.MOST_SAMPLES


def test_garbage_is_not_collected_meanwhile() -> None:
    collecting: list[bool] = []

    timing.sample(lambda _: collecting.append(gc.isenabled()), budget_s=0.001)

    assert not any(collecting)
    assert gc.isenabled()


def test_a_failing_call_turns_collection_on_again() -> None:
    def call(index: int) -> None:
        raise RuntimeError("no such kernel")

    with pytest.raises(RuntimeError, match="no such kernel"):
        timing.sample(call, budget_s=0.1)

    assert gc.isenabled()
