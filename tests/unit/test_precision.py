"""The interval of a median, from order statistics."""

from __future__ import annotations

import math
import random

import pytest

from atrex_core.precision import half_width_us, is_settled


@pytest.mark.parametrize("count", range(6))
def test_few_samples_say_nothing(count: int) -> None:
    assert half_width_us([10.0] * count) == math.inf
    assert not is_settled([10.0] * count)


def test_six_samples_reach_from_the_least_to_the_most() -> None:
    assert half_width_us([4.0, 1.0, 6.0, 2.0, 5.0, 3.0]) == 2.5


def test_hundred_samples_leave_out_the_tails() -> None:
    # 50 -+ 0.98 * sqrt(100): the 41st and the 60th, from 1 up.
    assert half_width_us([float(i) for i in range(1, 101)]) == pytest.approx((60 - 41) / 2)


def test_one_outlier_among_many_changes_nothing() -> None:
    calm = [10.0 + 0.01 * (i % 5) for i in range(60)]

    assert half_width_us([*calm, 5000.0]) == pytest.approx(half_width_us(calm), abs=0.01)


@pytest.mark.parametrize(
    ("middle_us", "spread_us", "settled"),
    [
        pytest.param(1000.0, 4.9, True, id="half a percent of a long call"),
        pytest.param(1000.0, 5.1, False, id="more than that"),
        pytest.param(2.0, 0.049, True, id="0.05 us of a short call"),
        pytest.param(2.0, 0.051, False, id="more than that, too"),
    ],
)
def test_boundaries(middle_us: float, spread_us: float, settled: bool) -> None:
    samples = [middle_us - spread_us] * 3 + [middle_us + spread_us] * 3

    assert is_settled(samples) is settled


def test_the_interval_holds_the_median_nineteen_times_in_twenty() -> None:
    drawn = random.Random(7)
    hits = 0
    for _ in range(1000):
        samples = sorted(drawn.expovariate(1.0) for _ in range(40))
        reach = 1.96 * math.sqrt(40) / 2
        low, high = samples[math.floor(20 - reach)], samples[math.ceil(20 + reach) - 1]
        assert half_width_us(samples) == pytest.approx((high - low) / 2)
        hits += low <= math.log(2) <= high

    assert 930 <= hits <= 985
