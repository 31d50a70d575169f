"""Samples of a CPU call: how many, of what, and in how much time."""

from __future__ import annotations

import gc
from collections.abc import Callable
from statistics import median

import pytest
from atrex_accelerator_cpu import timing

from atrex_core import is_settled


class Clock:
    """Time that passes only when a call says so: no other load can make a test late."""

    def __init__(self) -> None:
        self.now_ns = 0

    def read(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def spin(self, seconds: float) -> Callable[[int], None]:
        """Return a call that takes `seconds`."""

        def call(index: int) -> None:
            self.now_ns += round(seconds * 1e9)

        return call

    def waver(self, seconds: float) -> Callable[[int], None]:
        """Return a call that takes up to a fifth more or less: its median never settles."""

        def call(index: int) -> None:
            self.now_ns += round(seconds * (0.8 + 0.4 * (0.618034 * index % 1)) * 1e9)

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timing, "perf_counter_ns", clock.read)
    return clock


def test_samples_are_the_time_of_one_call(clock: Clock) -> None:
    result = timing.sample(clock.spin(2e-3), budget_s=0.1)

    assert min(result.samples_us) == pytest.approx(2000.0, abs=0.01)
    assert result.reason is None
    assert result.method == "perf_counter_ns around each call"


def test_a_real_call_takes_real_time() -> None:
    result = timing.sample(lambda _: sum(range(10_000)), budget_s=0.02)

    assert min(result.samples_us) > 10.0


def test_indices_count_up_through_warm_up_and_samples() -> None:
    seen: list[int] = []

    result = timing.sample(seen.append, budget_s=0.01)

    assert seen == list(range(len(seen)))
    assert len(seen) > len(result.samples_us)


def test_the_first_call_is_not_a_sample(clock: Clock) -> None:
    def call(index: int) -> None:
        clock.spin(20e-3 if index == 0 else 1e-3)(index)

    result = timing.sample(call, budget_s=0.05)

    assert median(result.samples_us) < 20_000.0


def test_the_budget_is_kept_where_the_median_does_not_settle(clock: Clock) -> None:
    timing.sample(clock.waver(1e-3), budget_s=0.2)

    assert 200_000_000 <= clock.now_ns < 202_000_000


def test_sampling_stops_once_the_median_is_settled(clock: Clock) -> None:
    result = timing.sample(clock.spin(1e-3), budget_s=0.2)

    assert is_settled(result.samples_us)
    assert 80_000_000 <= clock.now_ns < 100_000_000


def test_a_median_of_few_milliseconds_is_not_yet_trusted(clock: Clock) -> None:
    """A fast phase of an otherwise slower machine would else be all that is seen."""

    def call(index: int) -> None:
        clock.spin(1e-3 if clock.now_ns < 52_000_000 else 2e-3)(index)

    result = timing.sample(call, budget_s=0.2)

    assert median(result.samples_us) == pytest.approx(2000.0, abs=0.01)


def test_a_slow_call_is_sampled_five_times_all_the_same(clock: Clock) -> None:
    result = timing.sample(clock.spin(8e-3), budget_s=0.01)

    assert len(result.samples_us) == 5


def test_a_call_beyond_the_budget_is_sampled_once_after_its_warm_up(clock: Clock) -> None:
    seen: list[int] = []

    def call(index: int) -> None:
        seen.append(index)
        clock.spin(20e-3)(index)

    result = timing.sample(call, budget_s=0.01)

    assert len(result.samples_us) == 1
    assert seen == [0, 1]


def test_kept_samples_span_the_window_and_are_limited(clock: Clock) -> None:
    moments: list[int] = []

    def call(index: int) -> None:
        clock.waver(1e-5)(index)
        moments.append(clock.now_ns)

    result = timing.sample(call, budget_s=0.1)

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
