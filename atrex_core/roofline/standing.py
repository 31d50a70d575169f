"""Where measured times stand: the share of the roof, its state, and the parts of the gap."""

from __future__ import annotations

from typing import Final

from atrex_core.model import Adoption, Bound, Gap, HardwareProfile, Limiter, Share, Timing

TOLERANCE: Final = 1.05
"""Shares up to this may come from clocks above the sheet's, or unpaid write-backs."""

ROOFLINE_VIOLATION: Final = "roofline_violation"
ABOVE_ROOFLINE: Final = "above_roofline"
LATENCY_BOUND: Final = "latency_bound"
NO_ARITHMETIC: Final = "no_arithmetic"

NO_EVIDENCE: Final = "no evidence of which kernels took the device's time"
NO_FLOOR: Final = "this device's launch floor has not been measured"


def share(bound: Bound, timing: Timing) -> Share:
    """Return how much of the roof was reached, by each clock that gave a time."""
    return Share(
        device=_ratio(bound.t_sol_us, timing.device_us),
        call=_ratio(bound.t_sol_us, timing.call_us),
    )


def limit(bound: Bound, profile: HardwareProfile) -> float:
    """Return the share up to which a result above the roof is plausible on this device.

    Matrix peaks may assume a clock below the one that the part boosts to. What a calibration of
    this very device has reached, a candidate may reach.
    """
    ratios = [TOLERANCE]
    boost, assumed = profile.clock_hz, profile.matrix_clock_hz
    if bound.limiter is Limiter.MATRIX and boost is not None and assumed is not None:
        ratios.append(boost.value / assumed.value)
    if bound.t_sol_measured_us is not None:
        ratios.append(bound.t_sol_us / bound.t_sol_measured_us)
    return max(ratios)


def highest(share: Share) -> float:
    """Return the higher of the two shares, 0 where there is none."""
    return max(share.device or 0.0, share.call or 0.0)


def is_violation(share: Share, limit: float = TOLERANCE) -> bool:
    """Return whether either clock puts the candidate above the roof by more than `limit`."""
    return highest(share) > limit


def flags(share: Share, limit: float = TOLERANCE) -> tuple[str, ...]:
    """Return what an evaluation with this share is flagged with. Shares are never clipped."""
    if is_violation(share, limit):
        return (ROOFLINE_VIOLATION,)
    return (ABOVE_ROOFLINE,) if highest(share) > 1 else ()


def is_latency_bound(bound: Bound, launch_floor_us: float) -> bool:
    """Return whether an empty launch on this device takes longer than the bound itself."""
    return bound.t_sol_us < launch_floor_us


def gap(
    bound: Bound,
    timing: Timing,
    *,
    launch_floor_us: float | None = None,
    adoption: Adoption | None = None,
) -> Gap:
    """Split call time beyond the bound into launch, device and fallback.

    Args:
        bound: The least time.
        timing: Both times; what is missing leaves its part unmeasured.
        launch_floor_us: What an empty launch takes on this device, where it is calibrated.
        adoption: How much of the device's time the target DSL took, once that is known.
    """
    unmeasured: dict[str, str] = {}
    launch_us = device_us = fallback_us = None
    if timing.device_us is None:
        reason = timing.reason or "there is no device time"
        unmeasured = {"launch": reason, "device": reason}
    else:
        device_us = timing.device_us - bound.t_sol_us
        if timing.call_us is None:
            unmeasured["launch"] = "there is no call time"
        else:
            launch_us = max(0.0, timing.call_us - timing.device_us)
    if device_us is None or timing.device_us is None or adoption is None:
        unmeasured["fallback"] = NO_EVIDENCE
    else:
        outside_us = (1 - adoption.share) * timing.device_us
        fallback_us = max(0.0, min(outside_us, device_us))
        device_us -= fallback_us
    limiter = bound.limiter
    if launch_floor_us is None:
        unmeasured["launch_floor"] = NO_FLOOR
    elif is_latency_bound(bound, launch_floor_us):
        limiter = Limiter.LATENCY
    return Gap(
        launch_us=launch_us,
        device_us=device_us,
        fallback_us=fallback_us,
        limiter=limiter,
        launch_floor_us=launch_floor_us,
        unmeasured=unmeasured,
    )


def _ratio(t_sol_us: float, time_us: float | None) -> float | None:
    return t_sol_us / time_us if time_us is not None and time_us > 0 else None
