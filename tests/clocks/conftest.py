"""A simulated device that works on its own, in simulated time, and the referee's clock on it.

The device runs a stream: each kernel starts a gap after the one before. A word that it waits for is
seen late by a constant, as when a device is given from one process to another.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from attrs import define, field

from atrex_core import (
    Buffer,
    BufferHandle,
    Cost,
    DeviceContext,
    DeviceSamples,
    DType,
    Pack,
    Phase,
    Problem,
    QueueGate,
    Scale,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
    torch_dtype,
)
from atrex_core.processes import gate as gate_module
from atrex_core.processes.gate import GateWords
from atrex_core.processes.messages import Done, Enqueue, Run
from atrex_core.referee import copies, held_clock
from atrex_core.referee.arena import Arena
from atrex_core.referee.bench import Bench, Case
from atrex_core.referee.copies import CopyClock
from atrex_core.referee.held_clock import HeldClock, HeldTimes
from atrex_core.referee.laps import Laps

KERNEL_US = 37.0
COPY_US = 3.0
GAP_US = 1.0
SWITCH_US = 180.0
LOOK_US = 0.05
"""What it takes to look at a clock or a word once."""
SETS = 24
SIZE = 8

Work = Callable[[], None]


def nothing() -> None:
    pass


@define(eq=False)
class Stream:
    """Kernels, waits and writes in the order in which they were enqueued."""

    words: GateWords
    queue: list[tuple[str, float, Work]] = field(factory=list)
    free_at_us: float = 0.0

    def launch(self, cost_us: float, work: Work) -> None:
        self.queue.append(("launch", cost_us, work))

    def hold(self, epoch: int) -> None:
        self.queue.append(("hold", epoch, nothing))

    def mark(self, epoch: int) -> None:
        self.queue.append(("mark", epoch, nothing))

    def progress(self, now_us: float) -> None:
        """Do what is done by now."""
        while self.queue:
            kind, figure, work = self.queue[0]
            if kind == "hold":
                if self.words._released.value < figure:
                    return
                self.free_at_us = now_us + SWITCH_US
            elif kind == "launch":
                if self.free_at_us + GAP_US + figure > now_us:
                    return
                self.free_at_us += GAP_US + figure
                work()
            elif self.free_at_us > now_us:
                return
            else:
                self.words._finished.value = int(figure)
            self.queue.pop(0)


@define(eq=False)
class World:
    """Simulated time, and all that goes on in it."""

    kernel_us: float = KERNEL_US
    copy_us: float = GAP_US + COPY_US
    gap_us: float = GAP_US
    switch_us: float = SWITCH_US
    sets: int = SETS
    now_us: float = 0.0
    streams: list[Stream] = field(factory=list)

    def perf_counter(self) -> float:
        self.pass_by(LOOK_US)
        return self.now_us * 1e-6

    def sleep(self, seconds: float) -> None:
        self.pass_by(seconds * 1e6)

    def pass_by(self, us: float) -> None:
        self.now_us += us
        for stream in self.streams:
            stream.progress(self.now_us)

    def stream(self) -> Stream:
        self.streams.append(Stream(GateWords(mmap.mmap(-1, mmap.PAGESIZE))))
        return self.streams[-1]


class Memory(Buffer):
    """Plain memory that nobody else has."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._bytes = torch.zeros(nbytes, dtype=torch.uint8)

    def handle(self) -> BufferHandle:
        raise NotImplementedError

    def tensor(self, dtype: DType, shape: Sequence[int], offset_bytes: int = 0) -> Any:
        nbytes = dtype.item_bytes * torch.Size(shape).numel()
        return (
            self._bytes[offset_bytes : offset_bytes + nbytes].view(torch_dtype(dtype)).view(shape)
        )

    def close(self) -> None:
        pass


class SimulatedGate(QueueGate):
    """Waits and writes on a stream."""

    def __init__(self, stream: Stream) -> None:
        self.hold, self.mark = stream.hold, stream.mark  # type: ignore[method-assign]

    def hold(self, epoch: int) -> None:
        raise NotImplementedError

    def mark(self, epoch: int) -> None:
        raise NotImplementedError


class Context(DeviceContext):
    """The referee's hold on the device."""

    torch_device = "cpu"

    def __init__(self, world: World) -> None:
        self.world = world
        self.stream: Stream | None = None

    def allocate(self, nbytes: int) -> Buffer:
        return Memory(nbytes)

    def open_buffer(self, handle: BufferHandle) -> Buffer:
        raise NotImplementedError

    def synchronize(self) -> None:
        self.world.pass_by(2.0)

    def sample(self, call: Callable[[int], None], *, budget_s: float) -> DeviceSamples:
        raise NotImplementedError

    def open_gate(self, released_address: int, finished_address: int) -> QueueGate:
        self.stream = self.world.stream()
        for name, address in (("_released", released_address), ("_finished", finished_address)):
            word = type(self.stream.words._released).from_address(address)
            setattr(self.stream.words, name, word)
        return SimulatedGate(self.stream)


@define(eq=False)
class OutputOnDevice:
    """A tensor whose copy takes time on the referee's stream."""

    context: Context

    def copy_(self, source: OutputOnDevice) -> None:
        assert self.context.stream is not None
        if source is not self:  # as torch has it
            self.context.stream.launch(COPY_US, nothing)

    def clone(self) -> OutputOnDevice:
        return OutputOnDevice(self.context)


class SimulatedArena(Arena):
    def copied_outputs(self, index: int, in_place: Mapping[str, str]) -> Mapping[str, Any]:
        return {"out": OutputOnDevice(cast(Context, self.context))}


class Double(Problem):
    """out = 2 x."""

    name = "double"
    summary = "twice"
    pack = Pack(name="test", version="1", digest="")
    importance = 1.0
    phases = (Phase.DECODE,)

    @property
    def workloads(self) -> Sequence[Workload]:
        return (Workload(id="0", axes={}, scale=Scale.FULL),)

    @property
    def public_files(self) -> Sequence[Path]:
        return ()

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        return (TensorSpec(name="x", dtype=DType.FP32, shape=(SIZE,)),)

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        return (TensorSpec(name="out", dtype=DType.FP32, shape=(SIZE,)),)

    def regimes(self, workload: Workload) -> Sequence[str]:
        return ("nominal",)

    def draw(self, workload: Workload, *, regime: str, seed: int, device: str) -> Tensors:
        return {"x": torch.randn(SIZE, generator=torch.Generator().manual_seed(seed))}

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        return {"out": 2 * inputs["x"].double()}

    def honest(self, workload: Workload, inputs: Tensors) -> Tensors:
        return {"out": 2 * inputs["x"]}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        return Tolerance(dtype=DType.FP32)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        return Cost(flops={}, read_bytes=4 * SIZE, write_bytes=4 * SIZE)


@define(eq=False)
class Candidate:
    """What a worker runs: enqueues the work of one call on the stream."""

    world: World
    stream: Stream
    forward: Callable[[Candidate, Any, Any], None]
    seen: set[bytes] = field(factory=set)

    def launch(self, cost_us: float, work: Work) -> None:
        self.stream.launch(cost_us, work)


@define(eq=False)
class SimulatedWorker:
    """Enqueues at once what it is asked for; the device does it when it may."""

    candidate: Candidate
    arena: Arena
    holds: int = 10**6
    """So many calls fit into a queue; with more, the host waits for the release."""
    ungated: str | None = None
    rounds: list[int] = field(factory=list)

    @property
    def gate(self) -> GateWords:
        return self.candidate.stream.words

    def has_answered(self) -> bool:
        return False

    def ask(
        self,
        request: type[Any],
        *,
        timeout_s: float,
        calls: int,
        meanwhile: Callable[[], None] = nothing,
        epoch: int = 0,
    ) -> Done:
        stream = self.candidate.stream
        if request is Run:
            return self._run(calls)
        assert request is Enqueue
        self.rounds.append(calls)
        stream.hold(epoch)
        for index in range(calls):
            x = self.arena._view(self.arena.input_sets[index][0])
            out = self.arena._view(self.arena.output_sets[index][0])
            result = torch.full((SIZE,), torch.nan)
            self.candidate.forward(self.candidate, x, result)
            stream.launch(COPY_US, lambda out=out, result=result: out.copy_(result))  # type: ignore[misc]
        stream.mark(epoch)
        if calls <= self.holds:
            self.gate.arm(epoch)
        meanwhile()
        while stream.queue:
            self.candidate.world.pass_by(1.0)
        return Done(number=1, calls=sum(self.rounds))

    def _run(self, calls: int) -> Done:
        world, stream = self.candidate.world, self.candidate.stream
        world.pass_by(30.0)  # the messages
        stream.free_at_us = world.now_us
        for index in range(calls):
            x = self.arena._view(self.arena.input_sets[index][0])
            self.candidate.forward(self.candidate, x, torch.empty(SIZE))
        while stream.queue:
            world.pass_by(LOOK_US)
        return Done(number=1)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Return a world whose time the clocks keep."""
    world = World()
    time = SimpleNamespace(perf_counter=world.perf_counter, sleep=world.sleep)
    for module in (gate_module, held_clock, copies):
        monkeypatch.setattr(module, "time", time)
    return world


@define(eq=False)
class Setting:
    """A clock, ready to measure, and what it is going to measure."""

    clock: HeldClock
    worker: SimulatedWorker
    drawn: list[Case] = field(factory=list)

    def measure(self, once_us: float = 50.0) -> HeldTimes:
        return self.clock.measure(self._draw, once_us * 1e-6)

    def _draw(self, most: int) -> Sequence[Case]:
        clock = self.clock
        cases = [Case.draw(clock.bench, clock.problem, clock.workload, "n") for _ in range(most)]
        self.drawn += cases
        return cases


Forward = Callable[[Candidate, Any, Any], None]
Set = Callable[..., Setting]


@pytest.fixture
def setting(world: World) -> Set:
    """Return what makes a clock that is ready to measure a forward."""

    def setting(forward: Forward, *, sets: int = SETS, holds: int = 10**6) -> Setting:
        context, problem = Context(world), Double()
        (workload,) = problem.workloads
        specs = problem.inputs(workload), problem.outputs(workload)
        arena = SimulatedArena.allocate(context, *specs, sets=sets, output_sets=sets)
        stand_in = SimpleNamespace(
            context=context,
            accelerator=SimpleNamespace(is_synchronous=False),
            copies=CopyClock(context),
            profile=None,
        )
        worker = SimulatedWorker(Candidate(world, world.stream(), forward), arena, holds)
        epochs = iter(range(1, 1000))
        clock = HeldClock(
            cast(Bench, stand_in),
            cast(Any, worker),
            arena,
            problem,
            workload,
            30.0,
            lambda: next(epochs),
            Laps(),
        )
        return Setting(clock, worker)

    return setting


@pytest.fixture
def context(world: World) -> Context:
    """Return a referee's hold on the device."""
    return Context(world)


@pytest.fixture
def output(context: Context) -> Callable[[], OutputOnDevice]:
    """Return what makes a tensor whose copy takes time."""
    return lambda: OutputOnDevice(context)
