"""Set settled times against the roof; where they beat it, look at two measurements together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, frozen

from atrex_core import roofline
from atrex_core.interfaces import Problem, Tensors
from atrex_core.model import Bound, Cost, Gap, Share, Timing, Workload
from atrex_core.precision import half_width_us
from atrex_core.referee import clocks
from atrex_core.referee.bench import Bench

REMEASURED = "remeasured"
BY_ROOF = "roofline"


@frozen(kw_only=True)
class Measurement:
    """What timing found, with everything a score needs."""

    timing: Timing
    bound: Bound | None
    unbounded_reason: str | None
    share: Share | None
    flags: tuple[str, ...]
    caught_by: str | None = None
    """What shows that the worker's claim is false."""
    gap: Gap | None = None
    cost: Cost | None = None
    limit: float = roofline.TOLERANCE
    """The share above which a time is not believed."""
    remeasured: Mapping[str, Any] | None = None
    """What two measurements said, where the first one beat the bound. Plain JSON values."""
    evidence: roofline.Evidence | None = None
    """Where both did."""

    @property
    def is_violation(self) -> bool:
        """Whether a time beats the bound by more than can be."""
        return self.share is not None and roofline.is_violation(self.share, self.limit)


def against_roof(
    bench: Bench, problem: Problem, workload: Workload, settled: clocks.Settled, inputs: Tensors
) -> Measurement:
    """Return times beside the bound of the workload.

    Args:
        bench: Whose profile makes the roof, and whose protocol says how.
        problem: Counts the work.
        workload: What was timed.
        settled: The times.
        inputs: What timed calls were given: work may depend on them.
    """
    unbounded = Measurement(
        timing=settled.timing,
        bound=None,
        unbounded_reason=f"no hardware profile describes {bench.device.name!r}",
        share=None,
        flags=settled.flags,
        caught_by=settled.caught_by,
    )
    if bench.profile is None:
        return unbounded
    cost = problem.cost(workload, inputs)
    found = roofline.bound(
        cost, bench.profile, measured=bench.calibrated, protocol=bench.setup.protocol
    )
    if not isinstance(found, Bound):
        return evolve(unbounded, unbounded_reason=str(found))
    floor_us = bench.launch_floor_us
    labels = [roofline.NO_ARITHMETIC] if roofline.has_no_arithmetic(cost) else []
    if floor_us is not None and roofline.is_latency_bound(found, floor_us):
        labels.append(roofline.LATENCY_BOUND)
    bounded = evolve(
        unbounded,
        bound=found,
        unbounded_reason=None,
        flags=(*settled.flags, *labels),
        cost=cost,
        limit=roofline.limit(found, bench.profile),
    )
    return _standing(bounded, floor_us)


def looked_again(first: Measurement, second: Measurement) -> Measurement:
    """Return what counts of two measurements, of which the first beat its bound.

    The second counts. Where the worker's clock beats the bound again, and the referee's, which
    also sees what is between kernels, does not, then the referee's counts.
    """
    looks = [_look(first), _look(second)]
    found = evolve(second, flags=(*second.flags, REMEASURED))
    claimed_us, held_us, bound = second.timing.device_us, second.timing.held_us, second.bound
    if (
        bound is not None
        and claimed_us is not None
        and held_us is not None
        and second.limit * claimed_us < bound.t_sol_us <= second.limit * held_us
    ):
        reason = (
            f"the process claimed {claimed_us:.4g} us a call, less than the bound of "
            f"{bound.t_sol_us:.4g} us; by the referee's clock it is {held_us:.4g} us, which counts"
        )
        timing = evolve(second.timing, device_us=held_us, method=clocks.METHOD, reason=reason)
        kept = [flag for flag in found.flags if flag != roofline.ROOFLINE_VIOLATION]
        floor_us = second.gap.launch_floor_us if second.gap else None
        flags = tuple(dict.fromkeys((*kept, clocks.DISPUTED)))
        found = evolve(found, timing=timing, flags=flags, caught_by=found.caught_by or BY_ROOF)
        found = _standing(found, floor_us)
    explained = None
    if not found.is_violation:
        is_same_clock = found.timing.method == second.timing.method
        explained = (
            "the time did not repeat on other inputs" if is_same_clock else found.timing.reason
        )
    remeasured = {"limit": second.limit, "measurements": looks, "explained": explained}
    return evolve(found, remeasured=remeasured)


def with_evidence(bench: Bench, found: Measurement, first: Measurement, **seen: Any) -> Measurement:
    """Return a violation with all that speaks for one cause or another."""
    assert found.bound is not None, "a violation has a bound"
    assert found.cost is not None, "a violation has a cost"
    assert bench.profile is not None, "a violation has a profile"
    width_us = half_width_us(found.timing.samples_us)
    evidence = roofline.Evidence(
        bound=found.bound,
        cost=found.cost,
        profile=bench.profile,
        device=bench.device,
        protocol=bench.setup.protocol,
        timings=(first.timing, found.timing),
        flags=frozenset(found.flags),
        last_level_cache_bytes=(
            bench.context.last_level_cache_bytes or bench.device.last_level_cache_bytes
        ),
        half_width_us=width_us if width_us < float("inf") else None,
        **seen,
    )
    return evolve(found, evidence=evidence, caught_by=found.caught_by or BY_ROOF)


def constant(inputs: Tensors) -> tuple[str, ...]:
    """Name the inputs of more than one element that are all equal."""
    return tuple(
        name
        for name, tensor in inputs.items()
        if tensor.numel() > 1 and bool((tensor.reshape(-1) == tensor.reshape(-1)[0]).all())
    )


def _standing(found: Measurement, floor_us: float | None) -> Measurement:
    """Compute what depends on the times."""
    assert found.bound is not None, "only what has a bound stands to it"
    share = roofline.share(found.bound, found.timing)
    return evolve(
        found,
        share=share,
        gap=roofline.gap(found.bound, found.timing, launch_floor_us=floor_us),
        flags=(*found.flags, *roofline.flags(share, found.limit)),
    )


def _look(found: Measurement) -> Mapping[str, Any]:
    share, timing = found.share, found.timing
    return {
        "device_us": timing.device_us,
        "call_us": timing.call_us,
        "held_us": timing.held_us,
        "method": timing.method,
        "share_device": share.device if share else None,
        "share_call": share.call if share else None,
    }
