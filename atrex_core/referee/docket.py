"""The candidate at hand, and the worker that holds it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field, frozen

from atrex_core.interfaces import KernelReport
from atrex_core.model import Device
from atrex_core.printable import one_line, plain
from atrex_core.processes.family import Standstill
from atrex_core.processes.fork_server import ForkServerProcess, ServerLost
from atrex_core.processes.messages import Broken, Done, Load, Refused, Start
from atrex_core.processes.scratch import make_scratch, remove_scratch
from atrex_core.processes.workers import Answer, Died, Worker
from atrex_core.referee.forerunner import Ahead, Forerunners, Scene, Vanguard

CANDIDATE_FILE = "candidate.py"


@frozen(kw_only=True)
class Limits:
    """What one request of a worker may cost."""

    timeout_s: float
    memory_limit_bytes: int | None


@define(eq=False)
class Docket:
    """One candidate. Its worker lives across workloads and is replaced after a fault."""

    server: ForkServerProcess
    device: Device
    limits: Limits
    source: bytes
    public_files: dict[str, bytes] = field(factory=dict)
    worker: Worker | None = None
    load_failure: Refused | Died | Broken | None = None
    """Why the candidate cannot be imported: it then fails every workload, and is not retried."""
    versions: dict[str, str] = field(factory=dict)
    _vanguard: Vanguard | None = field(default=None, init=False)
    _cache: Path | None = field(default=None, init=False)
    """Where all workers of this candidate, and no others, keep what they compile."""
    _epochs: itertools.count[int] = field(factory=lambda: itertools.count(1), init=False)
    _was_forgiven: bool = field(default=False, init=False)
    _reported: set[KernelReport] = field(factory=set, init=False)

    def look_ahead(
        self,
        forerunners: Forerunners,
        scenes: Sequence[Scene],
        *,
        torch_device: str,
        targets: Sequence[str] = (),
    ) -> None:
        """Have workloads compiled for `torch_device`, and `targets`, before they are asked for."""
        if not scenes:
            return
        self._cache = make_scratch({})
        self._vanguard = Vanguard(
            forerunners=forerunners,
            device=self.device,
            torch_device=torch_device,
            candidate=CANDIDATE_FILE,
            files=self._files,
            cache=self._cache,
            targets=tuple(targets),
            timeout_s=self.limits.timeout_s,
            memory_limit_bytes=self.limits.memory_limit_bytes,
        )
        self._vanguard.start(scenes)

    def compiled_ahead(self, workload_id: str, wait_s: float) -> Ahead | None:
        """Wait for what a workload needs compiled, for `wait_s` at most; say what became of it.

        None where nothing is compiled ahead.
        """
        return self._vanguard.wait_for(workload_id, wait_s) if self._vanguard else None

    def restated(self, reports: Sequence[KernelReport]) -> tuple[KernelReport, ...]:
        """Return a worker's reports, with the seconds of what was compiled ahead of it."""
        return self._vanguard.restated(reports) if self._vanguard else tuple(reports)

    @contextmanager
    def pause_ahead(self) -> Iterator[Standstill]:
        """Let nothing be compiled ahead inside the block: calls are timed there.

        Afterwards the standstill knows of processes that were woken all the same.
        """
        if self._vanguard is None:
            yield Standstill()
            return
        with self._vanguard.paused() as standstill:
            yield standstill

    def ensure_worker(self) -> Worker | Refused | Died | Broken:
        """Return a worker that has the candidate loaded, or why there is none."""
        if self.load_failure is not None:
            return self.load_failure
        if self.worker is not None and self.worker.alive:
            return self.worker
        try:
            worker = self._spawn()
        except ServerLost:
            worker = self._spawn()
        answer: Answer = worker.ask(
            Start,
            timeout_s=self.limits.timeout_s,
            device=self.device,
            candidate=CANDIDATE_FILE,
            cache=str(self._cache) if self._cache else None,
        )
        if not isinstance(answer, Done):  # none of the candidate's doing: the next one may work
            worker.stop()
            return answer
        self.versions = plain(dict(answer.versions))
        worker.ungated = one_line(answer.ungated) if answer.ungated else None
        answer = worker.ask(
            Load,
            timeout_s=self.limits.timeout_s,
            memory_limit_bytes=self.limits.memory_limit_bytes,
        )
        if not isinstance(answer, Done):
            worker.stop()
            if not self.may_forgive(answer):
                self.load_failure = answer
            return answer
        self.worker = worker
        return worker

    def next_epoch(self) -> int:
        """Return a number higher than any that a queue of this candidate has waited for."""
        return next(self._epochs)

    def first_seen(self, reports: Sequence[KernelReport]) -> list[KernelReport]:
        """Return those of `reports` that no workload of this candidate has brought before."""
        fresh = [report for report in reports if report not in self._reported]
        self._reported.update(fresh)
        return fresh

    def _spawn(self) -> Worker:
        return Worker.spawn(
            self.server,
            self._files,
            memory_limit_bytes=self.limits.memory_limit_bytes,
            cache=self._cache,
        )

    @property
    def _files(self) -> dict[str, bytes]:
        return {CANDIDATE_FILE: self.source, **self.public_files}

    def may_forgive(self, answer: Answer) -> bool:
        """Return whether a failure may be somebody else's fault.

        A process that was ordered to end, or lost with its server, was killed by the candidate or
        by the system for want of memory: only the candidate would do it again.
        """
        killed = isinstance(answer, Died) and (answer.with_server or answer.by_order)
        return killed and not self._was_forgiven

    def forgive(self) -> None:
        """Begin again; the next time it counts."""
        self._was_forgiven = True

    def close(self) -> None:
        """Let the worker go, and those that compile ahead of it."""
        if self.worker is not None:
            self.worker.stop()
            self.worker = None
        if self._vanguard is not None:
            self._vanguard.close()
            self._vanguard = None
        if self._cache is not None:
            remove_scratch(self._cache)
            self._cache = None
