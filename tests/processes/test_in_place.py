"""Outputs that may be inputs, updated: allowed where the problem says so, and judged when timed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from atrex_core import (
    ArithmeticPath,
    Container,
    Cost,
    DType,
    Gate,
    Outcome,
    Pack,
    Phase,
    Problem,
    Protocol,
    Scale,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
)
from atrex_core.processes.family import Standstill
from atrex_core.processes.messages import Setup
from atrex_core.referee import held_clock
from atrex_core.referee import main as referee
from atrex_core.referee.bench import Bench
from atrex_core.referee.docket import Docket, Limits
from atrex_core.referee.trial import Trial

pytest.importorskip("numba", reason="the candidates are written in it")

ROWS, POOL = 300, 1000

CANDIDATE = """
import numba
import torch

@numba.njit
def step(x, state, out):
    for i in range(x.shape[0]):
        out[i] = x[i] + state[i]
        state[i] = 0.5 * state[i] + x[i]

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x, state):
        self.calls += 1
        {prepare}
        out = torch.empty_like(x)
        step(x.numpy(), state.numpy(), out.numpy())
        return {{"out": out, "state": {returned}}}
"""


_KEEP = "self.done.add(state.data_ptr()); kept = state; state = state.clone() if known else state"


class Pool(Problem):
    """out = x + state; state = state / 2 + x, for the first rows of a pool."""

    name = "pool"
    summary = "a state that is updated"
    pack = Pack(name="test", version="1", digest="")
    importance = 1.0
    phases = (Phase.DECODE,)
    container = Container.DICT
    in_place = {"state": "state"}

    @property
    def workloads(self) -> Sequence[Workload]:
        return (Workload(id="0", axes={}, scale=Scale.FULL),)

    @property
    def public_files(self) -> Sequence[Path]:
        return ()

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        return (
            TensorSpec(name="x", dtype=DType.FP32, shape=(ROWS,)),
            TensorSpec(name="state", dtype=DType.FP32, shape=(POOL,)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        return (
            TensorSpec(name="out", dtype=DType.FP32, shape=(ROWS,)),
            TensorSpec(name="state", dtype=DType.FP32, shape=(POOL,)),
        )

    def regimes(self, workload: Workload) -> Sequence[str]:
        return ("nominal",)

    def draw(self, workload: Workload, *, regime: str, seed: int, device: str) -> Tensors:
        rng = torch.Generator().manual_seed(seed)
        return {"x": torch.randn(ROWS, generator=rng), "state": torch.randn(POOL, generator=rng)}

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        return self._step({name: tensor.double() for name, tensor in inputs.items()})

    def honest(self, workload: Workload, inputs: Tensors) -> Tensors:
        return self._step(inputs)

    def tolerance(self, output: TensorSpec) -> Tolerance:
        return Tolerance(dtype=DType.FP32)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        work = {ArithmeticPath.FP32_VECTOR: 3.0 * ROWS}
        return Cost(flops=work, read_bytes=8 * ROWS, write_bytes=8 * ROWS)

    def _step(self, inputs: Tensors) -> Tensors:
        x, state = inputs["x"], inputs["state"].clone()
        out = x + state[:ROWS]
        state[:ROWS] = state[:ROWS] / 2 + x
        return {"out": out, "state": state}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("tmp")))
        setup = Setup(
            backend="numba",
            device="cpu",
            targets=(),
            protocol=Protocol.STRICT,
            until=Gate.AUTHENTICITY,
            profile=None,
            cases=5,
            timeout_s=60,
            memory_limit_bytes=None,
            perf_budget_s=0.05,
        )
        bench, _ = referee._prepare(setup, referee.Startup())
        yield bench
        bench.server.stop()


@pytest.fixture
def judge(bench: Bench) -> Iterator[Callable[..., Trial]]:
    """Return what judges a candidate that prepares, and returns, its state in a certain way."""
    dockets: list[Docket] = []

    def judge(returned: str, prepare: str = "pass", problem: Problem | None = None) -> Trial:
        for earlier in dockets:  # a referee has one candidate at a time
            earlier.close()
        source = CANDIDATE.format(prepare=prepare, returned=returned)
        limits = Limits(timeout_s=60, memory_limit_bytes=None)
        docket = Docket(
            server=bench.server, device=bench.device, limits=limits, source=source.encode()
        )
        dockets.append(docket)
        problem = problem or Pool()
        trial = Trial(bench, docket, problem, problem.workloads[0], lambda gate, result: None)
        trial.run()
        return trial

    yield judge
    for docket in dockets:
        docket.close()


def outcomes(trial: Trial) -> dict[Gate, Outcome]:
    return {gate: result.outcome for gate, result in trial.gates.items()}


PASSED = dict.fromkeys(Gate, Outcome.PASSED)


@pytest.mark.parametrize(
    ("returned", "prepare"),
    [("state", "pass"), ("state", "state = state.clone()")],
    ids=["the input itself", "a new tensor"],
)
def test_an_output_may_be_its_input_updated_or_a_new_tensor(
    judge: Callable[..., Trial], returned: str, prepare: str
) -> None:
    trial = judge(returned, prepare)

    assert outcomes(trial) == PASSED
    assert trial.measurement is not None
    assert trial.measurement.timing.call_us is not None
    conditions = trial.measurement.timing.conditions
    assert conditions is not None
    assert conditions.before.load_1min is not None
    assert conditions.after.cpus == len(os.sched_getaffinity(0))


def test_a_view_of_the_input_is_not_the_input(judge: Callable[..., Trial]) -> None:
    trial = judge("torch.cat([state, state])[: len(state)].copy_(state) * 1")
    moved = judge("state.roll(0)[:0].new_zeros(0) if self.calls < 0 else x.expand(1, -1)[0]")

    assert outcomes(trial) == PASSED
    assert "has shape (300,), not (1000,)" in str(moved.gates[Gate.CORRECTNESS].reason)


def test_another_input_in_its_place_is_refused(judge: Callable[..., Trial]) -> None:
    class Square(Pool):
        """A pool as long as x, so that x could be returned for it."""

        def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
            return (super().inputs(workload)[0], self._state())

        def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
            return (super().outputs(workload)[0], self._state())

        def draw(self, workload: Workload, *, regime: str, seed: int, device: str) -> Tensors:
            drawn = super().draw(workload, regime=regime, seed=seed, device=device)
            return {**drawn, "state": drawn["state"][:ROWS].clone()}

        def _state(self) -> TensorSpec:
            return TensorSpec(name="state", dtype=DType.FP32, shape=(ROWS,))

    trial = judge("x", problem=Square())

    reason = str(trial.gates[Gate.CORRECTNESS].reason)
    assert "neither a new tensor nor the input 'state' itself" in reason


def test_where_the_problem_does_not_say_so_an_updated_input_fails(
    judge: Callable[..., Trial],
) -> None:
    class Functional(Pool):
        """The same without leave to update."""

        in_place = {}

    returned = judge("state", problem=Functional())
    changed = judge("state.clone()", problem=Functional())

    assert "is a view of an input" in str(returned.gates[Gate.CORRECTNESS].reason)
    assert "changed its input 'state'" in str(changed.gates[Gate.CORRECTNESS].reason)


def test_an_input_that_is_no_output_must_not_change(judge: Callable[..., Trial]) -> None:
    trial = judge("state", "x = x.add_(0.0) if self.calls < 3 else x.add_(1.0).sub_(1.0)")
    nudged = judge("state", "x.mul_(1.0000001)")

    assert "changed its input 'x'" in str(nudged.gates[Gate.CORRECTNESS].reason)
    assert trial.gates[Gate.CORRECTNESS].outcome is Outcome.FAILED


def test_a_state_left_alone_when_timed_is_found_out(judge: Callable[..., Trial]) -> None:
    trial = judge("state", "state = state if self.calls < 12 else state.clone()")
    lazy = judge("state if self.calls < 12 else self.old", "self.old = state.clone()")

    assert outcomes(trial) == PASSED  # a new tensor with the right values is fine at any time
    assert lazy.gates[Gate.PERFORMANCE].outcome is Outcome.FAILED
    assert "a timed call answered wrongly" in str(lazy.gates[Gate.PERFORMANCE].reason)


def test_a_state_that_is_updated_once_and_then_left_alone_is_found_out(
    judge: Callable[..., Trial],
) -> None:
    done = "self.done = getattr(self, 'done', set()); known = state.data_ptr() in self.done"
    trial = judge("kept if known and self.calls > 12 else state", f"{done}; {_KEEP}")

    result = trial.gates[Gate.PERFORMANCE]
    assert "a timed call answered wrongly: output 'state'" in str(result.reason)
    assert result.details["caught_by"] == held_clock.CAUGHT_BY


def test_what_does_not_fit_is_refused_before_anything_is_allocated(
    bench: Bench, judge: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.context, "free_bytes", lambda: 10_000)
    monkeypatch.setattr(bench.context, "allocate", lambda nbytes: pytest.fail("allocated"))

    trial = judge("state")

    assert outcomes(trial) == {Gate.COMPILE: Outcome.SKIPPED}
    reason = str(trial.gates[Gate.COMPILE].reason)
    assert "needs more memory than cpu has free" in reason
    assert "of which 10000 are free" in reason


def test_what_both_processes_hold_is_counted(bench: Bench) -> None:
    pool = Pool()
    workload = pool.workloads[0]
    inputs, outputs = 4 * (ROWS + POOL), 4 * (ROWS + POOL)

    # A kept output that is an input costs nothing more.
    twice = 2 * (inputs + 4 * ROWS)
    assert bench.needed_bytes(pool, workload, 2) == twice + 2 * inputs + 6 * outputs


def test_one_set_will_do_where_two_large_ones_do_not_fit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool()
    workload = pool.workloads[0]
    monkeypatch.setattr(bench.context, "last_level_cache_bytes", 100)
    two, one = (bench.needed_bytes(pool, workload, sets, held=sets) for sets in (2, 1))

    assert bench.rotation(pool, workload, two) == (2, True)
    assert bench.rotation(pool, workload, two - 1) == (1, True)
    assert bench.rotation(pool, workload, one - 1) == (1, True)
    assert bench.rotation(pool, workload, None) == (32, True)  # enough for a slope


def test_who_wakes_what_compiles_ahead_while_calls_are_timed_fails(
    judge: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def paused(_: Docket) -> Iterator[Standstill]:
        standstill = Standstill()
        yield standstill
        standstill._moved = (4711,)

    monkeypatch.setattr(Docket, "pause_ahead", paused)
    found = judge("state").gates[Gate.PERFORMANCE]

    assert found.outcome is Outcome.FAILED
    assert found.reason == "a process that compiles ahead was woken while calls were timed"
    assert found.details["caught_by"] == "processes left behind"
