"""Times that beat their bounds: looked at twice, then withheld with the likely causes in order."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from atrex_core import (
    ArithmeticPath,
    Bound,
    Ceiling,
    Confidence,
    Cost,
    Device,
    DeviceMatch,
    Figure,
    HardwareProfile,
    Limiter,
    Outcome,
    Protocol,
    Timing,
    roofline,
)
from atrex_core.referee import verdicts
from atrex_core.referee.roof import Measurement, looked_again

FP32, BF16 = ArithmeticPath.FP32_VECTOR, ArithmeticPath.BF16_MATRIX
DEVICE = Device(id="gpu:0", accelerator="gpu", vendor="acme", name="Anvil 2", arch="anvil2")
PROFILE = HardwareProfile(
    name="anvil-2",
    match=DeviceMatch(vendor="acme", names=("Anvil 2",)),
    peak_flops={
        path: Figure(value=1e12, source="a sheet", confidence=Confidence.HIGH)
        for path in (FP32, BF16)
    },
    bandwidth_bytes_per_s=Figure(value=1e12, source="a sheet", confidence=Confidence.HIGH),
)
BOUND = Bound(t_sol_us=10.0, limiter=Limiter.MEMORY, ceiling=Ceiling.SPEC)
ORDER = [
    *("work_elsewhere", "constant_inputs", "cache_resident", "work_overcounted"),
    *("profile_too_small", "lower_precision", "timer_resolution"),
]


def timing(device_us: float = 5.0, call_us: float = 20.0, held_us: float | None = None) -> Timing:
    return Timing(device_us=device_us, call_us=call_us, held_us=held_us, method="records")


def seen(**changes: Any) -> roofline.Evidence:
    """Return evidence with nothing for any cause, but for what the test changes."""
    fields: dict[str, Any] = {
        "bound": BOUND,
        "cost": Cost(flops={FP32: 1e6}, read_bytes=9e6, write_bytes=1e6),
        "profile": PROFILE,
        "device": DEVICE,
        "protocol": Protocol.STRICT,
        "timings": (timing(), timing()),
        "rotated_bytes": 10**9,
        "last_level_cache_bytes": 10**6,
        "half_width_us": 0.01,
        "launches": 1,
        "relative_l2": {"out": 1e-3},
        "relative_l2_honest": {"out": 1e-3},
    }
    return roofline.Evidence(**{**fields, **changes})


def speaks_for(evidence: roofline.Evidence) -> dict[str, tuple[str, ...]]:
    return {c.name: c.speaks_for for c in roofline.causes(evidence) if c.speaks_for}


def test_causes_come_in_the_order_to_check_them_in() -> None:
    found = roofline.causes(seen())

    assert [cause.name for cause in found] == ORDER
    assert speaks_for(seen()) == {}
    assert all(cause.speaks_against for cause in found)
    assert roofline.leading(found).name == "work_elsewhere"


SLOW_SHEET = evolve(PROFILE, match=DeviceMatch(vendor="file", names=("mine",)))
ENVELOPE = evolve(PROFILE, ceiling=Ceiling.MEASURED)
DOUBTED = evolve(PROFILE, bandwidth_bytes_per_s=Figure(value=1e12, source="a rumour"))
MATRIX = evolve(BOUND, limiter=Limiter.MATRIX)


@pytest.mark.parametrize(
    ("changes", "cause", "words"),
    [
        ({"flags": frozenset({"clock_disputed"})}, "work_elsewhere", "claimed less"),
        ({"flags": frozenset({"clock_unchecked"})}, "work_elsewhere", "could not check"),
        ({"launches": 0}, "work_elsewhere", "none of the target DSL's kernels"),
        ({"timings": (timing(held_us=5.0), timing(held_us=11.0))}, "work_elsewhere", "it is 11 us"),
        ({"constant_inputs": ("x", "w")}, "constant_inputs", "equal in x, w"),
        ({"rotated_bytes": 10**6}, "cache_resident", "rotate through 1e+06 bytes only"),
        ({"last_level_cache_bytes": None}, "cache_resident", "not known"),
        ({"flags": frozenset({"warm"})}, "cache_resident", "flagged warm"),
        (
            {"cost": Cost(flops={}, read_bytes=4e6, write_bytes=6e6), "rotated_bytes": 10**9}
            | {"last_level_cache_bytes": 6 * 10**6},
            "cache_resident",
            "6e+06 bytes written may still be in the cache",
        ),
        ({"protocol": Protocol.PAPER}, "work_overcounted", "as published"),
        ({"profile": SLOW_SHEET}, "profile_too_small", "does not describe 'Anvil 2'"),
        ({"profile": ENVELOPE}, "profile_too_small", "what was measured here"),
        ({"profile": DOUBTED}, "profile_too_small", "of medium confidence"),
        (
            {"bound": evolve(BOUND, t_sol_measured_us=8.0)},
            "profile_too_small",
            "reached 1.25 times the profile",
        ),
        (
            {"bound": MATRIX, "relative_l2": {"out": 4e-3}},
            "lower_precision",
            "error 0.004, an honest one's 0.001",
        ),
        (
            {"timings": (timing(9.6),) * 2, "last_level_cache_bytes": 100},
            "timer_resolution",
            "0.4 us below the bound",
        ),
        ({"half_width_us": 6.0}, "timer_resolution", "known to 6 us"),
        ({"flags": frozenset({"unstable"})}, "timer_resolution", "unstable"),
    ],
)
def test_what_speaks_for_a_cause(changes: dict[str, Any], cause: str, words: str) -> None:
    found = speaks_for(seen(**changes))

    assert list(found) == [cause]
    assert any(words in said for said in found[cause])


def test_a_cause_that_nothing_contradicts_leads() -> None:
    doubtful = seen(flags=frozenset({"clock_disputed"}), profile=SLOW_SHEET)
    agreed = evolve(
        doubtful, profile=evolve(SLOW_SHEET, bandwidth_bytes_per_s=Figure(value=1, source="x"))
    )

    assert roofline.leading(roofline.causes(doubtful)).name == "work_elsewhere"
    assert roofline.leading(roofline.causes(agreed)).name == "profile_too_small"


def test_the_rates_that_such_a_time_takes() -> None:
    evidence = seen(cost=Cost(flops={FP32: 6e6, BF16: 1e6}, read_bytes=10e6, write_bytes=0.0))

    assert roofline.needed(evidence) == pytest.approx({"bandwidth": 2.0, "fp32_vector": 1.2})


# -- looking twice -----------------------------------------------------------------------------


def measured(found: Timing, **changes: Any) -> Measurement:
    share = roofline.share(BOUND, found)
    return Measurement(
        timing=found,
        bound=BOUND,
        unbounded_reason=None,
        share=share,
        flags=roofline.flags(share),
        gap=roofline.gap(BOUND, found),
        cost=Cost(flops={}, read_bytes=1e7, write_bytes=0.0),
        **changes,
    )


def test_a_time_that_does_not_repeat_is_explained() -> None:
    found = looked_again(measured(timing(5.0)), measured(timing(12.0)))

    assert not found.is_violation
    assert found.timing.device_us == 12.0
    assert found.flags == ("remeasured",)
    assert found.remeasured is not None
    assert found.remeasured["explained"] == "the time did not repeat on other inputs"
    assert [look["device_us"] for look in found.remeasured["measurements"]] == [5.0, 12.0]
    assert verdicts.performance(found, errors={}).outcome is Outcome.PASSED


def test_where_only_the_process_beats_the_bound_the_referees_clock_counts() -> None:
    found = looked_again(measured(timing(5.0)), measured(timing(5.0, held_us=12.5)))

    assert not found.is_violation
    assert (found.timing.device_us, found.timing.method) == (
        12.5,
        "held queue, by the referee's clock",
    )
    assert found.share is not None
    assert found.share.device == pytest.approx(0.8)
    assert found.gap is not None
    assert found.gap.device_us == pytest.approx(2.5)
    assert found.flags == ("remeasured", "clock_disputed")
    assert found.caught_by == "roofline"
    assert found.remeasured is not None
    assert "by the referee's clock it is 12.5 us" in found.remeasured["explained"]


@pytest.mark.parametrize(
    "second",
    [timing(5.0), timing(5.0, held_us=8.0), timing(12.0, call_us=7.0, held_us=12.0)],
    ids=["unchecked", "both clocks", "by wall time"],
)
def test_what_beats_the_bound_twice_stays_a_violation(second: Timing) -> None:
    found = looked_again(measured(timing(5.0)), measured(second))

    assert found.is_violation
    assert found.timing == second
    assert set(found.flags) == {"roofline_violation", "remeasured"}
    assert found.remeasured is not None
    assert found.remeasured["explained"] is None


def test_the_gate_withholds_a_violation_and_says_what_to_check() -> None:
    twice = looked_again(measured(timing(5.0)), measured(timing(5.0)))
    evidence = evolve(seen(profile=SLOW_SHEET), relative_l2={}, relative_l2_honest={})
    errors = {"relative_l2": {"out": 1e-3}, "relative_l2_honest": {"out": 1e-3}}
    found = verdicts.performance(evolve(twice, evidence=evidence), errors=errors, launches=2)

    assert found.outcome is Outcome.SKIPPED
    assert found.reason is not None
    assert found.reason.startswith(
        "5 us is 2 of the roofline (at most 1.05 is believed), measured twice: withheld until "
        "explained; check profile_too_small first: profile 'anvil-2' was asked for"
    )
    details = found.details["above_roofline"]
    assert details["explained"] is None
    assert details["leading"] == "profile_too_small"
    assert details["needs"] == pytest.approx({"bandwidth": 2.0})
    assert [cause["name"] for cause in details["causes"]] == ORDER
    (precision,) = (c for c in details["causes"] if c["name"] == "lower_precision")
    assert "an honest one's 0.001" in precision["speaks_against"][0]
