"""Settled times beside a roof, as the referee sets them there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from attrs import evolve

from atrex_core import (
    ArithmeticPath,
    Ceiling,
    Cost,
    DeviceMatch,
    Figure,
    HardwareProfile,
    Limiter,
    Protocol,
    Timing,
)
from atrex_core.comparison import Comparison
from atrex_core.referee.clocks import Settled
from atrex_core.referee.findings import Findings, is_same
from atrex_core.referee.roof import Measurement, against_roof, constant

BF16, FP32 = ArithmeticPath.BF16_MATRIX, ArithmeticPath.FP32_VECTOR
PROFILE = HardwareProfile(
    name="easy",
    match=DeviceMatch(vendor="none", names=("easy",)),
    peak_flops={path: Figure(value=1e12, source="made up") for path in (BF16, FP32)},
    bandwidth_bytes_per_s=Figure(value=1e12, source="made up"),
)


def measured(device_us: float, flops: dict[ArithmeticPath, float], **bench: Any) -> Measurement:
    """Set a time beside the roof of a workload that moves 4 MB: 4 us."""
    known = {
        "profile": PROFILE,
        "calibrated": None,
        "launch_floor_us": None,
        "device": SimpleNamespace(name="Easy"),
        "setup": SimpleNamespace(protocol=Protocol.STRICT),
        **bench,
    }
    cost = Cost(flops=flops, read_bytes=3e6, write_bytes=1e6)
    problem: Any = SimpleNamespace(cost=lambda workload, inputs: cost)
    timing = Timing(device_us=device_us, call_us=20.0, method="test")
    place: Any = SimpleNamespace(**known)
    workload: Any = None
    return against_roof(place, problem, workload, Settled(timing=timing, flags=("warm",)), {})


def test_a_time_below_the_roof_is_split() -> None:
    found = measured(5.0, {BF16: 1e6})

    assert found.bound is not None
    assert found.bound.t_sol_us == pytest.approx(4.0)
    assert found.flags == ("warm",)
    assert found.gap is not None
    assert found.gap.launch_us == 15.0
    assert found.gap.device_us == pytest.approx(1.0)
    assert not found.is_violation


def test_a_time_far_above_the_roof_is_a_violation() -> None:
    found = measured(2.0, {BF16: 1e6})

    assert found.is_violation
    assert found.flags == ("warm", "roofline_violation")


def test_what_this_device_reached_before_is_believed() -> None:
    faster = evolve(
        PROFILE,
        ceiling=Ceiling.MEASURED,
        bandwidth_bytes_per_s=Figure(value=1.2e12, source="calibration"),
    )

    assert measured(3.5, {BF16: 1e6}).is_violation
    assert measured(3.5, {BF16: 1e6}, calibrated=faster).flags == ("warm", "above_roofline")


def test_work_that_is_none_and_bounds_below_a_launch_are_labelled() -> None:
    sort = measured(9.0, {})
    short = measured(9.0, {BF16: 1e6}, launch_floor_us=4.5)
    long = measured(9.0, {BF16: 1e6}, launch_floor_us=3.5)

    assert sort.flags == ("warm", "no_arithmetic")
    assert short.flags == ("warm", "latency_bound")
    assert long.flags == ("warm",)
    assert short.gap is not None
    assert short.gap.limiter is Limiter.LATENCY


def test_the_protocol_says_how_the_roof_is_made() -> None:
    work = {BF16: 5e6, FP32: 5e6}
    paper = SimpleNamespace(protocol=Protocol.PAPER)
    strict, by_sum = measured(12.0, work).bound, measured(12.0, work, setup=paper).bound

    assert strict is not None
    assert by_sum is not None
    assert strict.t_sol_us == pytest.approx(5.0)
    assert by_sum.t_sol_us == pytest.approx(10.0)


def test_without_a_profile_there_is_no_roof() -> None:
    found = measured(5.0, {BF16: 1e6}, profile=None)

    assert (found.bound, found.share, found.gap) == (None, None, None)
    assert found.unbounded_reason == "no hardware profile describes 'Easy'"
    assert found.flags == ("warm",)


def test_constant_inputs_are_named() -> None:
    inputs = {
        "ones": torch.ones(3, 2),
        "random": torch.arange(4),
        "scalar": torch.ones(1),
        "empty": torch.ones(0),
        "mask": torch.zeros(5, dtype=torch.bool),
    }

    assert constant(inputs) == ("ones", "mask")


# -- what the correctness gate finds out -------------------------------------------------------


def compared(error: float | str, honest: float | str | None = None) -> Comparison:
    details: dict[str, Any] = {"relative_l2": error}
    if honest is not None:
        details["relative_l2_honest"] = honest
    return Comparison(passed=True, reason=None, details=details)


def test_the_worst_error_is_kept_with_the_honest_one_of_the_same_inputs() -> None:
    found = Findings(regimes=("nominal", "wide"))
    found.note({"out": compared(1e-3, 9e-4), "lse": compared(1e-6, 1e-6)})
    found.note({"out": compared(5e-3, 4e-3), "lse": compared(1e-7, 2e-6)})
    found.note({"out": compared(2e-3, 8e-3), "index": Comparison(passed=True, reason=None)})

    assert found.details() == {
        "cases": 2,
        "regimes": ["nominal", "wide"],
        "relative_l2": {"out": 5e-3, "lse": 1e-6},
        "relative_l2_honest": {"out": 4e-3, "lse": 1e-6},
        "deterministic": None,
    }


def test_an_error_that_is_no_number_is_left_out() -> None:
    found = Findings(regimes=("nominal",), is_deterministic=True)
    found.note({"out": compared("nan"), "other": compared(1e-3)})

    assert found.details()["relative_l2"] == {"other": 1e-3}
    assert found.details()["relative_l2_honest"] == {}
    assert found.details()["deterministic"] is True


def test_answers_are_the_same_only_in_every_byte() -> None:
    nan = torch.tensor([float("nan"), 0.0])
    cases = {
        "equal": (nan, nan.clone(), True),
        "sign of zero": (torch.tensor([0.0]), torch.tensor([-0.0]), False),
        "last place": (torch.tensor([1.0]), torch.tensor([1.0]).nextafter(nan[1:]), False),
    }

    found = {name: is_same({"out": a}, {"out": b}) for name, (a, b, _) in cases.items()}

    assert found == {name: same for name, (_, _, same) in cases.items()}
