"""From what was observed to a gate's word. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from atrex_core import codec, roofline
from atrex_core.interfaces import KernelReport, Stage
from atrex_core.model import GateResult, Outcome
from atrex_core.processes.messages import Broken, Done, Fault, Refused
from atrex_core.processes.workers import Answer, Died
from atrex_core.referee.roof import Measurement


def from_answer(answer: Answer, *, case: str = "", on_stand_in: bool = False) -> GateResult:
    """Return what a worker's failure means: the candidate's fault, unless it is ours.

    Only a stand-in for an absent device may be unable to do what a candidate asks of it.
    """
    prefix = f"{case}: " if case else ""
    match answer:
        case Refused(fault=Fault.UNSUPPORTED, reason=reason) if on_stand_in:
            return GateResult(outcome=Outcome.SKIPPED, reason=prefix + reason)
        case Refused(fault=Fault.CONTRACT, reason=reason, details=details):
            details = {"caught_by": "contract of forward", **details}
            return GateResult(outcome=Outcome.FAILED, reason=prefix + reason, details=details)
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


def is_compile_failure(answer: Answer) -> bool:
    """Return whether a candidate did not get as far as a call."""
    match answer:
        case Refused(fault=Fault.COMPILE):
            return True
        case Refused(stage=stage) | Died(stage=stage):
            return stage in (Stage.STARTUP, Stage.IMPORT, Stage.CONSTRUCT, Stage.COMPILE)
        case _:
            return False


def performance(
    found: Measurement, *, errors: Mapping[str, Any], launches: int | None = None
) -> GateResult:
    """Return the performance gate's word on a measurement.

    A time that beats its bound is not judged: nobody knows yet what is wrong.

    Args:
        found: What timing found.
        errors: Details of the correctness gate.
        launches: Of the target DSL's kernels, in one call.
    """
    timing = found.timing
    if timing.device_us is None and timing.call_us is None:
        return GateResult(outcome=Outcome.SKIPPED, reason=timing.reason)
    if found.bound is None:
        return GateResult(outcome=Outcome.SKIPPED, reason=found.unbounded_reason)
    details: dict[str, Any] = {
        "device_us": timing.device_us,
        "call_us": timing.call_us,
        "t_sol_us": found.bound.t_sol_us,
        "method": timing.method,
        **({"caught_by": found.caught_by} if found.caught_by else {}),
    }
    if found.remeasured is not None:
        details["above_roofline"] = dict(found.remeasured)
    if found.evidence is None:
        return GateResult(outcome=Outcome.PASSED, details=details)
    evidence = evolve(
        found.evidence,
        launches=launches,
        relative_l2=errors.get("relative_l2", {}),
        relative_l2_honest=errors.get("relative_l2_honest", {}),
    )
    causes = roofline.causes(evidence)
    first = roofline.leading(causes)
    details["above_roofline"]["needs"] = dict(roofline.needed(evidence))
    details["above_roofline"]["leading"] = first.name
    details["above_roofline"]["causes"] = [codec.unstructure(cause) for cause in causes]
    why = f": {first.speaks_for[0]}" if first.speaks_for else ""
    reason = (
        f"{evidence.time_us:.4g} us is {evidence.bound.t_sol_us / evidence.time_us:.3g} of the "
        f"roofline (at most {found.limit:.3g} is believed), measured twice: withheld until "
        f"explained; check {first.name} first{why}"
    )
    return GateResult(outcome=Outcome.SKIPPED, reason=reason, details=details)


WOKEN = "a process that compiles ahead was woken while calls were timed"


def left_behind(reason: str) -> GateResult:
    """Return that something of the candidate's runs beside the calls that are judged."""
    details = {"caught_by": "processes left behind"}
    return GateResult(outcome=Outcome.FAILED, reason=reason, details=details)


def untimed(device: str) -> GateResult:
    """Return that a device of this id has no clock."""
    reason = (
        f"{device} stands in for a device that is not here: "
        "it judges compilation, correctness and evidence, and never gives a time"
    )
    return GateResult(outcome=Outcome.SKIPPED, reason=reason)


def without_own_launch(dsl: str, details: Mapping[str, Any]) -> GateResult:
    """Return that a call never reached a kernel of the candidate's own.

    Args:
        dsl: What the kernels should be written in.
        details: Of what a call launched, by `kernels` and `launches`.
    """
    elsewhere = f"; it launched {', '.join(details['kernels'])}" if details["kernels"] else ""
    reason = f"forward launched no {dsl} kernel from the candidate's own file{elsewhere}"
    details = {**details, "caught_by": "launches"}
    return GateResult(outcome=Outcome.FAILED, reason=reason, details=details)


def right_without_launches(dsl: str, details: Mapping[str, Any]) -> GateResult:
    """Return that the answer does not need the DSL's kernels."""
    reason = (
        f"the answer is still right with every {dsl} launch suppressed: something else computed it"
    )
    details = {**details, "caught_by": "knock-out"}
    return GateResult(outcome=Outcome.FAILED, reason=reason, details=details)


def kernel_report(report: KernelReport) -> Mapping[str, Any]:
    """Return what a compiler says of a kernel as plain values."""
    return {
        "kernel": report.kernel,
        "target": report.target,
        "registers": report.registers,
        "shared_bytes": report.shared_bytes,
        "spills": report.spills,
        "matrix_instructions": list(report.matrix_instructions),
        "binary_bytes": report.binary_bytes,
        "compile_seconds": report.compile_seconds,
    }
