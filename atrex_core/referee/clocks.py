"""Put the clocks side by side, and say which figure counts. Pure functions."""

from __future__ import annotations

from statistics import median

from attrs import evolve, frozen

from atrex_core.interfaces import DeviceSamples
from atrex_core.model import Timing
from atrex_core.precision import is_settled
from atrex_core.referee.held_clock import HeldTimes

METHOD = "held queue, by the referee's clock"
METHOD_CALL = "wall time of calls that wait for the device, by the referee's clock"

DISPUTED = "clock_disputed"
UNCHECKED = "clock_unchecked"
UNSTABLE = "unstable"

BY_SLOPE = "time of a held queue"
BY_FRESH = "time on inputs never seen before"
_SAID = {
    BY_SLOPE: "the referee's clock says",
    BY_FRESH: "on inputs that it had never seen it took",
}

_SHARE = 0.1
_SLACK_US = 2.5
"""A queue leaves its device idle between a call and the copies of its outputs, and after them."""
_SYNCHRONOUS_SHARE = 0.4
_SYNCHRONOUS_SLACK_US = 10.0
"""What a host's own bookkeeping, and other load on it, may add."""
_FRESH_SHARE = 0.35
_FRESH_SLACK_US = 5.0
_WAITING_SLACK_US = 15.0
_SYNCHRONOUS_FRESH_SHARE = 0.75
_SYNCHRONOUS_FRESH_SLACK_US = 100.0
"""The first round is one round: it has no slope, and may be the one that somebody disturbed.

On a host, whose caches and threads it must also wake, that is likely.
"""


@frozen(kw_only=True)
class Settled:
    """The times that count, and what is wrong with them."""

    timing: Timing
    flags: tuple[str, ...] = ()
    caught_by: str | None = None
    """Which clock shows that the claim is false."""


def settle(
    samples: DeviceSamples,
    held: HeldTimes,
    call_slopes_us: tuple[float, ...],
    *,
    is_synchronous: bool,
) -> Settled:
    """Return the times that count, and flags for what is wrong with them.

    Where what the worker says of itself is clearly less than what the referee saw, the referee's
    figure counts. Where one of the two is missing, the other counts, and the reason is kept. A
    forward that waits for the device is measured by wall time alone.

    Args:
        samples: The worker's claim.
        held: What the referee's clock says.
        call_slopes_us: Wall time of one call, one figure for each round.
        is_synchronous: Whether the host that runs the calls is the device.
    """
    timing = Timing(
        device_us=Timing.median_us(samples.samples_us),
        call_us=median(call_slopes_us) if call_slopes_us else None,
        method=samples.method,
        samples_us=samples.samples_us,
        call_samples_us=call_slopes_us,
        held_us=held.call_us,
        reason=samples.reason,
    )
    if held.waits and timing.call_us is not None:
        return _settle_call(timing, timing.call_us, held)
    seen_us, by = _seen(held, timing, is_synchronous=is_synchronous)
    if timing.device_us is None:
        if held.call_us is None:
            reasons = [reason for reason in (samples.reason, held.reason) if reason]
            return Settled(timing=evolve(timing, reason="; ".join(dict.fromkeys(reasons)) or None))
        believed_us = max(held.call_us, seen_us or 0.0)
        return Settled(timing=evolve(timing, device_us=believed_us, method=METHOD))
    if held.call_us is None and held.fresh_us is None:
        reason = f"the referee could not check the clock: {held.reason}"
        unchecked = evolve(timing, reason=reason)
        return Settled(timing=unchecked, flags=(UNCHECKED, *_spread(timing)))
    if seen_us is None:
        return Settled(timing=timing, flags=_spread(timing))
    reason = (
        f"the process claimed {timing.device_us:.2f} us a call, but {_SAID[by]} {seen_us:.2f} us: "
        "the latter counts"
    )
    believed = evolve(timing, device_us=seen_us, method=METHOD, reason=reason)
    return Settled(timing=believed, flags=(DISPUTED,), caught_by=by)


def _settle_call(timing: Timing, call_us: float, held: HeldTimes) -> Settled:
    """Return wall time for both times: of a forward that waits, nothing else can be checked."""
    fresh_us = held.fresh_us or 0.0
    if call_us >= (1 - _FRESH_SHARE) * fresh_us - _WAITING_SLACK_US:
        waiting = evolve(timing, device_us=call_us, method=METHOD_CALL, reason=held.reason)
        return Settled(timing=waiting, flags=(UNCHECKED,))
    reason = (
        f"calls took {call_us:.2f} us, but {_SAID[BY_FRESH]} {fresh_us:.2f} us: the latter counts"
    )
    believed = evolve(
        timing, device_us=fresh_us, call_us=fresh_us, method=METHOD_CALL, reason=reason
    )
    return Settled(timing=believed, flags=(DISPUTED, UNCHECKED), caught_by=BY_FRESH)


def _seen(held: HeldTimes, timing: Timing, *, is_synchronous: bool) -> tuple[float | None, str]:
    """Return what the referee saw where no honest claim could be so far below it, and how.

    On a host, other load stretches a long round more than a short call: of the referee's two
    slopes, the smaller counts there.
    """
    claimed_us = timing.device_us or 0.0
    slope_us, fresh_us = held.call_us, held.fresh_us
    share, slack_us = _SHARE, _SLACK_US
    fresh_share, fresh_slack_us = _FRESH_SHARE, _FRESH_SLACK_US
    if is_synchronous:
        share, slack_us = _SYNCHRONOUS_SHARE, _SYNCHRONOUS_SLACK_US
        fresh_share, fresh_slack_us = _SYNCHRONOUS_FRESH_SHARE, _SYNCHRONOUS_FRESH_SLACK_US
        if slope_us is not None and timing.call_us is not None:
            slope_us = min(slope_us, timing.call_us)
    most_us = max(claimed_us, slope_us or 0.0)
    if fresh_us is not None and most_us < (1 - fresh_share) * fresh_us - fresh_slack_us:
        return fresh_us, BY_FRESH
    slack_us += held.write_back_us
    if slope_us is not None and claimed_us < (1 - share) * slope_us - slack_us:
        return slope_us, BY_SLOPE
    return None, ""


def _spread(timing: Timing) -> tuple[str, ...]:
    """Return a flag where the median of the samples is not known well."""
    return () if is_settled(timing.samples_us) else (UNSTABLE,)
