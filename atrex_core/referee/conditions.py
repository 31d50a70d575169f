"""Keep the conditions of a timing with it, and say which make it doubtful. Pure functions."""

from __future__ import annotations

from typing import Final

from attrs import evolve

from atrex_core.model import Conditions, ThrottleReason, TimingConditions
from atrex_core.referee.clocks import Settled

THROTTLED: Final = "throttled"
SHARED: Final = "shared_device"
DRIFTED: Final = "clock_drift"

DRIFT: Final = 0.05
"""By how much the clock may change while something is timed."""


def noted(settled: Settled, before: Conditions | None, after: Conditions | None) -> Settled:
    """Return times with their conditions and flags; as they are where nothing can be read."""
    if before is None or after is None:
        return settled
    found = TimingConditions(before=before, after=after)
    return evolve(
        settled,
        timing=evolve(settled.timing, conditions=found),
        flags=(*settled.flags, *flags(found)),
    )


def flags(found: TimingConditions) -> tuple[str, ...]:
    """Return what is wrong with the conditions. What is not known raises no flag."""
    raised = []
    if any(reason.is_slowdown for reason in found.after.throttle_reasons or ()):
        raised.append(THROTTLED)
    if any(moment.other_processes for moment in (found.before, found.after)):
        raised.append(SHARED)
    if _has_drifted(found):
        raised.append(DRIFTED)
    return tuple(raised)


def _has_drifted(found: TimingConditions) -> bool:
    """Compare two clocks under load: that of an idle device says nothing about a time."""
    before, after = _loaded_clock_mhz(found.before), _loaded_clock_mhz(found.after)
    if before is None or after is None:
        return False
    return abs(after - before) > DRIFT * max(before, after)


def _loaded_clock_mhz(moment: Conditions) -> float | None:
    reasons = moment.throttle_reasons
    is_idle = reasons is None or ThrottleReason.IDLE in reasons
    return None if is_idle else moment.clock_mhz
