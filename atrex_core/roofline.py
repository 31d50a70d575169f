"""The least time a profile allows for a workload. Pure arithmetic; knows no device by name.

    T_sol = max over pipes(sum of W_d / P_d on that pipe, Q / B)

Work on one pipe adds up, whatever its types; pipes and memory overlap perfectly. So it is a true
lower bound, and a share above 1 is a fault to be explained: in the counts, in the profile, in the
clock or in the candidate. It is never clipped.
"""

from __future__ import annotations

from math import isfinite
from typing import Final

from attrs import evolve, frozen

from atrex_core.errors import PluginError
from atrex_core.model import Bound, Cost, HardwareProfile, Limiter, Pipe, Share, Timing

TOLERANCE: Final = 1.05
"""Shares up to this may come from clocks above the sheet's, or unpaid write-backs."""

ROOFLINE_VIOLATION: Final = "roofline_violation"
ABOVE_SOL: Final = "above_sol_within_tolerance"
LATENCY_BOUND: Final = "latency_bound"

_US_PER_S: Final = 1e6
_LIMITERS: Final = {Pipe.MATRIX: Limiter.MATRIX, Pipe.VECTOR: Limiter.VECTOR}


@frozen(kw_only=True)
class Unbounded:
    """There is no bound, and this is why."""

    reason: str

    def __str__(self) -> str:
        return self.reason


def bound(
    cost: Cost, profile: HardwareProfile, *, measured: HardwareProfile | None = None
) -> Bound | Unbounded:
    """Return the least time in which `profile` can do the work of `cost`, or why there is none.

    A path that the profile has no peak for is never replaced by another one's: no two paths have
    the same rate on every device, so no substitute is exact.

    Args:
        measured: the same device's calibrated envelope; fills `t_sol_measured_us` if it can.

    Raises:
        PluginError: the problem counted a negative or infinite amount of work or bytes.
    """
    found = _bound(cost, profile)
    if measured is None or isinstance(found, Unbounded):
        return found
    beside = _bound(cost, measured)
    return (
        found if isinstance(beside, Unbounded) else evolve(found, t_sol_measured_us=beside.t_sol_us)
    )


def _bound(cost: Cost, profile: HardwareProfile) -> Bound | Unbounded:
    _check(cost)
    work = {path: amount for path, amount in cost.flops.items() if amount > 0}
    missing = sorted(path for path in work if path not in profile.peak_flops)
    if missing:
        return Unbounded(reason=f"profile {profile.name!r} has no peak for {', '.join(missing)}")
    times_us = {Limiter.MEMORY: _US_PER_S * cost.total_bytes / profile.bandwidth_bytes_per_s.value}
    for pipe, limiter in _LIMITERS.items():
        times_us[limiter] = _US_PER_S * sum(
            amount / profile.peak_flops[path].value
            for path, amount in work.items()
            if path.pipe is pipe
        )
    # On a tie the first key wins: memory, which W = 0 must give as well.
    limiter = max(times_us, key=lambda name: times_us[name])
    if times_us[limiter] <= 0:
        return Unbounded(reason="the workload does no work and moves no bytes")
    return Bound(t_sol_us=times_us[limiter], limiter=limiter, ceiling=profile.ceiling)


def _check(cost: Cost) -> None:
    for name, amount in (*cost.flops.items(), ("bytes", cost.total_bytes)):
        if not isfinite(amount) or amount < 0:
            raise PluginError(f"the problem counts {amount} {name}: a cost is finite and positive")


def share(bound: Bound, timing: Timing) -> Share:
    """Return how much of the roof was reached, by each clock that gave a time."""
    return Share(
        device=_ratio(bound.t_sol_us, timing.device_us),
        call=_ratio(bound.t_sol_us, timing.call_us),
    )


def _ratio(t_sol_us: float, time_us: float | None) -> float | None:
    return t_sol_us / time_us if time_us is not None and time_us > 0 else None


def is_violation(share: Share) -> bool:
    """Return whether either clock puts the candidate above the roof by more than `TOLERANCE`."""
    return _highest(share) > TOLERANCE


def flags(share: Share) -> tuple[str, ...]:
    """Return what an evaluation with this share is flagged with."""
    if is_violation(share):
        return (ROOFLINE_VIOLATION,)
    return (ABOVE_SOL,) if _highest(share) > 1 else ()


def _highest(share: Share) -> float:
    return max(share.device or 0.0, share.call or 0.0)


def is_latency_bound(bound: Bound, launch_floor_us: float) -> bool:
    """Return whether an empty launch on this device takes longer than the bound itself."""
    return bound.t_sol_us < launch_floor_us
