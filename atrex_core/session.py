"""Evaluate candidates: the Python API, of which the command line is a client.

    with Session(backend=NAME) as session:
        for evaluation in session.evaluate("kernel.py", problem=NAME):
            print(evaluation.workload, evaluation.outcome, evaluation.reason)

A session keeps its referee and its warm fork server between calls, so an agent or a training
loop pays for imports once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Generator, Sequence
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
    Device,
    Evaluation,
    Gate,
    GateResult,
    Outcome,
    RunCost,
    Workload,
)
from atrex_core.planning import Plan, plan
from atrex_core.plugins import PluginHost
from atrex_core.printable import one_line
from atrex_core.processes.messages import Setup
from atrex_core.scheduling import Crew, Done, LeftOut, Pool, Post, Spoke, Tally

log = logging.getLogger(__name__)

Evaluations = Generator[Evaluation, None, None]


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
        self._posts: dict[str, Post] = {}
        self._crew: Crew | None = None
        self._journal: Journal | None = None
        self._recorded: set[str] = set()
        self._tally = Tally()

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

    def run(self, planned: Plan) -> Evaluations:
        """Evaluate everything in `planned`, yielding each result once it is in the journal.

        Several devices take work from one queue, in any order; one goes through it in order.
        Closing the iterator ends what is under way: see `late`.
        """
        if self.settings.journal is not None:
            self._open_journal().__enter__()  # a locked or full file is found out before the work
        done = self._completed(planned)
        wanted = [
            (candidate, [w for w in workloads if self._key(planned, candidate, w) not in done])
            for candidate, workloads in planned.items
        ]
        pool, posts = Pool(wanted), self._man(planned)
        self._tally = tally = Tally(tuple(posts))
        try:
            if len(posts) > 1:
                yield from self._run_together(planned, pool, posts)
            else:
                yield from self._run_alone(planned, pool, posts[0])
        finally:
            tally.end()

    @property
    def cost(self) -> RunCost:
        """What the last run has cost, so far where it is under way."""
        return self._tally.cost

    @property
    def late(self) -> Sequence[Evaluation]:
        """What was judged while the last run was being ended, so that it was never yielded.

        It is in the journal, where there is one that takes it.
        """
        return tuple(self._tally.late)

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
        self._wind_up()
        self._tally.end()
        posts, self._posts = self._posts.values(), {}
        for post in posts:
            post.dismiss()
        for post in posts:
            post.drop()
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    # -- inside --------------------------------------------------------------------------------

    def _man(self, planned: Plan) -> list[Post]:
        """Return a post for each device, with the referee that an earlier run has left there."""
        setups = {device.id: self._setup(planned, device) for device in planned.devices}
        for id_, post in list(self._posts.items()):
            if post.is_ended or post.setup != setups.get(id_):
                del self._posts[id_]
                post.drop()
        for device in planned.devices:
            if device.id not in self._posts:
                environment = planned.accelerator.worker_environment(device)
                self._posts[device.id] = Post(device, setups[device.id], environment)
            self._posts[device.id].begin_run()
        return [self._posts[id_] for id_ in setups]

    def _run_alone(self, planned: Plan, pool: Pool, post: Post) -> Evaluations:
        while (job := pool.take(post)) is not None:
            yield from self._concluded(planned, post.work(job, self.host.gate_finished))

    def _run_together(self, planned: Plan, pool: Pool, posts: Sequence[Post]) -> Evaluations:
        left_out: list[LeftOut] = []
        self._crew = Crew(posts, pool)
        try:
            for event in self._crew.events():
                match event:
                    case Spoke():
                        self.host.gate_finished(event.evaluation_id, event.gate, event.result)
                    case Done():
                        yield from self._concluded(planned, event)
                    case LeftOut():
                        log.warning("%s", one_line(str(event)))
                        left_out.append(event)
        finally:
            self._wind_up()
        if left_out:  # and the others have done everything, if there are any
            raise left_out[0].refusal

    def _concluded(self, planned: Plan, done: Done) -> Evaluations:
        if isinstance(done.found, Evaluation):
            found = done.found
        else:
            found = self._errored(planned, done, done.found)
        try:
            self._record(done.job.candidate, found)
        except AtrexError:
            self._tally.yielded.add(found.id)
            yield found  # it is judged, and shown, though the journal cannot hold it
            raise
        self._tally.yielded.add(found.id)
        yield found

    def _wind_up(self) -> None:
        """End those who work together; keep what they have judged and nobody has read."""
        crew, self._crew = self._crew, None
        if crew is None:
            return
        unread = crew.stop()
        written = self._written()
        for event in unread:
            if isinstance(event, Spoke):
                self.host.gate_finished(event.evaluation_id, event.gate, event.result)
            elif isinstance(event, Done) and isinstance(event.found, Evaluation):
                self._keep_late(event.job.candidate, event.found, written)

    def _keep_late(self, candidate: Candidate, found: Evaluation, written: Container[str]) -> None:
        if found.id in self._tally.yielded:
            return
        self._tally.late.append(found)
        if found.id in written:
            return
        try:
            self._record(candidate, found)
        except AtrexError as error:  # what ends the run is said already
            log.warning("%s", one_line(str(error)))

    def _written(self) -> frozenset[str]:
        """Return the ids of what is in the journal: an interrupt may come when a line is there."""
        if self._journal is None:
            return frozenset()
        try:
            return frozenset(evaluation.id for evaluation in self._journal)
        except AtrexError:  # what ends the run is said already
            return frozenset()

    def _setup(self, planned: Plan, device: Device) -> Setup:
        settings = self.settings
        return Setup(
            backend=planned.backend.name,
            device=device.id,
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

    def _record(self, candidate: Candidate, evaluation: Evaluation) -> None:
        if self.settings.journal is not None:
            journal = self._open_journal()
            if candidate.digest not in self._recorded:
                journal.add_candidate(candidate)
                self._recorded.add(candidate.digest)
            journal.append(evaluation)
        self._tally.count(evaluation)
        self.host.evaluation_finished(evaluation)

    def _open_journal(self) -> Journal:
        if self._journal is None:
            assert self.settings.journal is not None, "callers check"
            self._journal = Journal(self.settings.journal)
        return self._journal

    def _completed(self, planned: Plan) -> frozenset[ResumeKey]:
        if not self._resumes():
            return frozenset()
        request = self._setup(planned, planned.device).request
        journal = self._open_journal()
        complete = journal.completed(self.settings.until)
        if not complete:  # there may be no file yet
            return complete
        latest = {resume_key(e): e for e in journal}
        return frozenset(key for key in complete if not limits_changed(latest[key], request))

    def _resumes(self) -> bool:
        return self.settings.resume and self.settings.journal is not None

    def _key(self, planned: Plan, candidate: Candidate, workload: Workload) -> ResumeKey:
        return resume_key(self._blank(planned, planned.device, candidate, workload, "planned"))

    def _errored(self, planned: Plan, done: Done, error: AtrexError) -> Evaluation:
        job, id_ = done.job, done.evaluation_id
        blank = self._blank(planned, done.device, job.candidate, job.workload, id_)
        result = GateResult(outcome=Outcome.ERRORED, reason=str(error))
        self.host.gate_finished(id_, Gate.COMPILE, result)
        return evolve(blank, gates={Gate.COMPILE: result})

    def _blank(
        self,
        planned: Plan,
        device: Device,
        candidate: Candidate,
        workload: Workload,
        evaluation_id: str,
    ) -> Evaluation:
        problem = next(p for p in planned.problems if p.name == candidate.problem)
        return blank_evaluation(
            evaluation_id,
            candidate,
            problem,
            workload,
            backend=planned.backend,
            accelerator=planned.accelerator,
            device=device,
            protocol=self.settings.protocol,
            request=self._setup(planned, device).request,
        )
