"""Evaluate candidates: the Python API, of which the command line is a client.

    with Session(backend=NAME) as session:
        for evaluation in session.evaluate("kernel.py", problem=NAME):
            print(evaluation.workload, evaluation.outcome, evaluation.reason)

A session keeps its referee and its warm fork server between calls, so an agent or a training
loop pays for imports once.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from attrs import evolve

from atrex_core.blank import blank_evaluation
from atrex_core.config import Settings, changed
from atrex_core.errors import AtrexError, UsageError
from atrex_core.journal import Journal, ResumeKey, limits_changed, resume_key
from atrex_core.model import (
    Candidate,
    Evaluation,
    Gate,
    GateResult,
    Outcome,
    Workload,
)
from atrex_core.planning import Plan, plan
from atrex_core.plugins import PluginHost
from atrex_core.processes.messages import Setup
from atrex_core.referee_process import RefereeLost, RefereeProcess


class Session:
    """A place to evaluate candidates, for one set of `Settings`. Close it, or use `with`."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        host: PluginHost | None = None,
        **options: Any,
    ) -> None:
        """Make a session from `settings`, changed by `options` (the fields of `Settings`).

        Raises:
            UsageError: an option has no such name, or a value is unusable.
        """
        self.settings = changed(settings or Settings(), options)
        self.host = host or PluginHost.discover(disabled=self.settings.disabled_plugins)
        self._referee: RefereeProcess | None = None
        self._journal: Journal | None = None
        self._recorded: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def evaluate(
        self, path: str | os.PathLike[str] | None = None, *, problem: str | None = None
    ) -> tuple[Evaluation, ...]:
        """Evaluate one candidate file or folder; without one, the backend's own kernels.

        Args:
            path: a file named after its problem, or any file when `problem` is given.
            problem: the problem's name; replaces the session's selection for this call.

        Raises:
            AtrexError: the request, this machine or a plugin is at fault, never the candidate.
        """
        return tuple(self.run(self.plan([Path(path)] if path is not None else [], problem)))

    def plan(self, paths: Sequence[Path], problem: str | None = None) -> Plan:
        """Return what `run` would do."""
        least = self.settings.protocol.least_cases
        if self.settings.cases < least:
            raise UsageError(
                f"{self.settings.cases} cases are too few: the {self.settings.protocol} protocol "
                f"asks for at least {least}",
                hint="leave --cases out, or ask for more",
            )
        settings = evolve(self.settings, problem=(problem,)) if problem else self.settings
        return plan(self.host, settings, paths)

    def run(self, planned: Plan) -> Iterator[Evaluation]:
        """Evaluate everything in `planned`, yielding each result once it is in the journal."""
        if self.settings.journal is not None:
            self._open_journal().__enter__()  # a locked or full file is found out before the work
        done = self._completed(planned)
        for candidate, workloads in planned.items:
            missing = [w for w in workloads if self._key(planned, candidate, w) not in done]
            if missing:
                yield from self._run_candidate(planned, candidate, missing)

    def remaining(self, planned: Plan) -> int:
        """Return how many evaluations `run` would make, with `resume` taken into account."""
        if not self._resumes():
            return len(planned)
        done = self._completed(planned)
        return sum(self._key(planned, c, w) not in done for c, w in planned)

    def earlier(self, planned: Plan) -> list[Evaluation]:
        """Return what the journal already holds of `planned`: `run` will not make it again."""
        if not self._resumes():
            return []
        wanted = {self._key(planned, c, w) for c, w in planned}
        complete = self._completed(planned) & wanted
        if not complete:  # there may be no file yet
            return []
        journal = self._open_journal()
        latest = {resume_key(e): e for e in journal if resume_key(e) in complete}
        return list(latest.values())

    def close(self) -> None:
        """End the processes. Everything judged so far stays in the journal."""
        self._drop_referee()
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    # -- inside --------------------------------------------------------------------------------

    def _run_candidate(
        self, planned: Plan, candidate: Candidate, workloads: Sequence[Workload]
    ) -> Iterator[Evaluation]:
        begun: RefereeProcess | None = None
        for workload in workloads:
            evaluation_id = uuid.uuid4().hex
            try:
                referee = self._ready(planned)
                if begun is not referee:
                    referee.begin(candidate)
                    begun = referee
                found = referee.judge(evaluation_id, workload.id, self.host.gate_finished)
            except RefereeLost as lost:
                self._drop_referee()
                found = self._errored(planned, candidate, workload, evaluation_id, lost)
            try:
                self._record(candidate, found)
            except AtrexError:
                yield found  # it is judged, and shown, though the journal cannot hold it
                raise
            yield found

    def _ready(self, planned: Plan) -> RefereeProcess:
        setup = self._setup(planned)
        if self._referee is not None and self._referee.setup != setup:
            self._drop_referee()
        if self._referee is None:
            environment = planned.accelerator.worker_environment(planned.device)
            self._referee = RefereeProcess.start(setup, environment)
        referee = self._referee
        try:
            _ = referee.ready
        except BaseException:
            self._referee = None
            referee.stop()
            raise
        return referee

    def _drop_referee(self) -> None:
        if self._referee is not None:
            self._referee.stop()
            self._referee = None

    def _setup(self, planned: Plan) -> Setup:
        settings = self.settings
        return Setup(
            backend=planned.backend.name,
            device=planned.device.id,
            targets=planned.targets,
            protocol=settings.protocol,
            until=settings.until or Gate.AUTHENTICITY,
            profile=settings.profile,
            cases=settings.cases,
            timeout_s=settings.timeout_s,
            memory_limit_bytes=settings.memory_limit_bytes,
            perf_budget_s=settings.perf_budget_s,
            disabled_plugins=settings.disabled_plugins,
        )

    def _record(self, candidate: Candidate, evaluation: Evaluation) -> Evaluation:
        if self.settings.journal is not None:
            journal = self._open_journal()
            if candidate.digest not in self._recorded:
                journal.add_candidate(candidate)
                self._recorded.add(candidate.digest)
            journal.append(evaluation)
        self.host.evaluation_finished(evaluation)
        return evaluation

    def _open_journal(self) -> Journal:
        if self._journal is None:
            assert self.settings.journal is not None, "callers check"
            self._journal = Journal(self.settings.journal)
        return self._journal

    def _completed(self, planned: Plan) -> frozenset[ResumeKey]:
        if not self._resumes():
            return frozenset()
        request = self._setup(planned).request
        journal = self._open_journal()
        complete = journal.completed(self.settings.until)
        if not complete:  # there may be no file yet
            return complete
        latest = {resume_key(e): e for e in journal}
        return frozenset(key for key in complete if not limits_changed(latest[key], request))

    def _resumes(self) -> bool:
        return self.settings.resume and self.settings.journal is not None

    def _key(self, planned: Plan, candidate: Candidate, workload: Workload) -> ResumeKey:
        return resume_key(self._blank(planned, candidate, workload, "planned"))

    def _errored(
        self,
        planned: Plan,
        candidate: Candidate,
        workload: Workload,
        evaluation_id: str,
        error: RefereeLost,
    ) -> Evaluation:
        blank = self._blank(planned, candidate, workload, evaluation_id)
        result = GateResult(outcome=Outcome.ERRORED, reason=str(error))
        self.host.gate_finished(evaluation_id, Gate.COMPILE, result)
        return evolve(blank, gates={Gate.COMPILE: result})

    def _blank(
        self, planned: Plan, candidate: Candidate, workload: Workload, evaluation_id: str
    ) -> Evaluation:
        problem = next(p for p in planned.problems if p.name == candidate.problem)
        return blank_evaluation(
            evaluation_id,
            candidate,
            problem,
            workload,
            backend=planned.backend,
            accelerator=planned.accelerator,
            device=planned.device,
            protocol=self.settings.protocol,
            request=self._setup(planned).request,
        )
