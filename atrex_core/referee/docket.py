"""The candidate at hand, and the worker that holds it."""

from __future__ import annotations

from attrs import define, field, frozen

from atrex_core.interfaces import Stage
from atrex_core.model import Device
from atrex_core.processes.messages import Broken, Done, Load, Refused
from atrex_core.processes.workers import Answer, Died, ForkServerProcess, Worker

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

    def ensure_worker(self) -> Worker | Refused | Died | Broken:
        """Return a worker that has the candidate loaded, or why there is none."""
        if self.load_failure is not None:
            return self.load_failure
        if self.worker is not None and self.worker.alive:
            return self.worker
        worker = Worker.spawn(
            self.server,
            {CANDIDATE_FILE: self.source, **self.public_files},
            memory_limit_bytes=self.limits.memory_limit_bytes,
        )
        answer: Answer = worker.ask(
            Load,
            timeout_s=self.limits.timeout_s,
            device=self.device,
            candidate=CANDIDATE_FILE,
            memory_limit_bytes=self.limits.memory_limit_bytes,
        )
        if isinstance(answer, Done):
            self.versions = dict(answer.versions)
            self.worker = worker
            return worker
        worker.stop()
        if not (isinstance(answer, Died) and answer.stage is Stage.STARTUP):
            self.load_failure = answer
        return answer

    def close(self) -> None:
        """Let the worker go."""
        if self.worker is not None:
            self.worker.stop()
            self.worker = None
