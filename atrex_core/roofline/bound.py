"""The least time a profile allows for a workload."""

from __future__ import annotations

from math import isfinite
from typing import Final

from attrs import evolve, frozen

from atrex_core.errors import PluginError
from atrex_core.model import (
    ArithmeticPath,
    Bound,
    Cost,
    HardwareProfile,
    Limiter,
    Pipe,
    Protocol,
)

_US_PER_S: Final = 1e6
_LIMITERS: Final = {Pipe.MATRIX: Limiter.MATRIX, Pipe.VECTOR: Limiter.VECTOR}


@frozen(kw_only=True)
class Unbounded:
    """There is no bound, and this is why."""

    reason: str

    def __str__(self) -> str:
        return self.reason


def bound(
    cost: Cost,
    profile: HardwareProfile,
    *,
    measured: HardwareProfile | None = None,
    protocol: Protocol = Protocol.STRICT,
) -> Bound | Unbounded:
    """Return the least time in which `profile` can do the work of `cost`, or why there is none.

    A path that the profile has no peak for is never replaced by another one's: no two paths have
    the same rate on every device, so no substitute is exact.

    Args:
        cost: Semantic work and compulsory bytes.
        profile: The peaks.
        measured: the same device's calibrated envelope; fills `t_sol_measured_us` if it can.
        protocol: Under `paper` the work on all pipes adds up, as published. That is no lower
            bound where pipes overlap.

    Raises:
        PluginError: the problem counted a negative or infinite amount of work or bytes.
    """
    found = _bound(cost, profile, protocol)
    if measured is None or isinstance(found, Unbounded):
        return found
    beside = _bound(cost, measured, protocol)
    return (
        found if isinstance(beside, Unbounded) else evolve(found, t_sol_measured_us=beside.t_sol_us)
    )


def has_no_arithmetic(cost: Cost) -> bool:
    """Return whether a workload only moves or orders data: its bound is memory alone."""
    return not any(amount > 0 for amount in cost.flops.values())


def _bound(cost: Cost, profile: HardwareProfile, protocol: Protocol) -> Bound | Unbounded:
    _check(cost)
    work = {path: amount for path, amount in cost.flops.items() if amount > 0}
    missing = sorted(path for path in work if path not in profile.peak_flops)
    if missing:
        return Unbounded(reason=f"profile {profile.name!r} has no peak for {', '.join(missing)}")
    memory_us = _US_PER_S * cost.total_bytes / profile.bandwidth_bytes_per_s.value
    pipes_us = {
        limiter: _US_PER_S
        * sum(
            amount / profile.peak_flops[path].value
            for path, amount in work.items()
            if path.pipe is pipe
        )
        for pipe, limiter in _LIMITERS.items()
    }
    busiest = max(pipes_us, key=lambda name: pipes_us[name])
    pipe_us = _sum_us(work, profile) if protocol is Protocol.PAPER else pipes_us[busiest]
    # On a tie memory is the limit, which W = 0 must give as well.
    t_sol_us, limiter = (pipe_us, busiest) if pipe_us > memory_us else (memory_us, Limiter.MEMORY)
    if t_sol_us <= 0:
        return Unbounded(reason="the workload does no work and moves no bytes")
    return Bound(t_sol_us=t_sol_us, limiter=limiter, ceiling=profile.ceiling)


def _sum_us(work: dict[ArithmeticPath, float], profile: HardwareProfile) -> float:
    return _US_PER_S * sum(amount / profile.peak_flops[path].value for path, amount in work.items())


def _check(cost: Cost) -> None:
    for name, amount in (*cost.flops.items(), ("bytes", cost.total_bytes)):
        if not isfinite(amount) or amount < 0:
            raise PluginError(f"the problem counts {amount} {name}: a cost is finite and positive")
