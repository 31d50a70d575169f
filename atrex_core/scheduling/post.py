"""One device and the referee that works on it: started when it is needed, replaced when lost."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping

from attrs import define, evolve, field, frozen

from atrex_core.model import Candidate, Device, Evaluation
from atrex_core.model.cost import DeviceCost
from atrex_core.processes.messages import Setup
from atrex_core.referee_process import GateObserver, RefereeLost, RefereeProcess
from atrex_core.scheduling.pool import Job


@frozen(kw_only=True)
class Done:
    """A job that is over."""

    device: Device
    job: Job
    evaluation_id: str
    found: Evaluation | RefereeLost
    """What was judged, or how the referee was lost in the middle of it."""


@define(eq=False)
class Post:
    """A place where evaluations are made. One thread at a time works here; any may `end` it."""

    device: Device
    setup: Setup
    environment: Mapping[str, str]
    """What the accelerator wants set where its device is used."""
    cost: DeviceCost = field(init=False)
    """Of the run at hand; replaced as a whole, so that any thread may read it."""
    _referee: RefereeProcess | None = field(default=None, init=False)
    _candidate: Candidate | None = field(default=None, init=False)
    """What the referee was given last in this run."""
    _is_ended: bool = field(default=False, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        self.begin_run()

    def begin_run(self) -> None:
        """Count anew; a referee that is still there stays."""
        self.cost = DeviceCost(device=self.device.id)
        self._candidate = None

    def make_ready(self) -> None:
        """Have a referee that can judge.

        Raises:
            RefereeLost: it was lost while it started, or this post was ended meanwhile.
            AtrexError: it cannot start here; the error says why.
        """
        if self.is_ready:
            return
        began = time.monotonic()
        try:
            ready = self._start().ready
        except BaseException:
            self.drop()
            raise
        parts = dict(self.cost.startup_seconds)
        for name, seconds in ready.startup_seconds.items():
            parts[name] = parts.get(name, 0.0) + seconds
        startup_s = self.cost.startup_s + time.monotonic() - began
        self.cost = evolve(self.cost, startup_s=startup_s, startup_seconds=parts)

    def work(self, job: Job, observer: GateObserver) -> Done:
        """Make one evaluation, telling `observer` of each gate.

        Raises:
            AtrexError: a referee cannot start here; the error says why.
        """
        evaluation_id = uuid.uuid4().hex
        found: Evaluation | RefereeLost
        try:
            self.make_ready()
            began = time.monotonic()
            try:
                found = self._judge(job, evaluation_id, observer)
            finally:
                busy_s = self.cost.busy_s + time.monotonic() - began
                self.cost = evolve(self.cost, busy_s=busy_s)
        except RefereeLost as lost:
            self.drop()
            found = lost
        except BaseException:  # its answer would be taken for another's
            self.drop()
            raise
        self.cost = evolve(self.cost, evaluations=self.cost.evaluations + 1)
        return Done(device=self.device, job=job, evaluation_id=evaluation_id, found=found)

    @property
    def is_ready(self) -> bool:
        """Whether there is a referee that can judge."""
        return self._referee is not None

    @property
    def is_ended(self) -> bool:
        """Whether nothing more can be done here."""
        return self._is_ended

    def end(self) -> None:
        """Have whoever works here come back at once, what is at hand being lost."""
        with self._lock:
            self._is_ended = True
            if self._referee is not None:
                self._referee.hang_up()

    def kill(self) -> None:
        """As `end`, with no patience left; from any thread."""
        with self._lock:
            if self._referee is not None:
                self._referee.kill()

    def dismiss(self) -> None:
        """Let the referee tidy up and go; `drop` waits until it has."""
        if self._referee is not None:
            self._referee.dismiss()

    def drop(self) -> None:
        """End the referee, if there is one."""
        self._candidate = None
        try:
            if self._referee is not None:
                self._referee.stop()
        finally:
            with self._lock:
                self._referee = None

    def _judge(self, job: Job, evaluation_id: str, observer: GateObserver) -> Evaluation:
        assert self._referee is not None, "it is ready"
        if self._candidate is not job.candidate:
            self._referee.begin(job.candidate, (job.workload.id, *job.ahead))
            self._candidate = job.candidate
        return self._referee.judge(evaluation_id, job.workload.id, observer)

    def _start(self) -> RefereeProcess:
        referee = RefereeProcess.start(self.setup, self.environment)
        with self._lock:
            self._referee = referee
            if self._is_ended:
                referee.hang_up()
        return referee
