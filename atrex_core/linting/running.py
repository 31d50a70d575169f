"""Carry out a lint: tasks side by side, then kernels, every result in the journal first."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from atrex_core.device_choice import find_device
from atrex_core.errors import AtrexError, NothingToDo
from atrex_core.interfaces import Accelerator
from atrex_core.journal import Journal, LintKey, LintRecord, lint_key
from atrex_core.lint_process import Linters
from atrex_core.linting.kernels import finding_of, kernel_plans, without
from atrex_core.linting.nouns import HOST, LintPlan, LintRequest
from atrex_core.linting.selection import Selection
from atrex_core.model import Candidate, Device, Pack
from atrex_core.model.lint import Task
from atrex_core.plugins import PluginHost
from atrex_core.plugins.blame import blaming
from atrex_core.processes.messages import LintSetup
from atrex_core.session import Session

_SEED_BITS = 32


class Linting:
    """A place to lint problems. Close it, or use `with`."""

    def __init__(self, request: LintRequest, *, host: PluginHost | None = None) -> None:
        """Make one for a request."""
        self.request = request
        self.host = host or PluginHost.discover(disabled=request.disabled_plugins)
        self._journal = Journal(request.journal) if request.journal is not None else None
        self._linters: Linters | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes, and let others write the journal. What was found stays in it."""
        if self._linters is not None:
            self._linters.close()
        if self._journal is not None:
            self._journal.close()

    def plan(self) -> LintPlan:
        """Return what `run` would do.

        Raises:
            UnknownName, Unavailable: a problem, device or backend cannot be had.
            NothingToDo: the selection is empty.
        """
        request = self.request
        chosen, broken = self.host.problems.select_broken(*request.problems)
        accelerator, device = find_device(self.host, request.device or HOST)
        scale = request.scale or accelerator.default_scale
        selection = Selection(self.host, request, scale)
        for problem in chosen:
            selection.add(problem)
        for item in broken:
            selection.add_broken(item)
        if not selection.sizes and not selection.unusable:
            raise NothingToDo(selection.why_empty(), hint=selection.where_to_look(chosen))
        return LintPlan(
            accelerator=accelerator,
            device=device,
            scale=scale,
            seed=self._seed(),
            jobs=request.jobs or _side_by_side(accelerator, device),
            packs=dict(selection.packs),
            tasks=selection.tasks,
            kernels=tuple(kernel_plans(self.host, request, selection, scale)),
            unusable=tuple(selection.unusable),
            is_whole=not request.workloads and request.spread is None,
        )

    def earlier(self, planned: LintPlan) -> list[LintRecord]:
        """Return what the journal already holds of `planned`: `run` will not do it again."""
        if self._journal is None or not self.request.resume:
            return []
        held = self._journal.lints()
        found = (held.get(key) for key in self._keys(planned))
        return [r for r in found if r is not None and r.is_complete and self._has_our_seed(r)]

    def remaining(self, planned: LintPlan) -> int:
        """Return how many tasks `run` would carry out."""
        return sum(1 for _ in self._keys(planned)) - len(self.earlier(planned))

    def run(self, planned: LintPlan) -> Iterator[LintRecord]:
        """Lint everything in `planned`, yielding what is found once it is in the journal."""
        done = frozenset(lint_key(record) for record in self.earlier(planned))
        if self._journal is not None:
            self._journal.__enter__()  # a locked or full file is found out before the work
        yield from self._lint(planned, done)
        yield from self._try_kernels(planned, done)

    # -- inside --------------------------------------------------------------------------------

    def _lint(self, planned: LintPlan, done: Collection[LintKey]) -> Iterator[LintRecord]:
        tasks = [task for task in planned.tasks if self._key(planned, task) not in done]
        setup = LintSetup(
            device=planned.device.id,
            cases=self.request.cases,
            seed=planned.seed,
            timeout_s=self.request.timeout_s,
            threads=1 if planned.works_on_host else None,
            disabled_plugins=self.request.disabled_plugins,
        )
        self._linters = Linters(setup, self._environment(planned), planned.jobs)
        for found in self._linters.run(tasks):
            ready = self._linters.ready
            yield from self._recorded(
                LintRecord(
                    pack=planned.packs[found.task.problem],
                    task=found.task,
                    device=planned.device,
                    cases=self.request.cases,
                    seed=planned.seed,
                    findings=found.findings,
                    seconds=found.seconds,
                    environment=ready.environment if ready else {},
                    finished_at=_now(),
                )
            )

    def _try_kernels(self, planned: LintPlan, done: Collection[LintKey]) -> Iterator[LintRecord]:
        for settings, kernels in planned.kernels:
            by_problem = {candidate.problem: candidate for candidate, _ in kernels.items}

            def is_done(
                task: Task,
                by_problem: Mapping[str, Candidate] = by_problem,
                device: Device = kernels.device,
            ) -> bool:
                return self._key(planned, task, device, by_problem[task.problem]) in done

            with Session(settings, host=self.host) as session:
                for evaluation in session.run(without(kernels, is_done, settings.protocol)):
                    yield from self._recorded(
                        LintRecord(
                            pack=evaluation.pack,
                            task=Task(
                                problem=evaluation.problem,
                                workload=evaluation.workload,
                                protocol=evaluation.protocol,
                            ),
                            device=evaluation.device,
                            cases=settings.cases,
                            seed=None,
                            submission=evaluation.submission,
                            digest=evaluation.digest,
                            findings=(finding_of(evaluation),),
                            seconds=evaluation.seconds,
                            environment=evaluation.environment,
                            finished_at=_now(),
                        )
                    )

    def _recorded(self, record: LintRecord) -> Iterator[LintRecord]:
        if self._journal is not None:
            try:
                self._journal.add_lint(record)
            except AtrexError:
                yield record  # it is found, and shown, though the journal cannot hold it
                raise
        yield record

    def _keys(self, planned: LintPlan) -> Iterator[LintKey]:
        for task in planned.tasks:
            yield self._key(planned, task)
        for settings, kernels in planned.kernels:
            for candidate, workload in kernels:
                task = Task(
                    problem=candidate.problem, workload=workload.id, protocol=settings.protocol
                )
                yield self._key(planned, task, kernels.device, candidate)

    def _key(
        self,
        planned: LintPlan,
        task: Task,
        device: Device | None = None,
        candidate: Candidate | None = None,
    ) -> LintKey:
        pack: Pack = planned.packs[task.problem]
        return LintKey(
            pack_name=pack.name,
            pack_digest=pack.digest,
            task=task,
            device_name=(device or planned.device).name,
            cases=self.request.cases,
            submission=candidate.name if candidate else None,
            digest=candidate.digest if candidate else None,
        )

    def _seed(self) -> int:
        """Return the seed asked for, that of what is resumed, or a new one."""
        if self.request.seed is not None:
            return self.request.seed
        if self._journal is not None and self.request.resume:
            for record in self._journal.lints().values():
                if record.seed is not None:
                    return record.seed
        return secrets.randbits(_SEED_BITS)

    def _has_our_seed(self, record: LintRecord) -> bool:
        """Return whether a record answers a request for one seed, where it is such a request."""
        return self.request.seed is None or record.seed in (self.request.seed, None)

    def _environment(self, planned: LintPlan) -> Mapping[str, str]:
        accelerator = planned.accelerator
        with blaming(self.host.accelerators, accelerator.name):
            wanted = dict(accelerator.worker_environment(planned.device))
        return {**wanted, "OMP_NUM_THREADS": "1"} if planned.works_on_host else wanted


def _side_by_side(accelerator: Accelerator, device: Device) -> int:
    """Return how many processes a device serves as fast as one."""
    if device.virtual or device.id == HOST or not accelerator.exclusive:
        return device.compute_units or len(os.sched_getaffinity(0))
    return 1


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
