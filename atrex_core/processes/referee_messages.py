"""What the orchestrator says to its referees, linters and calibrations, and they to it."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from atrex_core.model import (
    Device,
    Evaluation,
    Gate,
    GateResult,
    HardwareProfile,
    Isolation,
    Protocol,
)
from atrex_core.model.calibration import Calibration, DeviceIdentity
from atrex_core.model.lint import Finding, Kind, Task

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
    workloads: tuple[str, ...] = ()
    """What will probably be asked for, in order: it may be compiled ahead."""


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
    startup_seconds: Mapping[str, float] = field(factory=dict)
    """What starting cost, by what it was spent on."""


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


# -- orchestrator -> calibration ---------------------------------------------------------------


@frozen(kw_only=True)
class CalibrationSetup:
    """Which device a process is to open."""

    device: str
    disabled_plugins: tuple[str, ...] = ()


@frozen(kw_only=True)
class Calibrate:
    """Measure the device, for at most about so long."""

    minutes: float


# -- calibration -> orchestrator ---------------------------------------------------------------


@frozen(kw_only=True)
class CalibrationReady:
    """The device is open."""

    identity: DeviceIdentity


@frozen(kw_only=True)
class CalibrationStep:
    """What is measured next."""

    what: str
    done: int
    total: int


@frozen(kw_only=True)
class Calibrated:
    """Everything is measured."""

    calibration: Calibration
