"""The bound of a workload, and what a share above it is called."""

from __future__ import annotations

import pytest
from atrex_profile_nvidia.devices import PROFILES

from atrex_core import (
    ArithmeticPath,
    Bound,
    Ceiling,
    Cost,
    DeviceMatch,
    Figure,
    HardwareProfile,
    Limiter,
    PluginError,
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
    ("device", "call", "flags"),
    [
        (0.99, 0.2, ()),
        (1.0, None, ()),
        (1.01, 0.9, ("above_sol_within_tolerance",)),
        (1.05, 0.9, ("above_sol_within_tolerance",)),
        (1.06, 0.9, ("roofline_violation",)),
        (None, 1.5, ("roofline_violation",)),
        (None, None, ()),
    ],
)
def test_flags(device: float | None, call: float | None, flags: tuple[str, ...]) -> None:
    found = Share(device=device, call=call)

    assert roofline.flags(found) == flags
    assert roofline.is_violation(found) is ("roofline_violation" in flags)


def test_latency_bound_below_the_launch_floor() -> None:
    assert roofline.is_latency_bound(BOUND, launch_floor_us=10.5)
    assert not roofline.is_latency_bound(BOUND, launch_floor_us=3.0)
