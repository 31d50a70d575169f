"""Conditions that make a time doubtful, and how they are kept."""

from __future__ import annotations

from typing import Any

import pytest

from atrex_core import Conditions, ThrottleReason, Timing, TimingConditions, codec
from atrex_core.referee import conditions
from atrex_core.referee.clocks import Settled

FULL_SPEED: dict[str, Any] = {"clock_mhz": 1980.0, "throttle_reasons": ()}


def raised(before: dict[str, Any], after: dict[str, Any]) -> tuple[str, ...]:
    found = TimingConditions(
        before=Conditions(**{**FULL_SPEED, **before}), after=Conditions(**{**FULL_SPEED, **after})
    )
    return conditions.flags(found)


def test_a_device_at_full_speed_raises_no_flag() -> None:
    assert raised({}, {}) == ()


@pytest.mark.parametrize(
    "reason",
    [
        ThrottleReason.POWER_CAP,
        ThrottleReason.POWER_BRAKE,
        ThrottleReason.THERMAL,
        ThrottleReason.HARDWARE_THERMAL,
        ThrottleReason.HARDWARE,
    ],
)
def test_a_slowdown_after_timing_is_throttled(reason: ThrottleReason) -> None:
    assert raised({}, {"throttle_reasons": (reason,)}) == ("throttled",)
    assert raised({"throttle_reasons": (reason,)}, {}) == ()


@pytest.mark.parametrize(
    "reason",
    [
        ThrottleReason.IDLE,
        ThrottleReason.CLOCK_SETTING,
        ThrottleReason.SYNCHRONISED,
        ThrottleReason.OTHER,
    ],
)
def test_what_is_no_slowdown_is_not_throttled(reason: ThrottleReason) -> None:
    assert raised({}, {"throttle_reasons": (reason,)}) == ()


@pytest.mark.parametrize(("before", "after"), [(1, 0), (0, 2), (1, 1)])
def test_company_before_or_after_is_a_shared_device(before: int, after: int) -> None:
    found = raised({"other_processes": before}, {"other_processes": after})

    assert found == ("shared_device",)


def test_no_company_and_unknown_company_raise_nothing() -> None:
    assert raised({"other_processes": 0}, {"other_processes": 0}) == ()
    assert raised({"other_processes": None}, {"other_processes": None}) == ()


@pytest.mark.parametrize(
    ("after_mhz", "expected"),
    [
        (1980.0 * 0.951, ()),
        (1980.0 * 0.949, ("clock_drift",)),
        (1980.0 / 0.949, ("clock_drift",)),
        (1980.0 / 0.951, ()),
    ],
)
def test_a_clock_drifts_by_more_than_five_percent(
    after_mhz: float, expected: tuple[str, ...]
) -> None:
    assert raised({}, {"clock_mhz": after_mhz}) == expected


@pytest.mark.parametrize(
    "unusable",
    [{"throttle_reasons": (ThrottleReason.IDLE,)}, {"throttle_reasons": None}, {"clock_mhz": None}],
)
def test_a_clock_that_may_be_idle_is_not_compared(unusable: dict[str, Any]) -> None:
    assert raised({"clock_mhz": 345.0, **unusable}, {}) == ()
    assert raised({}, {"clock_mhz": 345.0, **unusable}) == ()


def test_flags_are_added_to_those_of_the_clocks() -> None:
    settled = Settled(
        timing=Timing(device_us=1.0, call_us=2.0, method="m"), flags=("unstable",), caught_by="c"
    )
    before, after = Conditions(clock_mhz=1980.0), Conditions(other_processes=1)

    found = conditions.noted(settled, before, after)

    assert found.flags == ("unstable", "shared_device")
    assert found.timing.conditions == TimingConditions(before=before, after=after)
    assert found.timing.device_us == 1.0
    assert found.caught_by == "c"


def test_a_device_that_tells_nothing_has_no_conditions() -> None:
    settled = Settled(timing=Timing(device_us=1.0, call_us=2.0, method="m"))

    assert conditions.noted(settled, None, None) == settled


def test_conditions_survive_the_journals_json() -> None:
    before = Conditions(
        **FULL_SPEED, power_w=412.5, performance_state="P0", other_processes=0, threads=None
    )
    after = Conditions(throttle_reasons=(ThrottleReason.POWER_CAP,), reason="power_w: no")
    timing = Timing(
        device_us=1.0,
        call_us=2.0,
        method="m",
        conditions=TimingConditions(before=before, after=after),
    )

    text = codec.dumps(timing)

    assert codec.loads(text, Timing) == timing
    assert codec.parse(text)["conditions"]["after"]["throttle_reasons"] == ["power_cap"]


def test_a_timing_without_conditions_is_still_read() -> None:
    text = '{"device_us": 1.0, "call_us": 2.0, "method": "m"}'

    assert codec.loads(text, Timing).conditions is None
