"""What an evaluation found out."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from statistics import median
from typing import Any

from attrs import field, frozen
from attrs.validators import min_len

from atrex_core.model.conditions import TimingConditions
from atrex_core.model.hardware import Ceiling, Device
from atrex_core.model.problem import Origin, Pack, Phase, Scale


class Gate(StrEnum):
    """In the order they run. The first one that fails ends the evaluation of a workload."""

    COMPILE = "compile"
    CORRECTNESS = "correctness"
    PERFORMANCE = "performance"
    AUTHENTICITY = "authenticity"


class Outcome(StrEnum):
    """What a gate says."""

    PASSED = "passed"
    FAILED = "failed"
    """The candidate is at fault."""
    SKIPPED = "skipped"
    """Not judged; the reason says why."""
    ERRORED = "errored"
    """We, or a plugin, are at fault."""


class Verdict(StrEnum):
    """What the gates together say."""

    PASSED = "passed"
    FAILED = "failed"
    UNMEASURED = "unmeasured"
    """Everything that could be judged here passed, but something was skipped."""
    ERRORED = "errored"


class Limiter(StrEnum):
    """What keeps a workload from being faster on a device."""

    MEMORY = "memory"
    MATRIX = "matrix"
    VECTOR = "vector"
    LATENCY = "latency"
    """An empty launch takes longer than the bound. Never a bound's own limiter."""


class Isolation(StrEnum):
    """The strongest separation from the candidate that was proved active."""

    PROCESS = "process"
    LANDLOCK = "landlock"
    NAMESPACES = "namespaces"
    VM = "vm"


class Protocol(StrEnum):
    """A named set of rules. Results under different protocols never mix."""

    STRICT = "strict"
    """Production inputs, errors judged beside an honest implementation's, compulsory bytes."""
    PAPER = "paper"
    """Inputs, tolerance, work and bytes as a pack's source published them: for comparison."""

    @property
    def least_cases(self) -> int:
        """Correctness cases a workload needs at least."""
        return 5


@frozen(kw_only=True)
class GateResult:
    """One gate's word on one workload."""

    outcome: Outcome
    reason: str | None = None
    """What a kernel author should know: one line for a failure, skip or error; else None."""
    details: Mapping[str, Any] = field(factory=dict)
    """Plain JSON values."""


@frozen(kw_only=True)
class Timing:
    """Times of one workload. `device_us` and `call_us` are medians; samples are kept."""

    device_us: float | None
    """First kernel start to last kernel end of one call."""
    call_us: float | None
    """Wall time of N back-to-back calls over N, by the referee's clock."""
    method: str
    samples_us: tuple[float, ...] = ()
    """Raw device samples."""
    held_us: float | None = None
    """`device_us` by the referee's clock: between calls that wait for it, without copies."""
    call_samples_us: tuple[float, ...] = ()
    reason: str | None = None
    """Why a number is missing or is to be read with care."""
    conditions: TimingConditions | None = None
    """Of the device; None where its accelerator cannot read any."""

    @property
    def cv(self) -> float | None:
        """Coefficient of variation of the device samples."""
        if len(self.samples_us) < 2:
            return None
        mean = sum(self.samples_us) / len(self.samples_us)
        if mean <= 0:
            return None
        spread = sum((s - mean) ** 2 for s in self.samples_us) / (len(self.samples_us) - 1)
        return float(spread**0.5 / mean)

    @staticmethod
    def median_us(samples: tuple[float, ...]) -> float | None:
        """Return the median of `samples`, None when there are none."""
        return median(samples) if samples else None


@frozen(kw_only=True)
class Bound:
    """The least time a profile allows for a workload."""

    t_sol_us: float
    limiter: Limiter
    ceiling: Ceiling
    t_sol_measured_us: float | None = None
    """The same against this very device's calibrated envelope, where there is one."""


@frozen(kw_only=True)
class Share:
    """`T_sol / T`, never clipped."""

    device: float | None
    call: float | None


@frozen(kw_only=True)
class Gap:
    """Where call time beyond the bound goes. A part that nothing was found out about is None."""

    launch_us: float | None
    """Call time beyond device time: the host, launches, waiting. Never below 0."""
    device_us: float | None
    """The kernels' time beyond the bound; below 0 only where a time beats the bound."""
    fallback_us: float | None
    """What of the device's time went elsewhere than the target DSL's kernels."""
    limiter: Limiter
    """What keeps this workload from being faster: the bound's limiter, or latency."""
    launch_floor_us: float | None = None
    """What an empty launch takes on this device."""
    unmeasured: Mapping[str, str] = field(factory=dict)
    """Why a part is None, by the part's name."""


@frozen(kw_only=True)
class Adoption:
    """How much of the call the target DSL did."""

    share: float
    basis: str
    """"measured" or "estimated"."""
    evidence: tuple[str, ...] = ()


@frozen(kw_only=True)
class Evaluation:
    """One candidate on one workload on one device: a line of the journal."""

    id: str
    submission: str
    """Names this candidate among others for the same problem."""
    candidate: str
    """Where the candidate was read from."""
    digest: str
    pack: Pack
    problem: str
    workload: str
    phase: Phase
    origin: Origin
    scale: Scale
    backend: str
    accelerator: str
    device: Device
    target: str
    """The architecture the correctness gate ran code for."""
    profile: str | None
    profile_digest: str | None
    protocol: Protocol
    isolation: Isolation
    gates: Mapping[Gate, GateResult] = field(validator=min_len(1))
    flags: tuple[str, ...] = ()
    timing: Timing | None = None
    bound: Bound | None = None
    gap: Gap | None = None
    share_of_roofline: Share | None = None
    adoption: Adoption | None = None
    peak_memory_bytes: int | None = None
    compile_seconds: float | None = None
    request: Mapping[str, str] = field(factory=dict)
    """What was asked for that can change a verdict: targets, cases, limits."""
    seeds: tuple[int, ...] = ()
    """Seeds of the correctness cases, drawn by the referee for this run."""
    importance: float = 0.0
    """The problem's published weight, before normalisation."""
    seconds: float = 0.0
    """What this evaluation cost."""
    stage_seconds: Mapping[str, float] = field(factory=dict)
    """The same, by what it was spent on."""
    environment: Mapping[str, str] = field(factory=dict)
    """Versions and machine facts."""
    started_at: str = ""
    """UTC, ISO 8601."""

    @property
    def outcome(self) -> Verdict:
        """Fold the gates: errored, then failed, then unmeasured, else passed."""
        outcomes = {result.outcome for result in self.gates.values()}
        if Outcome.ERRORED in outcomes:
            return Verdict.ERRORED
        if Outcome.FAILED in outcomes:
            return Verdict.FAILED
        if Outcome.SKIPPED in outcomes:
            return Verdict.UNMEASURED
        return Verdict.PASSED

    @property
    def reason(self) -> str | None:
        """In one line, which gate failed and why; None when none did."""
        failure = self.first_failure
        return f"{failure[0]}: {failure[1].reason}" if failure else None

    def passed(self, *gates: Gate) -> bool:
        """Return whether every one of `gates` passed."""
        return all(
            gate in self.gates and self.gates[gate].outcome is Outcome.PASSED for gate in gates
        )

    @property
    def first_failure(self) -> tuple[Gate, GateResult] | None:
        """The gate that ended this evaluation, if one failed or errored."""
        for gate in Gate:
            result = self.gates.get(gate)
            if result and result.outcome in (Outcome.FAILED, Outcome.ERRORED):
                return gate, result
        return None
