"""The referee's clock on a real worker of the host: what it measures, and what cannot fool it."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from atrex_core import (
    Container,
    Cost,
    DType,
    Gate,
    Pack,
    Phase,
    Problem,
    Protocol,
    Scale,
    Stage,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
)
from atrex_core.processes.fork_server import ForkServerProcess
from atrex_core.processes.messages import Call, Done, Fault, OpenWorkload, Refused, Setup
from atrex_core.processes.workers import Died, Worker
from atrex_core.referee import held_clock
from atrex_core.referee import main as referee
from atrex_core.referee.arena import Arena
from atrex_core.referee.bench import Bench, Case
from atrex_core.referee.docket import Docket, Limits
from atrex_core.referee.held_clock import HeldClock, HeldTimes, Unanswered
from atrex_core.referee.laps import Laps
from atrex_core.referee.timed_outputs import WrongWhenTimed

pytest.importorskip("numba", reason="the server imports it")

SIZE, SETS = 512, 12
TIMEOUT_S = 20.0

CANDIDATE = """
import os, sys, threading, time
import torch

def spin(us):
    end = time.perf_counter() + us * 1e-6
    while time.perf_counter() < end:
        pass

class Model(torch.nn.Module):
    calls = 0

    def forward(self, x, state):
        self.calls += 1
        held = self.calls > 1
        out = x + state
{body}
        return {{"out": out, "state": state}}
"""


class Step(Problem):
    """out = x + state; state = state / 2."""

    name = "step"
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
        return tuple(TensorSpec(name=n, dtype=DType.FP32, shape=(SIZE,)) for n in ("x", "state"))

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        return tuple(TensorSpec(name=n, dtype=DType.FP32, shape=(SIZE,)) for n in ("out", "state"))

    def regimes(self, workload: Workload) -> Sequence[str]:
        return ("nominal",)

    def draw(self, workload: Workload, *, regime: str, seed: int, device: str) -> Tensors:
        rng = torch.Generator().manual_seed(seed)
        return {name: torch.randn(SIZE, generator=rng) for name in ("x", "state")}

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        return self.honest(workload, {name: tensor.double() for name, tensor in inputs.items()})

    def honest(self, workload: Workload, inputs: Tensors) -> Tensors:
        return {"out": inputs["x"] + inputs["state"], "state": inputs["state"] / 2}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        return Tolerance(dtype=DType.FP32)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        return Cost(flops={}, read_bytes=8 * SIZE, write_bytes=8 * SIZE)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("tmp")))
        setup = Setup(
            backend="numba",
            device="cpu",
            targets=(),
            protocol=Protocol.STRICT,
            until=Gate.PERFORMANCE,
            profile=None,
            cases=5,
            timeout_s=TIMEOUT_S,
            memory_limit_bytes=None,
            perf_budget_s=0.05,
        )
        bench, _ = referee._prepare(setup, referee.Startup())
        yield bench
        bench.server.stop()


Make = Callable[..., HeldClock]


@pytest.fixture
def clock_of(bench: Bench) -> Iterator[Make]:
    """Return what makes a clock on a worker whose forward has the given body."""
    dockets: list[Docket] = []
    arenas: list[Arena] = []

    def make(body: str, *, timeout_s: float = TIMEOUT_S) -> HeldClock:
        source = CANDIDATE.format(body=textwrap.indent(textwrap.dedent(body), " " * 8))
        limits = Limits(timeout_s=TIMEOUT_S, memory_limit_bytes=None)
        docket = Docket(
            server=bench.server, device=bench.device, limits=limits, source=source.encode()
        )
        dockets.append(docket)
        worker = docket.ensure_worker()
        assert isinstance(worker, Worker), worker
        problem = Step()
        (workload,) = problem.workloads
        specs = problem.inputs(workload), problem.outputs(workload)
        arena = Arena.allocate(bench.context, *specs, sets=SETS, output_sets=SETS)
        arenas.append(arena)
        handles, fds = arena.export()
        opened = worker.ask(
            OpenWorkload,
            timeout_s=TIMEOUT_S,
            fds=fds,
            init={},
            container=problem.container,
            in_place=dict(problem.in_place),
            buffers=handles,
            input_sets=arena.input_sets,
            output_sets=arena.output_sets,
        )
        assert isinstance(opened, Done), opened
        called = worker.ask(Call, timeout_s=TIMEOUT_S, stage=Stage.CORRECTNESS)
        assert isinstance(called, Done), called
        return HeldClock(
            bench, worker, arena, problem, workload, timeout_s, docket.next_epoch, Laps()
        )

    yield make
    for docket in dockets:
        docket.close()
    for arena in arenas:
        arena.close()


def measure(clock: HeldClock, once_s: float = 1e-3) -> HeldTimes:
    def draw(most: int) -> list[Case]:
        drawn = clock.bench, clock.problem, clock.workload, "nominal"
        return [Case.draw(*drawn) for _ in range(most)]

    return clock.measure(draw, once_s)


def caught(clock: HeldClock) -> Any:
    with pytest.raises(WrongWhenTimed) as raised:
        measure(clock)
    assert clock.worker.alive
    return raised.value.result


def unanswered(clock: HeldClock) -> Any:
    with pytest.raises(Unanswered) as raised:
        measure(clock)
    return raised.value.answer


# -- honest ----------------------------------------------------------------------------------------


def test_a_call_of_known_length_is_measured(clock_of: Make) -> None:
    found = measure(clock_of("spin(800); state.mul_(0.5)"))

    assert found.call_us is not None
    assert found.fresh_us is not None
    assert 700 < found.call_us < 1600
    assert 100 < found.fresh_us < 8000  # one round: whoever else is busy shows in it
    assert found.reason is None


def test_rounds_are_kept_and_hold_what_the_worker_was_asked_for(clock_of: Make) -> None:
    found = measure(clock_of("spin(300); state.mul_(0.5)"))
    counts = [calls for calls, _ in found.rounds]

    assert len(counts) == 9
    assert counts[0] == max(counts) == SETS
    assert min(counts) <= SETS // 2 < max(counts[1:])
    assert all(us > 300 * calls for calls, us in found.rounds)


def test_a_new_state_is_as_good_as_the_updated_one(clock_of: Make) -> None:
    assert measure(clock_of("state = state * 0.5")).call_us is not None


def test_long_calls_are_made_one_at_a_time(clock_of: Make) -> None:
    found = measure(clock_of("spin(20000); state.mul_(0.5)"), once_s=0.6)

    assert {calls for calls, _ in found.rounds} == {0, 1}
    assert found.call_us is not None
    assert 18_000 < found.call_us < 40_000


# -- dishonest -------------------------------------------------------------------------------------


def test_an_input_changed_only_when_held_is_found_out(clock_of: Make) -> None:
    result = caught(clock_of("state.mul_(0.5)\nif held: x.add_(1)"))

    assert result.reason == "a timed call changed its input 'x'"
    assert result.details["caught_by"] == held_clock.CAUGHT_BY


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("state.mul_(0.5)\nif held: out = torch.zeros_like(out)", id="no work"),
        pytest.param("if not held: state.mul_(0.5)", id="a state left alone"),
        pytest.param(
            "state.mul_(0.5)\nout, self.old = getattr(self, 'old', out).clone(), out",
            id="the answer of the call before",
        ),
        pytest.param(
            "state.mul_(0.5)\nif held:\n  real = out\n  out = torch.zeros_like(out)\n"
            "  threading.Timer(0.02, lambda: out.copy_(real)).start()",
            id="a thread that nobody waits for",
        ),
    ],
)
def test_what_is_wrong_only_when_held_is_found_out(clock_of: Make, body: str) -> None:
    result = caught(clock_of(body))

    assert result.reason.startswith("a timed call answered wrongly: output ")
    assert result.details["caught_by"] == held_clock.CAUGHT_BY
    assert result.details["regime"] == "nominal"


def test_one_buffer_for_all_calls_breaks_the_contract(clock_of: Make) -> None:
    answer = unanswered(
        clock_of("""
            state.mul_(0.5)
            self.kept = getattr(self, 'kept', torch.empty_like(out))
            out = self.kept.copy_(out)
        """)
    )

    assert isinstance(answer, Refused)
    assert answer.fault is Fault.CONTRACT
    assert answer.reason == "output 'out' of two calls is the same memory"


def test_who_says_that_it_has_finished_before_it_has_is_wrong(clock_of: Make) -> None:
    result = caught(
        clock_of("""
            state.mul_(0.5)
            if held:
                import gc
                from atrex_core.processes.gate import GateWords
                words, = [o for o in gc.get_objects() if type(o) is GateWords]
                words._finished.value = words._released.value
                spin(20000)
                out = x + 2 * state
        """)
    )

    assert "a timed call answered wrongly" in result.reason


# -- broken ----------------------------------------------------------------------------------------


def test_an_exception_in_a_held_round_is_told_at_once(clock_of: Make) -> None:
    clock = clock_of("state.mul_(0.5)\nif self.calls == 4: raise ValueError('enough')")
    began = time.monotonic()

    answer = unanswered(clock)

    assert time.monotonic() - began < TIMEOUT_S / 4
    assert isinstance(answer, Refused)
    assert answer.stage is Stage.PERFORMANCE
    assert answer.reason.startswith("ValueError: enough (line ")
    assert clock.worker.alive


def test_death_in_a_held_round_is_told_at_once(clock_of: Make) -> None:
    clock = clock_of("state.mul_(0.5)\nif held: os._exit(3)")
    began = time.monotonic()

    answer = unanswered(clock)

    assert time.monotonic() - began < TIMEOUT_S / 4
    assert isinstance(answer, Died)
    assert answer.stage is Stage.PERFORMANCE
    assert answer.reason == "exited with status 3 instead of returning"
    assert not clock.worker.scratch.exists()


def test_a_hang_in_a_held_round_ends_the_worker(clock_of: Make) -> None:
    clock = clock_of("state.mul_(0.5)\nif held: time.sleep(1000)", timeout_s=1.0)
    began = time.monotonic()

    answer = unanswered(clock)

    assert time.monotonic() - began < 10
    assert isinstance(answer, Died)
    assert answer.reason == "gave no answer within 1 s and was ended"
    assert answer.where.endswith("in forward")
    assert not clock.worker.scratch.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(clock.worker.pid, 0)


def test_memory_is_watched_while_a_round_runs(clock_of: Make) -> None:
    clock = clock_of(
        "state.mul_(0.5)\nif held: kept = torch.ones(5 << 26); time.sleep(1000)", timeout_s=15.0
    )
    clock.worker.memory_limit_bytes = 1 << 27
    began = time.monotonic()

    answer = unanswered(clock)

    assert time.monotonic() - began < 10
    assert isinstance(answer, Died)
    assert answer.reason == "exceeded the memory limit of 0.125 GiB"


# -- without a gate --------------------------------------------------------------------------------


def test_a_worker_that_cannot_be_held_is_not_asked(clock_of: Make) -> None:
    clock = clock_of("state.mul_(0.5)")
    clock.worker.ungated = "this driver cannot wait for host memory"

    assert measure(clock) == HeldTimes(reason="this driver cannot wait for host memory")


def test_every_worker_of_the_host_can_be_held(clock_of: Make) -> None:
    clock = clock_of("state.mul_(0.5)")

    assert clock.worker.ungated is None
    assert isinstance(clock.worker.server, ForkServerProcess)
