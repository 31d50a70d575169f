"""The bound of a workload, and what a share above it is called."""

from __future__ import annotations

import pytest
from atrex_profile_nvidia.devices import PROFILES
from attrs import evolve

from atrex_core import (
    Adoption,
    ArithmeticPath,
    Bound,
    Ceiling,
    Cost,
    DeviceMatch,
    Figure,
    Gap,
    HardwareProfile,
    Limiter,
    PluginError,
    Protocol,
    Share,
    Timing,
    roofline,
)

H200 = next(profile for profile in PROFILES if profile.name == "h200")
H20 = next(profile for profile in PROFILES if profile.name == "h20")
BF16, FP8 = ArithmeticPath.BF16_MATRIX, ArithmeticPath.FP8_MATRIX
FP32, FP64 = ArithmeticPath.FP32_VECTOR, ArithmeticPath.FP64_VECTOR


def cost(
    flops: dict[ArithmeticPath, float] | None = None, read: float = 0.0, write: float = 0.0
) -> Cost:
    return Cost(flops=flops or {}, read_bytes=read, write_bytes=write)


def bounded(found: Bound | roofline.Unbounded) -> Bound:
    assert isinstance(found, Bound)
    return found


def profile(ceiling: Ceiling = Ceiling.SPEC, *, bandwidth: float = 1e12) -> HardwareProfile:
    """Peaks that make arithmetic easy: 1 T bf16, 2 T fp8, 0.5 T fp32 vector, 1 TB/s."""
    peaks = {BF16: 1e12, FP8: 2e12, FP32: 0.5e12}
    return HardwareProfile(
        name="easy",
        match=DeviceMatch(vendor="none", names=("easy",)),
        peak_flops={path: Figure(value=value, source="made up") for path, value in peaks.items()},
        bandwidth_bytes_per_s=Figure(value=bandwidth, source="made up"),
        ceiling=ceiling,
    )


def test_large_product_is_bound_by_its_matrix_work() -> None:
    n = 8192
    found = bounded(roofline.bound(cost({BF16: 2 * n**3}, 2 * 2 * n * n, 2 * n * n), H200))

    assert found.t_sol_us == pytest.approx(1111.3, abs=0.05)
    assert found.limiter is Limiter.MATRIX
    assert found.ceiling is Ceiling.SPEC


def test_normalisation_is_bound_by_memory() -> None:
    rows, hidden = 4096, 7168
    traffic = rows * hidden * 2
    work = cost({FP32: 4.0 * rows * hidden}, traffic + hidden * 2, traffic)
    found = bounded(roofline.bound(work, H200))

    assert found.t_sol_us == pytest.approx(24.47, abs=0.01)
    assert found.limiter is Limiter.MEMORY


def test_h20_takes_nearly_seven_times_as_long_as_h200_for_bf16() -> None:
    work = cost({BF16: 1e12}, 1.0, 1.0)

    assert bounded(roofline.bound(work, H20)).t_sol_us == pytest.approx(6756.8, abs=0.1)
    assert bounded(roofline.bound(work, H200)).t_sol_us == pytest.approx(1010.7, abs=0.1)


def test_work_on_one_pipe_adds_up() -> None:
    found = bounded(roofline.bound(cost({BF16: 1e6, FP8: 4e6}), profile()))

    assert found.t_sol_us == pytest.approx(1.0 + 2.0)
    assert found.limiter is Limiter.MATRIX


def test_pipes_overlap() -> None:
    found = bounded(roofline.bound(cost({BF16: 1e6, FP32: 1e6}, 1e6, 0.0), profile()))

    assert found.t_sol_us == pytest.approx(2.0)
    assert found.limiter is Limiter.VECTOR


def test_no_work_is_bound_by_memory() -> None:
    found = bounded(roofline.bound(cost({BF16: 0.0}, 3e6, 1e6), profile()))

    assert found.t_sol_us == pytest.approx(4.0)
    assert found.limiter is Limiter.MEMORY


def test_a_tie_is_bound_by_memory() -> None:
    found = bounded(roofline.bound(cost({BF16: 1e6}, 1e6), profile()))

    assert found.limiter is Limiter.MEMORY


def test_nothing_to_do_has_no_bound() -> None:
    found = roofline.bound(cost({BF16: 0.0}), profile())

    assert isinstance(found, roofline.Unbounded)
    assert str(found) == "the workload does no work and moves no bytes"


def test_a_path_without_a_peak_has_no_bound_and_no_substitute() -> None:
    found = roofline.bound(cost({BF16: 1.0, FP64: 1.0}, 1.0), profile())

    assert isinstance(found, roofline.Unbounded)
    assert found.reason == "profile 'easy' has no peak for fp64_vector"


def test_a_path_without_a_peak_and_without_work_does_not_matter() -> None:
    found = roofline.bound(cost({FP64: 0.0}, 1e6), profile())

    assert bounded(found).t_sol_us == pytest.approx(1.0)


@pytest.mark.parametrize("amount", [-1.0, float("inf"), float("nan")], ids=str)
def test_an_impossible_cost_is_the_problems_fault(amount: float) -> None:
    with pytest.raises(PluginError, match="bf16_matrix"):
        roofline.bound(cost({BF16: amount}), profile())


def test_the_ceiling_is_the_profiles() -> None:
    found = bounded(roofline.bound(cost(read=1.0), profile(Ceiling.MEASURED)))

    assert found.ceiling is Ceiling.MEASURED


def test_a_measured_envelope_stands_beside_the_published_one() -> None:
    slower = profile(Ceiling.MEASURED, bandwidth=0.8e12)
    found = bounded(roofline.bound(cost(read=4e6), profile(), measured=slower))

    assert found.t_sol_us == pytest.approx(4.0)
    assert found.t_sol_measured_us == pytest.approx(5.0)
    assert found.ceiling is Ceiling.SPEC


BOUND = Bound(t_sol_us=10.0, limiter=Limiter.MEMORY, ceiling=Ceiling.SPEC)


def test_share_is_of_each_clock_and_never_clipped() -> None:
    found = roofline.share(BOUND, Timing(device_us=4.0, call_us=20.0, method="test"))

    assert found == Share(device=2.5, call=0.5)


def test_share_of_a_missing_or_zero_time_is_missing() -> None:
    found = roofline.share(BOUND, Timing(device_us=None, call_us=0.0, method="test"))

    assert found == Share(device=None, call=None)


@pytest.mark.parametrize(
    ("device", "call", "limit", "flags"),
    [
        (0.99, 0.2, 1.05, ()),
        (1.0, None, 1.05, ()),
        (1.01, 0.9, 1.05, ("above_roofline",)),
        (1.05, 0.9, 1.05, ("above_roofline",)),
        (1.06, 0.9, 1.05, ("roofline_violation",)),
        (1.06, 0.9, 1.08, ("above_roofline",)),
        (1.09, 0.9, 1.08, ("roofline_violation",)),
        (None, 1.5, 1.05, ("roofline_violation",)),
        (None, None, 1.05, ()),
    ],
)
def test_flags(
    device: float | None, call: float | None, limit: float, flags: tuple[str, ...]
) -> None:
    found = Share(device=device, call=call)

    assert roofline.flags(found, limit) == flags
    assert roofline.is_violation(found, limit) is ("roofline_violation" in flags)


def clocked(boost_hz: float, matrix_hz: float | None) -> HardwareProfile:
    return evolve(
        profile(),
        clock_hz=Figure(value=boost_hz, source="made up"),
        matrix_clock_hz=Figure(value=matrix_hz, source="made up") if matrix_hz else None,
    )


@pytest.mark.parametrize(
    ("limiter", "peaks", "measured_us", "limit"),
    [
        (Limiter.MEMORY, profile(), None, 1.05),
        (Limiter.MEMORY, clocked(2.2e9, 2e9), None, 1.05),
        (Limiter.VECTOR, clocked(2.2e9, 2e9), None, 1.05),
        (Limiter.MATRIX, clocked(2.2e9, 2e9), None, 1.1),
        (Limiter.MATRIX, clocked(2.2e9, None), None, 1.05),
        (Limiter.MATRIX, clocked(2.02e9, 2e9), None, 1.05),
        (Limiter.MEMORY, profile(), 8.0, 1.25),
        (Limiter.MEMORY, profile(), 12.0, 1.05),
    ],
)
def test_what_is_believed_above_the_roof(
    limiter: Limiter, peaks: HardwareProfile, measured_us: float | None, limit: float
) -> None:
    found = evolve(BOUND, limiter=limiter, t_sol_measured_us=measured_us)

    assert roofline.limit(found, peaks) == pytest.approx(limit)


def test_the_published_clocks_of_a_device_give_its_limit() -> None:
    found = bounded(roofline.bound(cost({BF16: 1e12}, 1.0, 1.0), H200))

    assert roofline.limit(found, H200) == pytest.approx(1980 / 1830)


def test_latency_bound_below_the_launch_floor() -> None:
    assert roofline.is_latency_bound(BOUND, launch_floor_us=10.5)
    assert not roofline.is_latency_bound(BOUND, launch_floor_us=3.0)


@pytest.mark.parametrize(
    ("work", "expected"),
    [({}, True), ({FP32: 0.0}, True), ({FP32: 0.0, BF16: 1.0}, False)],
    ids=str,
)
def test_what_only_moves_data_has_no_arithmetic(
    work: dict[ArithmeticPath, float], expected: bool
) -> None:
    assert roofline.has_no_arithmetic(cost(work, 8.0)) is expected


# -- another definition ------------------------------------------------------------------------


def test_published_bounds_add_up_the_work_of_all_pipes() -> None:
    work = cost({BF16: 1e6, FP8: 4e6, FP32: 1e6}, 1e6)

    strict = bounded(roofline.bound(work, profile()))
    paper = bounded(roofline.bound(work, profile(), protocol=Protocol.PAPER))

    assert strict.t_sol_us == pytest.approx(3.0)
    assert paper.t_sol_us == pytest.approx(5.0)
    assert strict.limiter is paper.limiter is Limiter.MATRIX


def test_published_bounds_are_of_memory_where_that_takes_longer() -> None:
    work = cost({BF16: 1e6, FP32: 1e6}, 4e6)
    found = bounded(roofline.bound(work, profile(), protocol=Protocol.PAPER))

    assert found.t_sol_us == pytest.approx(4.0)
    assert found.limiter is Limiter.MEMORY


# -- the gap -----------------------------------------------------------------------------------


def test_the_gap_is_split_into_launch_and_device() -> None:
    found = roofline.gap(BOUND, Timing(device_us=14.0, call_us=45.0, method="test"))

    assert found == Gap(
        launch_us=31.0,
        device_us=4.0,
        fallback_us=None,
        limiter=Limiter.MEMORY,
        unmeasured={
            "fallback": "no evidence of which kernels took the device's time",
            "launch_floor": "this device's launch floor has not been measured",
        },
    )


def test_back_to_back_calls_may_take_less_than_one_alone() -> None:
    found = roofline.gap(BOUND, Timing(device_us=14.0, call_us=13.0, method="test"))

    assert (found.launch_us, found.device_us) == (0.0, 4.0)


def test_a_time_below_the_bound_leaves_a_negative_part() -> None:
    found = roofline.gap(BOUND, Timing(device_us=8.0, call_us=9.0, method="test"))

    assert (found.launch_us, found.device_us) == (1.0, -2.0)


@pytest.mark.parametrize(
    ("floor_us", "limiter"), [(10.5, Limiter.LATENCY), (10.0, Limiter.MEMORY)], ids=str
)
def test_below_the_launch_floor_latency_is_the_limit(floor_us: float, limiter: Limiter) -> None:
    timing = Timing(device_us=14.0, call_us=45.0, method="test")
    found = roofline.gap(BOUND, timing, launch_floor_us=floor_us)

    assert (found.limiter, found.launch_floor_us) == (limiter, floor_us)
    assert "launch_floor" not in found.unmeasured


def test_a_missing_time_leaves_its_part_unmeasured() -> None:
    no_device = Timing(device_us=None, call_us=45.0, method="none", reason="no records")
    found = roofline.gap(BOUND, no_device)
    other = roofline.gap(BOUND, Timing(device_us=14.0, call_us=None, method="test"))

    assert (found.launch_us, found.device_us) == (None, None)
    assert found.unmeasured["launch"] == found.unmeasured["device"] == "no records"
    assert (other.launch_us, other.device_us) == (None, 4.0)
    assert other.unmeasured["launch"] == "there is no call time"


@pytest.mark.parametrize(
    ("share", "device_us", "fallback_us"),
    [(1.0, 10.0, 0.0), (0.75, 5.0, 5.0), (0.0, 0.0, 10.0)],
    ids=str,
)
def test_time_outside_the_target_dsl_is_a_part_of_its_own(
    share: float, device_us: float, fallback_us: float
) -> None:
    found = roofline.gap(
        BOUND,
        Timing(device_us=20.0, call_us=45.0, method="test"),
        adoption=Adoption(share=share, basis="measured"),
    )

    assert (found.device_us, found.fallback_us) == (device_us, fallback_us)
    assert "fallback" not in found.unmeasured
