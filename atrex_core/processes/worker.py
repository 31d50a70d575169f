"""The untrusted process: one candidate, one request at a time.

Everything here runs beside candidate code and may be subverted by it. So nothing here judges,
and nothing secret is ever sent here: no seed, no expected output, no tolerance, no weight.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import resource
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

from attrs import define, field

from atrex_core.errors import Unavailable
from atrex_core.interfaces import (
    Accelerator,
    Backend,
    BackendRuntime,
    DeviceContext,
    QueueGate,
    RuntimeRequest,
    Stage,
    TargetFailure,
)
from atrex_core.memory import is_out_of_memory
from atrex_core.printable import one_line, plain
from atrex_core.processes import linux
from atrex_core.processes.candidate import CandidateFault, ContractBreach, LoadedCandidate
from atrex_core.processes.channel import Channel, ChannelClosed
from atrex_core.processes.gate import HostGate
from atrex_core.processes.messages import (
    Broken,
    Build,
    Call,
    CloseWorkload,
    Collect,
    Done,
    Enqueue,
    Fault,
    Foresee,
    Load,
    OpenWorkload,
    Refused,
    Run,
    Sample,
    Start,
    WorkerRequest,
)
from atrex_core.processes.stage import StageCell
from atrex_core.processes.stand_ins import AbsentContext, StandIns, shortfall
from atrex_core.processes.workspace import Workspace

CHANNEL_LOST = 77
"""Exit status when our own end of the channel stopped working: the candidate closed it."""


def become(
    channel: Channel,
    stage: StageCell,
    *,
    output_fd: int,
    scratch: Path,
    backend: Backend,
    accelerator: Accelerator,
) -> None:
    """Turn this freshly forked process into a worker, and serve until the referee hangs up."""
    _settle_in(output_fd, scratch)
    _Worker(channel, stage, scratch, backend, accelerator).serve()


def _settle_in(output_fd: int, scratch: Path) -> None:
    """Give the candidate a home of its own and take away what it does not need."""
    null = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, null), (1, output_fd), (2, output_fd)):
        os.dup2(source, target)
    os.close(null)
    os.close(output_fd)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a real stream here
    os.chdir(scratch)
    home = str(scratch)
    os.environ.update(HOME=home, TMPDIR=home, XDG_CACHE_HOME=home)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    linux.forbid_new_privileges()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable(file=2)


@define(eq=False)
class _Worker:
    channel: Channel
    stage: StageCell
    scratch: Path
    backend: Backend
    accelerator: Accelerator
    _pid: int = field(factory=os.getpid)
    _path: Path = Path()
    _on_stand_in: bool = False
    _context: DeviceContext | None = None
    _runtime: BackendRuntime | None = None
    _candidate: LoadedCandidate | None = None
    _workspace: Workspace | None = None
    _gate: QueueGate | None = None
    _stand_ins: StandIns | None = None
    """Set where the device is compiled for without being opened."""

    def serve(self) -> None:
        while True:
            try:
                request = self.channel.receive()
            except ChannelClosed:
                return
            reply = self._answer(request)
            if os.getpid() != self._pid:
                os._exit(0)  # a fork made by the candidate has come back here: it has no say
            try:
                self.channel.send(reply)
            except ChannelClosed:
                os._exit(CHANNEL_LOST)

    def _answer(self, request: WorkerRequest) -> Done | Refused | Broken:
        try:
            return self._carry_out(request)
        except CandidateFault as fault:
            return self._refusal(request.number, fault)
        except Exception as error:  # noqa: BLE001  (ours or a plugin's: reported, never charged)
            where = traceback.format_exception(error)[-3:]
            return Broken(number=request.number, reason=one_line("".join(where)))

    def _carry_out(self, request: WorkerRequest) -> Done:
        match request:
            case Start():
                return self._start(request)
            case Load():
                return self._load(request)
            case Foresee():
                return self._foresee(request)
            case OpenWorkload():
                return self._open(request)
            case Call():
                return self._call(request)
            case Build():
                return self._build(request)
            case Sample():
                return self._sample(request)
            case Run():
                return self._run(request)
            case Enqueue():
                return self._enqueue(request)
            case Collect():
                with self._candidates_turn(Stage.PERFORMANCE):
                    self._opened.publish(request.index)
                return Done(number=request.number)
            case CloseWorkload():
                self._opened.close()
                self._workspace = None
                return Done(number=request.number, peak_memory_bytes=self._peak())

    # -- one method per request ----------------------------------------------------------------

    def _start(self, request: Start) -> Done:
        if request.absent is not None:
            self._stand_ins = StandIns.prepare(request.absent)
            self._context, start = AbsentContext(request.absent), self.backend.start_ahead
        else:
            self._context, start = self.accelerator.open(request.device), self.backend.start
        self._on_stand_in = request.device.virtual
        self._path = self.scratch / request.candidate
        self._runtime = start(
            RuntimeRequest(
                device=request.device,
                context=self._context,
                candidate=self._path,
                scratch=self.scratch,
                enter=self.stage.enter,
                cache=Path(request.cache) if request.cache else None,
            )
        )
        if self._stand_ins is not None:
            return Done(number=request.number)
        ungated = None
        try:
            self._gate = self._open_gate(self._context)
        except Unavailable as error:
            ungated = _first_line(str(error))
        return Done(number=request.number, versions=self._context.versions(), ungated=ungated)

    def _open_gate(self, context: DeviceContext) -> QueueGate:
        addresses = self.stage.gate.addresses
        if self.accelerator.is_synchronous:
            return HostGate(*addresses)
        return context.open_gate(*addresses)

    def _load(self, request: Load) -> Done:
        if request.memory_limit_bytes and self.accelerator.limits_address_space:
            limit = linux.address_space_bytes() + request.memory_limit_bytes
            _, most = resource.getrlimit(resource.RLIMIT_AS)
            limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        with self._candidates_turn(Stage.IMPORT), self._world:
            self._candidate = LoadedCandidate.load(self._path)
        with self._candidates_turn(Stage.IMPORT):
            complaint = self.backend.exposes(vars(self._candidate.module))
            if complaint:
                raise ContractBreach(complaint)
        return Done(number=request.number)

    @property
    def _world(self) -> AbstractContextManager[None]:
        """The context in which every tensor is a stand-in, where there is no device."""
        return self._stand_ins.mode if self._stand_ins else nullcontext()

    def _foresee(self, request: Foresee) -> Done:
        import torch

        assert self._stand_ins is not None, "for a worker without its device"
        assert self._candidate is not None, "Load comes first"
        runtime, short_of = self._started, None
        runtime.clear_launches()
        inputs = self._stand_ins.inputs(request.inputs)
        try:
            with self._candidates_turn(Stage.CONSTRUCT), self._world:
                model = self._candidate.construct(request.init, tuple(inputs))
            with self._candidates_turn(Stage.CORRECTNESS), self._world, torch.no_grad():
                model(**inputs)
        except CandidateFault as fault:  # what it has compiled by then is compiled
            short_of = one_line(fault.reason, _MOST_REASON)
        for target in request.targets:
            with suppress(TargetFailure):  # it will fail again where that counts
                runtime.compile_for(target)
        reports = tuple(runtime.reports())[:_MOST_REPORTS]
        return Done(number=request.number, reports=reports, short_of=short_of)

    def _open(self, request: OpenWorkload) -> Done:
        assert self._context is not None, "Load comes first"
        assert self._candidate is not None, "Load comes first"
        self._context.reset_peak_memory()
        fds = self.channel.take_fds()
        try:
            workspace = Workspace.open(self._context, request, fds)
        finally:
            for fd in fds:
                os.close(fd)
        with self._candidates_turn(Stage.CONSTRUCT):
            workspace.model = self._candidate.construct(request.init, workspace.parameters)
        self._workspace = workspace
        return Done(number=request.number)

    def _call(self, request: Call) -> Done:
        runtime, workspace = self._started, self._opened
        runtime.clear_launches()
        with self._candidates_turn(request.stage):
            if request.knock_out:
                with runtime.knocked_out(), workspace.poisoned_memory():
                    outputs = workspace.forward(0)
            else:
                outputs = workspace.forward(0)
            workspace.write(outputs)
        if request.report:  # what compiling left behind is not to be collected while timing
            gc.collect()
            gc.freeze()
        return Done(
            number=request.number,
            launches=tuple(runtime.launches())[:_MOST_LAUNCHES],
            reports=tuple(runtime.reports()) if request.report else (),
        )

    def _build(self, request: Build) -> Done:
        self.stage.set(Stage.COMPILE)
        try:
            reports = tuple(self._started.compile_for(request.target))
        except TargetFailure as failure:
            raise CandidateFault(
                Fault.COMPILE,
                f"{failure.target}: {_first_line(str(failure))}",
                {"target": failure.target, "message": str(failure)},
            ) from failure
        return Done(number=request.number, reports=reports)

    def _sample(self, request: Sample) -> Done:
        assert self._context is not None, "Load comes first"
        with self._context.placed_threads(), self._candidates_turn(Stage.PERFORMANCE):
            samples = self._context.sample(self._opened.timed_call, budget_s=request.budget_s)
        return Done(number=request.number, samples=samples, calls=self._opened.timed_calls)

    def _run(self, request: Run) -> Done:
        assert self._context is not None, "Load comes first"
        workspace = self._opened
        with self._context.placed_threads(), self._candidates_turn(Stage.PERFORMANCE):
            for _ in range(request.calls):
                workspace.timed_call()
            self._context.synchronize()
        return Done(number=request.number, calls=workspace.timed_calls)

    def _enqueue(self, request: Enqueue) -> Done:
        assert self._context is not None, "Load comes first"
        assert self._gate is not None, "a referee does not ask who has none"
        workspace, gate, words = self._opened, self._gate, self.stage.gate
        with self._context.placed_threads(), self._candidates_turn(Stage.PERFORMANCE):
            if gate.blocks_host:
                words.arm(request.epoch)
            gate.hold(request.epoch)
            for index in range(request.calls):
                workspace.held_call(index)
            gate.mark(request.epoch)
            words.arm(request.epoch)
            self._context.synchronize()
            workspace.check_held(request.calls)
        return Done(number=request.number, calls=workspace.timed_calls)

    # -- whose fault it is ---------------------------------------------------------------------

    @contextmanager
    def _candidates_turn(self, stage: Stage) -> Iterator[None]:
        """Run candidate code: whatever it raises is its own fault, charged to `stage`."""
        self.stage.set(stage)
        try:
            yield
        except CandidateFault:
            raise
        except BaseException as error:
            raise self._explain(error) from error

    def _explain(self, error: BaseException) -> CandidateFault:
        try:
            return self._described(error)
        except BaseException:  # noqa: BLE001  (the exception is hostile, down to its __str__)
            return CandidateFault(Fault.EXCEPTION, "raised an exception that cannot be shown")

    def _described(self, error: BaseException) -> CandidateFault:
        where = self._candidate_frame(error)
        if isinstance(error, Unavailable) and self._on_stand_in:
            return CandidateFault(Fault.UNSUPPORTED, _first_line(str(error)))
        if self._stand_ins is not None and (lacking := shortfall(error)) is not None:
            return CandidateFault(Fault.UNSUPPORTED, f"{lacking}{where}")
        if is_out_of_memory(error):
            traceback.clear_frames(error.__traceback__)  # they hold what filled the memory
            text = f"out of memory: {_first_line(str(error))}".rstrip(": ")
            return CandidateFault(Fault.MEMORY, f"{text}{where}")
        message = self._runtime.compile_error(error) if self._runtime else None
        if message is not None:
            self.stage.set(Stage.COMPILE)
            return CandidateFault(Fault.COMPILE, _first_line(message), {"message": message})
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        text = f"{type(error).__name__}: {_first_line(said)}".rstrip(": ")
        details = {"traceback": "".join(traceback.format_exception(error))[-_MOST_TRACEBACK:]}
        return CandidateFault(Fault.EXCEPTION, f"{text}{where}", details)

    def _candidate_frame(self, error: BaseException) -> str:
        """Name the innermost line of the candidate's own file in a traceback."""
        if isinstance(error, SyntaxError) and error.lineno:
            return f" (line {error.lineno})"
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if Path(f.filename).parent == self.scratch]
        return f" (line {own[-1].lineno}, in {own[-1].name})" if own else ""

    def _refusal(self, number: int, fault: CandidateFault) -> Refused:
        return Refused(
            number=number,
            stage=self.stage.stage,
            fault=fault.fault,
            reason=one_line(fault.reason, _MOST_REASON),
            details=plain(fault.details),
        )

    def _peak(self) -> int | None:
        return self._context.peak_memory_bytes() if self._context else None

    @property
    def _started(self) -> BackendRuntime:
        assert self._runtime is not None, "Load comes first"
        return self._runtime

    @property
    def _opened(self) -> Workspace:
        assert self._workspace is not None, "OpenWorkload comes first"
        return self._workspace


_MOST_LAUNCHES = 256
_MOST_REPORTS = 4096
_MOST_REASON = 600
_MOST_MESSAGE = 400
_MOST_TRACEBACK = 4000


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return one_line(lines[0], _MOST_MESSAGE) if lines else ""
