"""Why a time may beat the bound: the likely causes in order, and what speaks for each.

Pure: everything that was observed is handed over as `Evidence`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import field, frozen

from atrex_core.model import (
    ArithmeticPath,
    Bound,
    Ceiling,
    Confidence,
    Cost,
    Device,
    Figure,
    HardwareProfile,
    Limiter,
    Pipe,
    Protocol,
    Timing,
)

RESOLUTION_US: Final = 0.5
"""About what the coarsest clock in use tells apart."""
LESS_EXACT: Final = 1.5
"""How many times an honest error is more than another order of sums makes of it."""
_US_PER_S: Final = 1e6
_CLOCK_FLAGS: Final = {
    "clock_disputed": "the process claimed less time than the referee's clock saw",
    "clock_unchecked": "the referee could not check the process's clock",
}
_PIPES: Final = {Limiter.MATRIX: Pipe.MATRIX, Limiter.VECTOR: Pipe.VECTOR}


@frozen(kw_only=True)
class Evidence:
    """What is known of a workload whose time beats its bound, twice."""

    bound: Bound
    cost: Cost
    profile: HardwareProfile
    device: Device
    protocol: Protocol
    timings: tuple[Timing, ...]
    """In the order they were measured, each on inputs of its own."""
    flags: frozenset[str] = frozenset()
    constant_inputs: tuple[str, ...] = ()
    """Inputs of more than one element that are all equal."""
    rotated_bytes: int = 0
    """Of all input and output sets that timed calls rotate through."""
    last_level_cache_bytes: int | None = None
    half_width_us: float | None = None
    """Half of the 95 % interval of the latest median."""
    launches: int | None = None
    """Of the target DSL's kernels, in one call."""
    relative_l2: Mapping[str, float] = field(factory=dict)
    """Worst error by output, against the high-precision reference."""
    relative_l2_honest: Mapping[str, float] = field(factory=dict)
    """An honest implementation's, on the same inputs."""

    @property
    def time_us(self) -> float:
        """The shortest time that beats the bound in the latest measurement."""
        latest = self.timings[-1]
        times = [time for time in (latest.device_us, latest.call_us) if time is not None]
        return min(times)


@frozen(kw_only=True)
class Cause:
    """One way in which a time can beat a bound."""

    name: str
    means: str
    speaks_for: tuple[str, ...] = ()
    speaks_against: tuple[str, ...] = ()


def causes(evidence: Evidence) -> tuple[Cause, ...]:
    """Return every likely cause, in the order in which to check them."""
    return (
        _work_elsewhere(evidence),
        _constant_inputs(evidence),
        _cache_resident(evidence),
        _work_overcounted(evidence),
        _profile_too_small(evidence),
        _lower_precision(evidence),
        _timer_resolution(evidence),
    )


def needed(evidence: Evidence) -> Mapping[str, float]:
    """Return how many times the profile's rates the time at hand would take, where above 1."""
    time_s = evidence.time_us / _US_PER_S
    have = evidence.profile.bandwidth_bytes_per_s.value
    ratios = {"bandwidth": evidence.cost.total_bytes / time_s / have}
    for path in _working(evidence):
        ratios[str(path)] = (
            evidence.cost.flops[path] / time_s / evidence.profile.peak_flops[path].value
        )
    return {name: ratio for name, ratio in ratios.items() if ratio > 1}


def leading(found: Sequence[Cause]) -> Cause:
    """Return the first cause with nothing against it; else the first with anything for it."""
    supported = [cause for cause in found if cause.speaks_for]
    clear = [cause for cause in supported if not cause.speaks_against]
    return (clear or supported or list(found))[0]


def _work_elsewhere(e: Evidence) -> Cause:
    speaks_for = [words for flag, words in _CLOCK_FLAGS.items() if flag in e.flags]
    if e.launches == 0:
        speaks_for.append("a call launches none of the target DSL's kernels")
    against = ["outputs of timed calls, chosen afterwards, were right on inputs never seen before"]
    held_us = e.timings[-1].held_us
    if held_us:  # a slope that noise made 0 says nothing
        words = (
            f"by the referee's own clock it is {held_us:.4g} us, the bound {e.bound.t_sol_us:.4g}"
        )
        (against if held_us < e.bound.t_sol_us else speaks_for).append(words)
    return _cause(
        "work_elsewhere",
        "the output is not computed inside the timed call, or on another stream or thread",
        speaks_for,
        against,
    )


def _constant_inputs(e: Evidence) -> Cause:
    means = "inputs are constant, so that work can be skipped"
    if e.constant_inputs:
        said = f"all elements are equal in {', '.join(e.constant_inputs)}"
        return _cause("constant_inputs", means, [said], [])
    return _cause("constant_inputs", means, [], ["no input of the timed calls is constant"])


def _cache_resident(e: Evidence) -> Cause:
    means = "the bytes come from a cache, or stay in one"
    speaks_for: list[str] = []
    against: list[str] = []
    if e.bound.limiter is not Limiter.MEMORY:
        against.append(f"the {e.bound.limiter} pipe is the limit, not memory")
    cache = e.last_level_cache_bytes
    if cache is None:
        speaks_for.append("the size of the last-level cache is not known")
    elif e.rotated_bytes > 2 * cache:
        sets = f"timed calls rotate through {e.rotated_bytes:.3g} bytes"
        against.append(f"{sets}, {e.rotated_bytes / cache:.3g} times the last-level cache")
    else:
        sets = f"timed calls rotate through {e.rotated_bytes:.3g} bytes only"
        speaks_for.append(f"{sets}, the last-level cache holds {cache:.3g}")
    unpaid = min(e.cost.write_bytes, cache or 0)
    rest_us = _US_PER_S * (e.cost.total_bytes - unpaid) / e.profile.bandwidth_bytes_per_s.value
    if unpaid and e.bound.limiter is Limiter.MEMORY and rest_us <= e.time_us:
        speaks_for.append(f"{unpaid:.3g} bytes written may still be in the cache at the end")
    if "warm" in e.flags:
        speaks_for.append("the workload is flagged warm")
    return _cause("cache_resident", means, speaks_for, against)


def _work_overcounted(e: Evidence) -> Cause:
    speaks_for: list[str] = []
    against: list[str] = []
    if e.protocol is Protocol.PAPER:
        speaks_for.append("work and bytes are as published: some are known to be too many")
        if len({path.pipe for path in _working(e)}) > 1:
            speaks_for.append("work on pipes that overlap is added up")
    else:
        against.append("work and bytes were counted from the inputs of a timed call")
    return _cause("work_overcounted", "the problem counts too much work", speaks_for, against)


def _profile_too_small(e: Evidence) -> Cause:
    speaks_for: list[str] = []
    against: list[str] = []
    name = e.profile.name
    if e.profile.ceiling is Ceiling.MEASURED:
        speaks_for.append(f"profile {name!r} is what was measured here, not what is possible")
    elif e.profile.match.accepts(e.device):
        against.append(f"profile {name!r} describes {e.device.name!r}")
    else:
        speaks_for.append(f"profile {name!r} was asked for and does not describe {e.device.name!r}")
    for figure in _limiting(e):
        words = f"the limiting figure, {figure.value:.4g}, is of {figure.confidence} confidence"
        (against if figure.confidence is Confidence.HIGH else speaks_for).append(words)
    measured_us = e.bound.t_sol_measured_us
    if measured_us is not None:
        ratio = e.bound.t_sol_us / measured_us
        words = f"calibration of this device reached {ratio:.3g} times the profile"
        (speaks_for if ratio > 1 else against).append(words)
    return _cause("profile_too_small", "the profile's peaks are too low", speaks_for, against)


def _lower_precision(e: Evidence) -> Cause:
    speaks_for: list[str] = []
    against: list[str] = []
    for name, error in e.relative_l2.items():
        honest = e.relative_l2_honest.get(name)
        if honest is None:
            continue
        words = f"output {name!r}: relative L2 error {error:.3g}, an honest one's {honest:.3g}"
        (speaks_for if error > LESS_EXACT * honest else against).append(words)
    if e.bound.limiter is Limiter.MEMORY:
        against.append("memory is the limit: faster arithmetic gains nothing")
    return _cause(
        "lower_precision", "it computes in a lower precision than stated", speaks_for, against
    )


def _timer_resolution(e: Evidence) -> Cause:
    speaks_for: list[str] = []
    against: list[str] = []
    excess_us = e.bound.t_sol_us - e.time_us
    words = f"it is {excess_us:.3g} us below the bound, clocks tell {RESOLUTION_US:g} us apart"
    (speaks_for if excess_us <= RESOLUTION_US else against).append(words)
    if e.half_width_us is not None:
        words = f"the median is known to {e.half_width_us:.3g} us"
        (speaks_for if excess_us <= e.half_width_us else against).append(words)
    if "unstable" in e.flags:
        speaks_for.append("the samples are unstable")
    return _cause(
        "timer_resolution", "the clock is too coarse for so short a time", speaks_for, against
    )


def _limiting(e: Evidence) -> list[Figure]:
    if e.bound.limiter is Limiter.MEMORY:
        return [e.profile.bandwidth_bytes_per_s]
    pipe = _PIPES.get(e.bound.limiter)
    return [e.profile.peak_flops[path] for path in _working(e) if path.pipe is pipe]


def _working(e: Evidence) -> list[ArithmeticPath]:
    return [path for path, amount in e.cost.flops.items() if amount > 0]


def _cause(name: str, means: str, speaks_for: list[str], against: list[str]) -> Cause:
    return Cause(
        name=name, means=means, speaks_for=tuple(speaks_for), speaks_against=tuple(against)
    )
