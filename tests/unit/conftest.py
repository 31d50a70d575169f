"""A pack of three operators and its evaluations, profiles and plugins in memory, journals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from atrex_core import (
    ArithmeticPath,
    Bound,
    CalibratedProfile,
    Ceiling,
    Device,
    DeviceMatch,
    Evaluation,
    Figure,
    Gate,
    GateResult,
    HardwareProfile,
    Isolation,
    Limiter,
    Origin,
    Outcome,
    Pack,
    Phase,
    Protocol,
    Scale,
    Share,
    hookimpl,
)
from atrex_core.journal import Journal
from atrex_core.scoring import Aggregate, ProblemFacts, Selection, Summary

_PACK = Pack(name="pack", version="1", digest="d1")
_DEVICE = Device(id="gpu:0", accelerator="gpu", vendor="acme", name="Anvil 2", arch="anvil2")
_BOTH_PHASES = (Phase.PREFILL, Phase.DECODE)


# -- scoring -----------------------------------------------------------------------------------


@pytest.fixture
def whole() -> Selection:
    """Return a pack: gemm weighs 0.6, norm and sort 0.2 each."""
    return Selection(
        pack=_PACK,
        problems=(
            _facts("gemm", 0.6, "g1", "g2", "g3"),
            _facts("norm", 0.2, "n1", "n2"),
            _facts("sort", 0.2, "s1", phases=(Phase.DECODE,)),
        ),
    )


@pytest.fixture
def facts() -> Callable[..., ProblemFacts]:
    """Return what makes an operator: `facts(name, importance, *workloads, phases=...)`."""
    return _facts


@pytest.fixture
def evaluation() -> Callable[..., Evaluation]:
    """Return what makes an evaluation that passed every gate, unless told otherwise."""
    return _evaluation


@pytest.fixture
def complete() -> Callable[..., list[Evaluation]]:
    """Return what makes the evaluations of the whole pack, each with the changes it is given.

    By device time gemm has 0.8, norm 0.5 and sort 0.2; by the call clock half of each.
    """
    shares = {
        "gemm": {"g1": 0.7, "g2": 0.8, "g3": 0.9},
        "norm": {"n1": 0.4, "n2": 0.6},
        "sort": {"s1": 0.2},
    }

    def complete(**changes: Any) -> list[Evaluation]:
        return [
            _evaluation(problem, workload, share, share / 2, **changes)
            for problem, found in shares.items()
            for workload, share in found.items()
        ]

    return complete


@pytest.fixture
def headline() -> Callable[[Summary], Aggregate]:
    """Return what takes the headline from a summary, and fails where it was withheld."""

    def headline(summary: Summary) -> Aggregate:
        assert summary.headline_withheld is None
        assert summary.s_agg is not None
        return summary.s_agg

    return headline


def _facts(
    name: str, importance: float, *workloads: str, phases: tuple[Phase, ...] = _BOTH_PHASES
) -> ProblemFacts:
    return ProblemFacts(name=name, importance=importance, phases=phases, workloads=workloads)


def _evaluation(
    problem: str,
    workload: str,
    by_device: float | None = 0.5,
    by_call: float | None = 0.25,
    gates: dict[Gate, Outcome] | None = None,
    **changes: Any,
) -> Evaluation:
    outcomes = dict.fromkeys(Gate, Outcome.PASSED) if gates is None else gates
    timed = outcomes.get(Gate.PERFORMANCE) is Outcome.PASSED
    fields: dict[str, Any] = {
        "id": f"{problem}-{workload}",
        "submission": "mine",
        "candidate": f"{problem}.py",
        "digest": problem,
        "pack": _PACK,
        "problem": problem,
        "workload": workload,
        "phase": Phase.BOTH,
        "origin": Origin.PUBLISHED,
        "scale": Scale.FULL,
        "backend": "dsl",
        "accelerator": "gpu",
        "device": _DEVICE,
        "target": "anvil2",
        "profile": "anvil-2",
        "profile_digest": "p1",
        "protocol": Protocol.STRICT,
        "isolation": Isolation.PROCESS,
        "gates": {
            gate: GateResult(
                outcome=outcome, reason=None if outcome is Outcome.PASSED else "because"
            )
            for gate, outcome in outcomes.items()
        },
        "bound": Bound(t_sol_us=1.0, limiter=Limiter.MEMORY, ceiling=Ceiling.SPEC),
        "share_of_roofline": Share(device=by_device, call=by_call) if timed else None,
        "seconds": 2.0,
        "started_at": "2026-01-01T00:00:00+00:00",
    }
    return Evaluation(**{**fields, **changes})


# -- plugins -----------------------------------------------------------------------------------


class _Profiles:
    """A plugin in memory."""

    def __init__(self, name: str, *profiles: HardwareProfile | CalibratedProfile) -> None:
        self.__name__ = name
        self.profiles = profiles

    @hookimpl
    def atrex_hardware_profiles(self) -> Iterable[HardwareProfile | CalibratedProfile]:
        return self.profiles


@pytest.fixture
def plugin() -> Callable[..., object]:
    """Return what makes a plugin in memory: `plugin(name, *profiles)`."""
    return _Profiles


@pytest.fixture
def profile() -> Callable[..., HardwareProfile]:
    """Return what makes a working profile: `profile(name, model)`."""

    def profile(name: str, model: str = "Anvil 2") -> HardwareProfile:
        figure = Figure(value=1e12, source="a datasheet")
        return HardwareProfile(
            name=name,
            match=DeviceMatch(vendor="acme", names=(model,)),
            peak_flops={ArithmeticPath.FP32_VECTOR: figure},
            bandwidth_bytes_per_s=figure,
        )

    return profile


# -- journals ----------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a test's journal may be written."""
    return tmp_path / "atrex.jsonl"


@pytest.fixture
def written() -> Callable[..., bytes]:
    """Return what writes evaluations to a new journal, and returns its bytes."""

    def written(path: Path, *evaluations: Evaluation) -> bytes:
        with Journal(path) as journal:
            for evaluation in evaluations:
                journal.append(evaluation)
        return path.read_bytes()

    return written
