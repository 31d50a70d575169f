"""The referee's process: set up once, then judge one workload after another."""

from __future__ import annotations

import base64
import importlib.metadata
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import define, evolve, field

from atrex_core.blank import blank_evaluation
from atrex_core.calibration import cache
from atrex_core.device_choice import find_device
from atrex_core.errors import AtrexError, ExitCode, PluginError
from atrex_core.interfaces import Accelerator, Backend, Problem
from atrex_core.model import (
    Candidate,
    Ceiling,
    Device,
    Evaluation,
    Gate,
    GateResult,
    HardwareProfile,
    Isolation,
    Outcome,
    Protocol,
    Workload,
)
from atrex_core.model.calibration import Calibration, DeviceIdentity, FloorMethod
from atrex_core.planning import problem_under
from atrex_core.plugins import PluginHost
from atrex_core.printable import one_line
from atrex_core.probe import PROBE_NAME, ProbeProblem
from atrex_core.processes import linux
from atrex_core.processes.channel import Channel, ChannelClosed
from atrex_core.processes.fork_server import ForkServerProcess
from atrex_core.processes.messages import (
    Alive,
    Begin,
    GateFinished,
    Judge,
    Judged,
    NotReady,
    Ready,
    Setup,
)
from atrex_core.processes.scratch import remove_own
from atrex_core.profile_choice import resolved_profile
from atrex_core.referee.bench import Bench
from atrex_core.referee.docket import Docket, Limits
from atrex_core.referee.forerunner import Forerunners, scenes
from atrex_core.referee.trial import Trial
from atrex_core.release.view import release_view

_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "LANG", "LC_ALL", "TZ")
"""Variables of ours that workers see; everything else stays here."""
PULSE_S = 5.0
_MOST_REASON = 450
_DEFAULT_MEMORY_BYTES = 8 * 2**30


def main(arguments: list[str]) -> None:
    """Run as `python -P -m atrex_core.referee.main CHANNEL_FD LIFELINE_FD`."""
    channel_fd, lifeline_fd = (int(word) for word in arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the orchestrator decides what Ctrl-C means
    linux.adopt_orphans()
    threading.Thread(target=_die_with_orchestrator, args=(lifeline_fd,), daemon=True).start()
    channel = Channel.from_fd(channel_fd)
    try:
        setup = channel.receive()
        assert isinstance(setup, Setup), "the first thing an orchestrator says"
        startup = Startup()
        bench, forerunners = _prepare(setup, startup)
    except ChannelClosed:
        return
    except AtrexError as error:
        code = error.exit_code
        channel.send(NotReady(reason=str(error), hint=error.hint, exit_code=code))
        return
    except Exception as error:  # noqa: BLE001  (a plugin may raise anything: say it, and end)
        reason = f"the referee could not start: {_said(error)}"
        channel.send(NotReady(reason=reason, hint="", exit_code=ExitCode.HARNESS_ERROR))
        return
    channel.send(
        Ready(
            device=bench.device,
            profile=bench.profile,
            isolation=Isolation.PROCESS,
            environment=bench.environment,
            startup_seconds=startup.seconds,
        )
    )
    referee = Referee(bench, channel, forerunners)
    try:
        referee.serve()
    finally:
        referee.close()


@define(eq=False)
class Referee:
    """Answers the orchestrator until it hangs up."""

    bench: Bench
    channel: Channel
    forerunners: Forerunners | None = None
    _broken_pack: str | None = None
    _candidate: Candidate | None = None
    _docket: Docket | None = None
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def serve(self) -> None:
        """Judge what is asked for, in order."""
        while True:
            try:
                request = self.channel.receive()
            except ChannelClosed:
                return
            match request:
                case Begin():
                    self._take_up(request)
                case Judge():
                    with self._pulse():
                        evaluation = self._judge(request)
                    self.channel.send(Judged(evaluation=evaluation))

    @contextmanager
    def _pulse(self) -> Iterator[None]:
        """Give signs of life inside the block: a judgement may take long, or be stopped."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(PULSE_S):
                with self._lock, suppress(ChannelClosed):
                    self.channel.send(Alive())

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def close(self) -> None:
        """Leave no process behind."""
        if self._docket is not None:
            self._docket.close()
        if self.forerunners is not None:
            self.forerunners.close()
        self.bench.server.stop()

    def _take_up(self, request: Begin) -> None:
        if self._docket is not None:
            self._docket.close()
        source = base64.b64decode(request.source)
        problem = self.bench.problems[request.problem]
        self._candidate = Candidate(
            name=request.submission,
            problem=request.problem,
            backend=self.bench.backend.name,
            path=Path(request.candidate),
            source=source,
        )
        self._docket = Docket(
            server=self.bench.server,
            device=self.bench.device,
            limits=_limits(self.bench.setup),
            source=source,
        )
        self._broken_pack = None
        try:
            for name, content in release_view(problem).items():
                self._docket.public_files[f"problem/{name}"] = content
        except PluginError as error:
            self._broken_pack = str(error)
            return
        if self.forerunners is not None:
            self._docket.look_ahead(
                self.forerunners,
                scenes(problem, request.workloads),
                torch_device=self.bench.context.torch_device,
                targets=self.bench.setup.targets,
            )

    def _judge(self, request: Judge) -> Evaluation:
        assert self._candidate is not None, "Begin comes first"
        assert self._docket is not None, "Begin comes first"
        problem = self.bench.problems[self._candidate.problem]
        workload = next(w for w in problem.workloads if w.id == request.workload)

        def announce(gate: Gate, result: GateResult) -> None:
            finished = GateFinished(evaluation_id=request.evaluation_id, gate=gate, result=result)
            with self._lock:
                self.channel.send(finished)

        trial = Trial(self.bench, self._docket, problem, workload, announce)
        blank = self._blank(request, problem, workload)
        started = time.monotonic()
        try:
            if self._broken_pack:
                raise PluginError(self._broken_pack)
            trial.run()
        except Exception as error:  # noqa: BLE001  (ours or a pack's fault: a result says so)
            self._docket.close()
            silent = (gate for gate in Gate if gate not in trial.gates)
            gate = next(silent, Gate.AUTHENTICITY)
            reason = f"the referee failed: {_said(error)}"
            details = {"traceback": "".join(traceback.format_exception(error))[-4000:]}
            trial.gates[gate] = GateResult(outcome=Outcome.ERRORED, reason=reason, details=details)
            announce(gate, trial.gates[gate])
        found, profile = trial.measurement, self.bench.profile
        return evolve(
            blank,
            profile=profile.name if profile else None,
            profile_digest=profile.digest if profile else None,
            gates=dict(trial.gates),
            flags=tuple(sorted(trial.flags)),
            timing=found.timing if found else None,
            bound=found.bound if found else None,
            gap=found.gap if found else None,
            share_of_roofline=found.share if found else None,
            peak_memory_bytes=trial.peak_memory_bytes,
            compile_seconds=trial.compile_seconds,
            seeds=tuple(trial.seeds),
            seconds=time.monotonic() - started,
            stage_seconds=dict(trial.laps.seconds),
            environment={**trial.docket.versions, **self.bench.environment},
        )

    def _blank(self, request: Judge, problem: Problem, workload: Workload) -> Evaluation:
        assert self._candidate is not None, "Begin comes first"
        bench = self.bench
        return blank_evaluation(
            request.evaluation_id,
            self._candidate,
            problem,
            workload,
            backend=bench.backend,
            accelerator=bench.accelerator,
            device=bench.device,
            protocol=bench.setup.protocol,
            request=bench.setup.request,
        )


@define(eq=False)
class Startup:
    """What it takes to be ready."""

    seconds: dict[str, float] = field(factory=lambda: {"process": linux.age_s()})
    """By what they were spent on. The process: an interpreter, and importing this package."""
    _since: float = field(factory=time.monotonic, init=False)

    def done(self, what: str) -> None:
        """Charge the time since the last call to `what`."""
        now = time.monotonic()
        self.seconds[what] = self.seconds.get(what, 0.0) + now - self._since
        self._since = now


def _prepare(setup: Setup, startup: Startup) -> tuple[Bench, Forerunners | None]:
    host = PluginHost.discover(disabled=setup.disabled_plugins)
    backend = host.backends[setup.backend]
    backend.check_available()
    accelerator, device = find_device(host, setup.device)
    startup.done("plugins")
    server = ForkServerProcess(
        backend=backend.name,
        accelerator=accelerator.name,
        plugins=_plugins_for_workers(host, backend, accelerator),
        environment=_worker_environment(accelerator, device),
    )
    server.start()  # imports beside ours
    forerunners = None
    try:
        if backend.compiles_ahead:
            forerunners = Forerunners.beside(server, accelerator.deviceless_environment(device))
        import torch  # noqa: F401  (the device's plugin needs it: here its time is seen apart)

        startup.done("torch")
        context = accelerator.open(device)
        startup.done("device")
        if device.last_level_cache_bytes is None:
            device = evolve(device, last_level_cache_bytes=context.last_level_cache_bytes)
        environment = _environment(backend, context.versions())
        profile = resolved_profile(host, device, setup.profile)
        calibration = _calibration(device, environment)
        problems = {PROBE_NAME: ProbeProblem(), **_judged(host, setup.protocol)}
        startup.done("problems")
        bench = Bench(
            setup=setup,
            device=device,
            accelerator=accelerator,
            backend=backend,
            context=context,
            profile=profile,
            server=server,
            problems=problems,
            environment=environment,
            calibrated=_envelope(calibration, profile),
            launch_floor_us=_launch_floor_us(calibration),
        )
    except BaseException:
        if forerunners is not None:
            forerunners.close(grace_s=0.0)
        server.stop(grace_s=0.0)
        raise
    return bench, forerunners


def _judged(host: PluginHost, protocol: Protocol) -> Mapping[str, Problem]:
    """Return every problem that has rules for `protocol`; the orchestrator asks for no other."""
    found = {}
    for name in host.problems.items:
        with suppress(AtrexError):
            found[name] = problem_under(host, name, protocol)
    return found


def _plugins_for_workers(
    host: PluginHost, backend: Backend, accelerator: Accelerator
) -> tuple[str, ...]:
    """Name the two plugins a fork server loads. No problem pack is among them."""
    origins = {
        host.backends.origins[backend.name].plugin,
        host.accelerators.origins[accelerator.name].plugin,
    }
    return tuple(sorted(origins))


def _worker_environment(accelerator: Accelerator, device: Device) -> Mapping[str, str]:
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {**kept, **accelerator.worker_environment(device), "PYTHONHASHSEED": "0"}


def _environment(backend: Backend, device_versions: Mapping[str, str]) -> Mapping[str, str]:
    import torch

    return {
        "atrex_eval": importlib.metadata.version("atrex-eval"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "kernel": platform.release(),
        **backend.versions(),
        **device_versions,
    }


def _calibration(device: Device, environment: Mapping[str, str]) -> Calibration | None:
    """Return what an earlier calibration found on this very device. Nothing is measured here."""
    if device.virtual:
        return None
    identity = DeviceIdentity.of(device, environment, environment["torch"])
    return cache.load(cache.state_folder(os.environ), identity)


def _envelope(
    calibration: Calibration | None, profile: HardwareProfile | None
) -> HardwareProfile | None:
    """Return what stands beside published figures. A measured profile is the ceiling itself."""
    is_published = profile is not None and profile.ceiling is Ceiling.SPEC
    return calibration.envelope if calibration and is_published else None


def _launch_floor_us(calibration: Calibration | None) -> float | None:
    floors = calibration.launch_floor_us if calibration else {}
    return floors[FloorMethod.DEVICE].value if FloorMethod.DEVICE in floors else None


def _limits(setup: Setup) -> Limits:
    memory = setup.memory_limit_bytes
    if memory is None:
        memory = min(_DEFAULT_MEMORY_BYTES, int(0.6 * linux.available_bytes()))
    return Limits(timeout_s=setup.timeout_s, memory_limit_bytes=memory)


def _die_with_orchestrator(lifeline_fd: int) -> None:
    """Wait for the orchestrator's end of a pipe to close, whatever closed it."""
    os.read(lifeline_fd, 1)
    remove_own()  # also a folder whose worker was yet to be forked
    os._exit(ExitCode.INTERRUPTED)  # the fork server notices, ends its worker and tidies up


def _said(error: BaseException) -> str:
    return one_line(f"{type(error).__name__}: {error}", _MOST_REASON)


if __name__ == "__main__":
    main(sys.argv[1:])
