"""Every message that crosses a process boundary. Plain data only.

A request carries a number and its reply repeats it, so that a stale or doubled reply is
recognised. What a worker says is a claim: the referee looks for itself before it believes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from atrex_core.interfaces import BufferHandle, DeviceSamples, KernelReport, Launch, Stage
from atrex_core.model import (
    Container,
    Device,
    Evaluation,
    Gate,
    GateResult,
    HardwareProfile,
    Isolation,
    Protocol,
    TensorSpec,
)
from atrex_core.model.lint import Finding, Kind, Task

# -- referee -> fork server --------------------------------------------------------------------


@frozen(kw_only=True)
class Spawn:
    """Fork a worker. Descriptors: its channel, its output pipe, its stage cell."""

    scratch: str


@frozen(kw_only=True)
class Kill:
    """End a worker and everything it started."""

    pid: int


# -- fork server -> referee --------------------------------------------------------------------


@frozen(kw_only=True)
class Warm:
    """Imports are done; workers can be forked."""

    seconds: float


@frozen(kw_only=True)
class Spawned:
    """A worker runs."""

    pid: int


@frozen(kw_only=True)
class Exited:
    """A worker has ended; nothing of it is left."""

    pid: int
    status: int
    """As `os.waitstatus_to_exitcode` gives it: negative for a signal."""
    strays: int
    """Processes it left behind, now ended."""


# -- referee -> worker -------------------------------------------------------------------------


@frozen(kw_only=True)
class Start:
    """Open the device and start the DSL. No candidate code runs yet: a failure here is ours."""

    number: int
    device: Device
    candidate: str
    """Its file, by path relative to the scratch folder."""


@frozen(kw_only=True)
class Load:
    """Import the candidate."""

    number: int
    memory_limit_bytes: int | None


@frozen(kw_only=True)
class Placement:
    """Where in the open buffers a tensor lies."""

    spec: TensorSpec
    buffer: int
    offset_bytes: int


@frozen(kw_only=True)
class OpenWorkload:
    """Map the referee's buffers and construct the model. Descriptors: one per memfd buffer."""

    number: int
    init: Mapping[str, Any]
    container: Container
    buffers: tuple[BufferHandle, ...]
    input_sets: tuple[tuple[Placement, ...], ...]
    outputs: tuple[Placement, ...]
    in_place: Mapping[str, str] = field(factory=dict)
    """Outputs that may be an input, updated: output name to input name."""


@frozen(kw_only=True)
class Call:
    """Run forward once on input set 0 and copy its outputs into the referee's buffer."""

    number: int
    stage: Stage
    knock_out: bool = False
    report: bool = False
    """Also say what was compiled so far."""


@frozen(kw_only=True)
class Build:
    """Compile every kernel seen so far for a target that need not be present."""

    number: int
    target: str


@frozen(kw_only=True)
class Sample:
    """Measure device time, rotating the input sets."""

    number: int
    budget_s: float


@frozen(kw_only=True)
class Run:
    """Make `calls` back-to-back calls, rotating the input sets, then synchronise."""

    number: int
    calls: int


@frozen(kw_only=True)
class Collect:
    """Copy the outputs of the most recent timed call on input set `index` to the buffer."""

    number: int
    index: int


@frozen(kw_only=True)
class CloseWorkload:
    """Forget the model, the tensors and the buffers."""

    number: int


# -- worker -> referee -------------------------------------------------------------------------


class Fault(StrEnum):
    """Why a request could not be done. All are the candidate's."""

    EXCEPTION = "exception"
    COMPILE = "compile"
    CONTRACT = "contract"
    """Missing `Model`, wrong signature, wrong container, dtype, shape or device."""
    MEMORY = "memory"
    UNSUPPORTED = "unsupported"
    """The stand-in for an absent device cannot do it; nobody's fault."""


@frozen(kw_only=True)
class Refused:
    """The candidate failed; the worker lives on."""

    number: int
    stage: Stage
    fault: Fault
    reason: str
    details: Mapping[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class Broken:
    """Our own code, or a plugin's, failed in the worker."""

    number: int
    reason: str


@frozen(kw_only=True)
class Done:
    """The request was carried out."""

    number: int
    launches: tuple[Launch, ...] = ()
    reports: tuple[KernelReport, ...] = ()
    samples: DeviceSamples | None = None
    calls: int = 0
    peak_memory_bytes: int | None = None
    compile_seconds: float = 0.0
    versions: Mapping[str, str] = field(factory=dict)


# -- orchestrator -> referee -------------------------------------------------------------------


@frozen(kw_only=True)
class Setup:
    """What one referee is for: one backend on one device under one protocol."""

    backend: str
    device: str
    targets: tuple[str, ...]
    protocol: Protocol
    until: Gate
    profile: str | None
    cases: int
    timeout_s: float
    memory_limit_bytes: int | None
    perf_budget_s: float
    disabled_plugins: tuple[str, ...] = ()

    @property
    def request(self) -> Mapping[str, str]:
        """What can change a verdict, as an evaluation keeps it."""
        return {
            "targets": ",".join(self.targets),
            "cases": str(self.cases),
            "timeout_s": f"{self.timeout_s:g}",
            "memory_limit_bytes": str(self.memory_limit_bytes or "default"),
            "perf_budget_s": f"{self.perf_budget_s:g}",
            "profile": self.profile or "default",
        }


@frozen(kw_only=True)
class Begin:
    """Take up a candidate; the worker of the one before it is let go."""

    submission: str
    candidate: str
    problem: str
    source: str
    """Base64 of the file's bytes."""


@frozen(kw_only=True)
class Judge:
    """Evaluate the candidate at hand on one workload."""

    evaluation_id: str
    workload: str


# -- referee -> orchestrator -------------------------------------------------------------------


@frozen(kw_only=True)
class Ready:
    """The referee can judge."""

    device: Device
    profile: HardwareProfile | None
    isolation: Isolation
    environment: Mapping[str, str]


@frozen(kw_only=True)
class NotReady:
    """The referee cannot start here."""

    reason: str
    hint: str
    exit_code: int


@frozen(kw_only=True)
class Alive:
    """A sign of life in the middle of a judgement."""


@frozen(kw_only=True)
class GateFinished:
    """One gate has spoken."""

    evaluation_id: str
    gate: Gate
    result: GateResult


@frozen(kw_only=True)
class Judged:
    """All gates have spoken."""

    evaluation: Evaluation


# -- orchestrator -> linter --------------------------------------------------------------------


@frozen(kw_only=True)
class LintSetup:
    """What one linter is for: tasks on one device."""

    device: str
    cases: int
    seed: int
    timeout_s: float
    threads: int | None
    """Of tensor operations; None leaves that to the device."""
    disabled_plugins: tuple[str, ...] = ()


@frozen(kw_only=True)
class Lint:
    """Lint one workload, or a problem as a whole."""

    task: Task
    without: tuple[tuple[Kind, str], ...] = ()
    """What is not to be tried: it has ended a process before."""


# -- linter -> orchestrator --------------------------------------------------------------------


@frozen(kw_only=True)
class LintReady:
    """The linter can work."""

    device: Device
    environment: Mapping[str, str]


@frozen(kw_only=True)
class Linted:
    """A task is done."""

    findings: tuple[Finding, ...]
    seconds: float


_ALL = (
    Spawn,
    Kill,
    Warm,
    Spawned,
    Exited,
    Start,
    Load,
    OpenWorkload,
    Call,
    Build,
    Sample,
    Run,
    Collect,
    CloseWorkload,
    Refused,
    Broken,
    Done,
    Setup,
    Begin,
    Judge,
    Ready,
    NotReady,
    GateFinished,
    Judged,
    Alive,
    LintSetup,
    Lint,
    LintReady,
    Linted,
)

MESSAGES: Mapping[int, type[Any]] = dict(enumerate(_ALL, start=1))
CODES: Mapping[type[Any], int] = {cls: code for code, cls in MESSAGES.items()}
