"""A vendor's package, installed from its own pyproject, is all that a new device needs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from atrex_core import (
    Evaluation,
    Gate,
    GateResult,
    Outcome,
    PluginHost,
    Session,
    UsageError,
    Verdict,
    hookimpl,
)
from atrex_core.processes import linux

_ALL_PASSED = dict.fromkeys(Gate, Outcome.PASSED)


@pytest.fixture(scope="module")
def session(acme_here: Path) -> Iterator[Session]:
    with Session(backend="hammer") as session:
        yield session


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    """Return a candidate that is named after no problem, and wrong."""
    path = tmp_path / "mine.py"
    path.write_text(
        textwrap.dedent("""
            import torch

            class Model(torch.nn.Module):
                def forward(self, x, y):
                    return 2 * x - y
        """)
    )
    return path


def _outcomes(evaluation: Evaluation) -> dict[Gate, Outcome]:
    return {gate: result.outcome for gate, result in evaluation.gates.items()}


def test_package_is_found_by_its_entry_point_alone(acme: Path) -> None:
    (found,) = [d for d in metadata.distributions(path=[str(acme)]) if d.name == "atrex-acme"]

    entries = [(e.group, e.name, e.value) for e in found.entry_points]
    assert entries == [("atrex_eval", "acme", "atrex_acme")]
    assert found.requires == ["atrex-eval"]


def test_plugin_adds_an_accelerator_a_profile_a_backend_and_a_problem(acme_here: Path) -> None:
    host = PluginHost.discover()

    (device,) = host.accelerators["anvil"].devices()
    profile = host.profile_for(device)
    assert (device.id, device.arch) == ("anvil:0", "av2")
    assert profile is not None
    assert profile.name == "acme-anvil-2"
    assert host.backends["hammer"].accelerators == ("anvil",)
    assert host.problems["acme_scaled_sum"].pack.version == "7"
    for registry, name in (
        (host.accelerators, "anvil"),
        (host.profiles, "acme-anvil-2"),
        (host.backends, "hammer"),
        (host.problems, "acme_scaled_sum"),
    ):
        assert str(registry.origins[name].package) == "atrex-acme 2.1.0"


def test_importing_the_plugin_imports_no_torch(acme: Path) -> None:
    code = "import sys, atrex_acme; print('torch' in sys.modules or 'numpy' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(acme)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout == "False\n"


def test_vendors_kernel_passes_every_gate_on_the_vendors_device(session: Session) -> None:
    (found,) = session.evaluate()

    assert found.outcome is Verdict.PASSED
    assert _outcomes(found) == _ALL_PASSED
    assert (found.device.id, found.profile) == ("anvil:0", "acme-anvil-2")
    assert found.gates[Gate.AUTHENTICITY].details["kernels"] == ["scaled_sum"]
    assert found.gates[Gate.AUTHENTICITY].details["knock_out"] == "wrong without the launches"
    assert found.timing is not None
    assert found.timing.method == "anvil stopwatch"
    assert found.share_of_roofline is not None


def test_session_keeps_its_processes_between_calls(session: Session, candidate: Path) -> None:
    session.evaluate()
    referees = linux.children(os.getpid())

    (found,) = session.evaluate(candidate, problem="acme_scaled_sum")

    assert linux.children(os.getpid()) == referees
    assert found.outcome is Verdict.FAILED
    assert _outcomes(found) == {Gate.COMPILE: Outcome.PASSED, Gate.CORRECTNESS: Outcome.FAILED}
    assert (found.submission, found.candidate) == ("mine", str(candidate))


def test_every_seed_is_drawn_anew(session: Session) -> None:
    (first,), (second,) = session.evaluate(), session.evaluate()

    assert len(first.seeds) >= 7
    assert not set(first.seeds) & set(second.seeds)


def test_unknown_option_of_a_session_is_named() -> None:
    with pytest.raises(UsageError, match="^unknown setting 'bakend'$") as caught:
        Session(bakend="hammer")

    assert caught.value.hint.startswith("did you mean 'backend'?")


def test_observers_hear_of_each_gate_in_order(acme_here: Path) -> None:
    heard: list[Any] = []

    class Observer:
        @hookimpl
        def atrex_gate_finished(self, evaluation_id: str, gate: Gate, result: GateResult) -> None:
            heard.append((evaluation_id, gate, result.outcome))

        @hookimpl
        def atrex_evaluation_finished(self, evaluation: Evaluation) -> None:
            heard.append(evaluation)

    host = PluginHost.discover(extra=[Observer()])

    with Session(host=host, backend="hammer", until=Gate.CORRECTNESS) as session:
        (found,) = session.evaluate()

    assert heard == [
        (found.id, Gate.COMPILE, Outcome.PASSED),
        (found.id, Gate.CORRECTNESS, Outcome.PASSED),
        (found.id, Gate.PERFORMANCE, Outcome.SKIPPED),
        (found.id, Gate.AUTHENTICITY, Outcome.SKIPPED),
        found,
    ]


def test_closed_session_leaves_no_process(acme_here: Path) -> None:
    before, scratch = set(linux.descendants(os.getpid())), set(acme_here.iterdir())
    session = Session(backend="hammer", until=Gate.COMPILE)
    session.evaluate()
    ours = set(linux.descendants(os.getpid())) - before

    session.close()

    assert len(ours) >= 3
    assert set(linux.descendants(os.getpid())) == before
    assert [pid for pid in ours if linux.command_of(pid)] == []
    assert set(acme_here.iterdir()) == scratch
