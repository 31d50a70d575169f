"""An evaluation that says who, what and where, and nothing found yet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from atrex_core.interfaces import Accelerator, Backend, Problem
from atrex_core.model import (
    Candidate,
    Device,
    Evaluation,
    Gate,
    GateResult,
    Isolation,
    Outcome,
    Protocol,
    Workload,
)


def blank_evaluation(
    evaluation_id: str,
    candidate: Candidate,
    problem: Problem,
    workload: Workload,
    *,
    backend: Backend,
    accelerator: Accelerator,
    device: Device,
    protocol: Protocol,
    request: Mapping[str, str],
) -> Evaluation:
    """Return what is known before anything runs; `attrs.evolve` adds what was found."""
    return Evaluation(
        id=evaluation_id,
        submission=candidate.name,
        candidate=str(candidate.path),
        digest=candidate.digest,
        pack=problem.pack,
        problem=problem.name,
        workload=workload.id,
        phase=workload.phase,
        origin=workload.origin,
        scale=workload.scale,
        backend=backend.name,
        accelerator=accelerator.name,
        device=device,
        target=device.arch,
        profile=None,
        profile_digest=None,
        protocol=protocol,
        isolation=Isolation.PROCESS,
        gates={Gate.COMPILE: GateResult(outcome=Outcome.SKIPPED, reason="not evaluated")},
        request=request,
        importance=problem.importance,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
