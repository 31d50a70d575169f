"""Workers without a device, which compile what the first call of a workload will need.

Nothing that they do or say changes a verdict. What they leave undone is compiled by the worker
that holds the device, as if there were none of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from attrs import define, evolve, field, frozen

from atrex_core.errors import HarnessError
from atrex_core.interfaces import KernelReport, Problem
from atrex_core.model import Device, TensorSpec
from atrex_core.printable import one_line
from atrex_core.processes.family import Standstill
from atrex_core.processes.fork_server import (
    ForkServerBranch,
    ForkServerProcess,
    Role,
    ServerLost,
)
from atrex_core.processes.messages import Broken, Done, Foresee, Load, Refused, Start
from atrex_core.processes.workers import Abandoned, Answer, Died, Worker

_MOST_LANES = 4
_MOST_DEATHS = 2
_PARK_S = 2.0
_CLOSE_S = 20.0
_A_DAY_S = 86400.0


@frozen(kw_only=True)
class Scene:
    """One workload, as far as compiling goes."""

    workload: str
    init: Mapping[str, Any]
    inputs: tuple[TensorSpec, ...]


@frozen(kw_only=True)
class Ahead:
    """What was done ahead for one workload, as its forerunner says."""

    kernels: int = 0
    """How many were compiled that no earlier workload had needed."""
    seconds: float = 0.0
    """What that took of processors."""
    reason: str | None = None
    """Why something may have been left to the first call; None where nothing was."""
    waited_s: float = 0.0
    """How long the device has waited for it."""

    def details(self) -> Mapping[str, Any]:
        """Return this as an evaluation keeps it."""
        return {
            "kernels": self.kernels,
            "seconds": round(self.seconds, 3),
            "waited_seconds": round(self.waited_s, 3),
            "reason": self.reason,
        }


def scenes(problem: Problem, workloads: Sequence[str]) -> list[Scene]:
    """Return the workloads of a problem with these ids, in their order; it may have lost some."""
    known = {workload.id: workload for workload in problem.workloads}
    return [
        Scene(workload=id_, init=dict(known[id_].init), inputs=tuple(problem.inputs(known[id_])))
        for id_ in dict.fromkeys(workloads)
        if id_ in known
    ]


@define(eq=False)
class Lane:
    """Room for one forerunner at a time."""

    branch: ForkServerBranch
    taken: threading.Lock = field(factory=threading.Lock)
    """Held by whoever uses the branch."""


@define(eq=False)
class Forerunners:
    """What outlives a candidate: a warm server that sees no device, and its lanes."""

    trunk: ForkServerProcess
    lanes: tuple[Lane, ...]

    @classmethod
    def beside(cls, server: ForkServerProcess, hiding: Mapping[str, str] | None) -> Self | None:
        """Start a server like `server`, from which the variables `hiding` hide every device.

        It forks as many workers as half of the processors, four at most; without `hiding`, there
        is none.
        """
        if hiding is None:
            return None
        trunk = ForkServerProcess(
            backend=server.backend,
            accelerator=server.accelerator,
            plugins=server.plugins,
            environment={**server.environment, **hiding},
            role=Role.AHEAD,
            bystander=server,
        )
        server.bystander = trunk
        trunk.start()
        count = max(1, min(_MOST_LANES, len(os.sched_getaffinity(0)) // 2))
        return cls(trunk, tuple(Lane(ForkServerBranch(trunk)) for _ in range(count)))

    def close(self, *, grace_s: float = _CLOSE_S) -> None:
        """Leave no process behind."""
        for lane in self.lanes:
            lane.branch.stop(grace_s=grace_s)
        self.trunk.retire(grace_s=grace_s)


@define(eq=False, kw_only=True)
class Vanguard:
    """The forerunners of one candidate, each attended to by a thread of ours."""

    forerunners: Forerunners
    device: Device
    torch_device: str
    candidate: str
    """Its file among `files`."""
    files: Mapping[str, bytes]
    cache: Path
    targets: tuple[str, ...]
    timeout_s: float
    memory_limit_bytes: int | None
    """Of all of them together."""
    _changed: threading.Condition = field(factory=threading.Condition, init=False)
    """Guards everything below, and says when any of it changes."""
    _scenes: deque[Scene] = field(factory=deque, init=False)
    _results: dict[str, Ahead] = field(factory=dict, init=False)
    _expected: set[str] = field(factory=set, init=False)
    _seconds: dict[str, float] = field(factory=dict, init=False)
    """What compiling took, by a binary's digest."""
    _gave_up: str | None = field(default=None, init=False)
    _deaths: int = field(default=0, init=False)
    _has_begun: bool = field(default=False, init=False)
    """Whether any thread has had a server to fork from."""
    _busy: int = field(default=0, init=False)
    """Threads that have a worker, and so a process to look after."""
    _parked: int = field(default=0, init=False)
    _paused: bool = field(default=False, init=False)

    def start(self, scenes: Sequence[Scene]) -> None:
        """Begin with `scenes`, in order."""
        self._scenes.extend(scenes)
        self._expected = {scene.workload for scene in scenes}
        for lane in self.forerunners.lanes[: len(scenes)]:
            threading.Thread(target=self._attend, args=(lane,), daemon=True).start()

    def wait_for(self, workload: str, wait_s: float) -> Ahead:
        """Return what was done for `workload`, once it is, or within `wait_s` at most.

        What nobody has begun by now is begun next.
        """
        started = time.monotonic()
        with self._changed:
            if workload not in self._expected:
                return Ahead(reason="it was not announced")
            self._prefer(workload)
            self._changed.wait_for(
                lambda: workload in self._results or self._gave_up is not None, timeout=wait_s
            )
            reason = self._gave_up or f"not done within {wait_s:g} s"
            found = self._results.get(workload) or Ahead(reason=reason)
            self._forget(workload)
            if not self._has_begun:  # nor will the next workload wait for that
                self._give_up(reason)
        return evolve(found, waited_s=time.monotonic() - started)

    def restated(self, reports: Sequence[KernelReport]) -> tuple[KernelReport, ...]:
        """Return a worker's reports with the time that compiling took, where it was done ahead."""
        with self._changed:
            return tuple(
                evolve(report, compile_seconds=self._seconds[report.binary])
                if report.cached and report.binary in self._seconds
                else report
                for report in reports
            )

    @contextmanager
    def paused(self) -> Iterator[Standstill]:
        """Let no forerunner run inside the block, and no thread that attends to one."""
        with self._changed:
            self._paused = True
            self._changed.wait_for(lambda: self._parked == self._busy, timeout=_PARK_S)
        standstill = Standstill.of(
            lane.branch.pid for lane in self.forerunners.lanes if lane.branch.pid
        )
        try:
            yield standstill
        finally:
            standstill.end()
            if standstill.moved:
                self._give_up("one ran while it was to stand still")
            with self._changed:
                self._paused = False
                self._changed.notify_all()

    def close(self) -> None:
        """End every forerunner."""
        self._give_up("it was told to stop")
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, timeout=_CLOSE_S)

    # -- one thread for each lane --------------------------------------------------------------

    def _attend(self, lane: Lane) -> None:
        with lane.taken:
            try:
                self._go_through(lane.branch)
            except Exception as error:  # noqa: BLE001  (nothing that goes wrong here is to matter)
                self._give_up(f"{type(error).__name__}: {error}")

    def _go_through(self, branch: ForkServerBranch) -> None:
        _ = branch.channel  # until the server has imported what it needs, there is nothing to do
        worker: Worker | None = None
        with self._changed:
            self._busy += 1
            self._has_begun = True
        try:
            while (scene := self._next()) is not None:
                if worker is None or not worker.alive:
                    worker = self._loaded(branch)
                answer = worker.ask(
                    Foresee,
                    timeout_s=self.timeout_s,
                    init=scene.init,
                    inputs=scene.inputs,
                    targets=self.targets,
                )
                self._note(scene, answer)
        finally:
            if worker is not None:
                worker.stop()
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def _loaded(self, branch: ForkServerBranch) -> Worker:
        """Return a worker that has imported the candidate.

        Raises:
            HarnessError: it cannot be had; perhaps the candidate cannot be imported.
        """
        try:
            worker = self._spawn(branch)
        except ServerLost:
            worker = self._spawn(branch)
        worker.interlude = self._interlude
        answer = worker.ask(
            Start,
            timeout_s=self.timeout_s,
            device=self.device,
            candidate=self.candidate,
            cache=str(self.cache),
            absent=self.torch_device,
        )
        if isinstance(answer, Done):
            limit = worker.memory_limit_bytes
            answer = worker.ask(Load, timeout_s=self.timeout_s, memory_limit_bytes=limit)
        if not isinstance(answer, Done):
            worker.stop()
            raise HarnessError(_said(answer))
        return worker

    def _spawn(self, branch: ForkServerBranch) -> Worker:
        whole = self.memory_limit_bytes
        return Worker.spawn(
            branch,
            self.files,
            memory_limit_bytes=whole // len(self.forerunners.lanes) if whole else None,
            cache=self.cache,
        )

    def _next(self) -> Scene | None:
        self._rest()
        with self._changed:
            return self._scenes.popleft() if self._scenes and not self._gave_up else None

    def _interlude(self) -> float:
        started = time.monotonic()
        self._rest()
        if self._gave_up is not None:
            raise Abandoned
        return time.monotonic() - started

    def _rest(self) -> None:
        """Wait for the end of a pause, without a look at anything."""
        with self._changed:
            if not self._paused:
                return
            self._parked += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._paused or self._gave_up is not None)
            self._parked -= 1

    def _note(self, scene: Scene, answer: Answer) -> None:
        with self._changed:
            if isinstance(answer, Done):
                fresh = {
                    report.binary: seconds
                    for report in answer.reports
                    if report.binary is not None
                    and report.binary not in self._seconds
                    and (seconds := _seconds(report)) is not None
                }
                self._seconds |= fresh
                short_of = one_line(answer.short_of) if answer.short_of else None
                found = Ahead(kernels=len(fresh), seconds=sum(fresh.values()), reason=short_of)
            else:
                found = Ahead(reason=one_line(_said(answer)))
                self._deaths += isinstance(answer, Died)
            self._results[scene.workload] = found
            self._changed.notify_all()
            is_hopeless = self._deaths >= _MOST_DEATHS
        if is_hopeless:
            self._give_up("they died again and again")

    def _give_up(self, reason: str) -> None:
        with self._changed:
            self._gave_up = self._gave_up or one_line(reason)
            self._scenes.clear()
            self._changed.notify_all()

    # -- with the lock held --------------------------------------------------------------------

    def _prefer(self, workload: str) -> None:
        for scene in [s for s in self._scenes if s.workload == workload]:
            self._scenes.remove(scene)
            self._scenes.appendleft(scene)

    def _forget(self, workload: str) -> None:
        """Leave to the device what was not begun."""
        self._scenes = deque(s for s in self._scenes if s.workload != workload)


def _seconds(report: KernelReport) -> float | None:
    """Return what compiling took, if it was compiled and the claim makes sense."""
    seconds = report.compile_seconds
    sane = seconds is not None and 0 <= seconds < _A_DAY_S
    return seconds if sane and not report.cached else None


def _said(answer: Refused | Broken | Died) -> str:
    if isinstance(answer, Died):
        return f"it {answer.reason} during {answer.stage}"
    return answer.reason
