"""From what was observed to a gate's word. Pure functions."""

from __future__ import annotations

from atrex_core.interfaces import Stage
from atrex_core.model import GateResult, Outcome
from atrex_core.processes.messages import Broken, Done, Fault, Refused
from atrex_core.processes.workers import Answer, Died
from atrex_core.referee.stopwatch import Measurement


def from_answer(answer: Answer, *, case: str = "", on_stand_in: bool = False) -> GateResult:
    """Return what a worker's failure means: the candidate's fault, unless it is ours.

    Only a stand-in for an absent device may be unable to do what a candidate asks of it.
    """
    prefix = f"{case}: " if case else ""
    match answer:
        case Refused(fault=Fault.UNSUPPORTED, reason=reason) if on_stand_in:
            return GateResult(outcome=Outcome.SKIPPED, reason=prefix + reason)
        case Refused(reason=reason, details=details):
            return GateResult(outcome=Outcome.FAILED, reason=prefix + reason, details=details)
        case Died(stage=Stage.STARTUP, reason=reason, output=output):
            return GateResult(
                outcome=Outcome.ERRORED,
                reason=f"the worker {reason} before the candidate was loaded",
                details={"output": output},
            )
        case Died(stage=stage, reason=reason, where=where, output=output):
            place = f" ({where})" if where else ""
            return GateResult(
                outcome=Outcome.FAILED,
                reason=f"{prefix}the process {reason} during {stage}{place}",
                details={"output": output},
            )
        case Broken(reason=reason):
            return GateResult(outcome=Outcome.ERRORED, reason=prefix + reason)
        case Done():
            raise AssertionError("an answer that is no failure")


def performance(found: Measurement) -> GateResult:
    """Return the performance gate's word on a measurement."""
    timing = found.timing
    if timing.device_us is None and timing.call_us is None:
        return GateResult(outcome=Outcome.SKIPPED, reason=timing.reason)
    if found.bound is None:
        return GateResult(outcome=Outcome.SKIPPED, reason=found.unbounded_reason)
    details = {
        "device_us": timing.device_us,
        "call_us": timing.call_us,
        "t_sol_us": found.bound.t_sol_us,
        "method": timing.method,
    }
    return GateResult(outcome=Outcome.PASSED, details=details)
