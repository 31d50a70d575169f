"""A backend's own kernels as further honest implementations: judged by a referee, in a worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from attrs import evolve

from atrex_core.config import Settings
from atrex_core.errors import NothingToDo
from atrex_core.linting.nouns import LintRequest
from atrex_core.linting.selection import Selection
from atrex_core.model import Evaluation, Gate, Outcome, Protocol, Scale
from atrex_core.model.lint import Fate, Finding, Kind, Task
from atrex_core.planning import Plan
from atrex_core.plugins import PluginHost
from atrex_core.session import Session

log = logging.getLogger(__name__)


def kernel_plans(
    host: PluginHost, request: LintRequest, selection: Selection, scale: Scale
) -> Iterator[tuple[Settings, Plan]]:
    """Yield what the backend's kernels are to be tried on, for each protocol.

    Raises:
        UnknownName, Unavailable: there is no such backend, or it cannot be used here.
    """
    if request.backend is None:
        return
    found = False
    for protocol in Protocol:
        names = selection.names(protocol)
        if not names:
            continue
        settings = Settings(
            backend=request.backend,
            device=request.device,
            problem=tuple(names),
            scale=scale,
            protocol=protocol,
            cases=request.cases,
            timeout_s=request.timeout_s,
            until=Gate.CORRECTNESS,
            disabled_plugins=request.disabled_plugins,
        )
        try:
            with Session(settings, host=host) as session:
                planned = session.plan([])
        except NothingToDo:
            continue
        found = True
        yield settings, without(planned, lambda task: task not in selection.sizes, protocol)
    if not found:
        log.warning("backend %r ships no kernel for the selected problems", request.backend)


def without(planned: Plan, drop: Callable[[Task], bool], protocol: Protocol) -> Plan:
    """Return a plan that leaves out the workloads for which `drop` is true."""
    items = []
    for candidate, workloads in planned.items:
        kept = tuple(
            w
            for w in workloads
            if not drop(Task(problem=candidate.problem, workload=w.id, protocol=protocol))
        )
        if kept:
            items.append((candidate, kept))
    return evolve(planned, items=tuple(items))


def finding_of(evaluation: Evaluation) -> Finding:
    """Return what an evaluation says about the problem that it was judged by."""
    fate, reason = _fate(evaluation)
    correctness = evaluation.gates.get(Gate.CORRECTNESS)
    details = correctness.details if correctness else {}
    return Finding(
        problem=evaluation.problem,
        workload=evaluation.workload,
        protocol=evaluation.protocol,
        kind=Kind.KERNEL,
        name=evaluation.backend,
        fate=fate,
        regime=str(details["regime"]) if "regime" in details else None,
        reason=reason,
        seconds=evaluation.seconds,
    )


def _fate(evaluation: Evaluation) -> tuple[Fate, str | None]:
    silent: str | None = None
    for gate, result in evaluation.gates.items():
        said = f"{gate}: {result.reason}"
        match result.outcome:
            case Outcome.ERRORED:
                return Fate.BROKEN, said
            case Outcome.FAILED:
                return Fate.REFUSED, said
            case Outcome.SKIPPED:
                silent = silent or said
    correctness = evaluation.gates.get(Gate.CORRECTNESS)
    if correctness is not None and correctness.outcome is Outcome.PASSED:
        return Fate.ACCEPTED, None
    return Fate.SKIPPED, silent
