"""The orchestrator's handle on a referee process."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from attrs import define, field

from atrex_core.errors import AtrexError, ExitCode, HarnessError
from atrex_core.model import Candidate, Evaluation, Gate, GateResult
from atrex_core.processes.channel import (
    Channel,
    ChannelClosed,
    DeadlineExpired,
    ProtocolViolation,
)
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

_START_S = 300.0
_SILENCE_S = 60.0
"""A referee that judges says so every few seconds."""
_GRACE_S = 20.0
_HANG_UP_S = 3.0

GateObserver = Callable[[str, Gate, GateResult], None]


class RefereeLost(HarnessError):
    """The referee's process ended in the middle of a judgement."""


class _NotReadyError(AtrexError):
    """What a referee that cannot start says, as an error with its own exit code."""

    def __init__(self, message: NotReady) -> None:
        super().__init__(message.reason, hint=message.hint)
        self.exit_code = ExitCode(message.exit_code)  # type: ignore[misc]  # per instance here


@define(eq=False)
class RefereeProcess:
    """One running referee. `start` returns at once; `ready` waits.

    One thread at a time owns it. Others may call nothing but `hang_up` and `kill`.
    """

    setup: Setup
    _process: subprocess.Popen[bytes]
    _channel: Channel
    _lifeline: int
    _ready: Ready | None = field(default=None, init=False)
    _idle: bool = field(default=False, init=False)
    _ending: threading.Lock = field(factory=threading.Lock, init=False)
    """Held while a descriptor is closed: its number may be another's right after."""

    @classmethod
    def start(cls, setup: Setup, environment: Mapping[str, str]) -> RefereeProcess:
        """Start a referee in a session of its own, so that Ctrl-C reaches only us.

        Args:
            environment: what the accelerator wants set where its device is used.
        """
        ours, theirs = Channel.pair(accepts_fds=False)
        watched, lifeline = os.pipe()
        command = [sys.executable, "-P", "-m", "atrex_core.referee.main"]
        process = subprocess.Popen(
            [*command, str(theirs.fileno()), str(watched)],
            pass_fds=[theirs.fileno(), watched],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            stdout=sys.stderr.fileno() if _has_fileno(sys.stderr) else None,
            start_new_session=True,
        )
        theirs.close()
        os.close(watched)
        referee = cls(setup, process, ours, lifeline)
        referee._send(setup)
        return referee

    @property
    def ready(self) -> Ready:
        """Wait until the referee can judge, and return what it knows of its device.

        Raises:
            AtrexError: it cannot start here; the error says why.
        """
        if self._ready is None:
            answer = self._receive(_START_S)
            if isinstance(answer, NotReady):
                self.stop()
                raise _NotReadyError(answer)
            if not isinstance(answer, Ready):
                raise RefereeLost(f"the referee said {type(answer).__name__} before it was ready")
            self._ready = answer
            self._idle = True
        return self._ready

    def begin(self, candidate: Candidate, workloads: Sequence[str] = ()) -> None:
        """Hand over a candidate, and say what will probably be asked of it, in order."""
        self._send(
            Begin(
                submission=candidate.name,
                candidate=str(candidate.path),
                problem=candidate.problem,
                source=base64.b64encode(candidate.source).decode(),
                workloads=tuple(workloads),
            )
        )

    def judge(self, evaluation_id: str, workload: str, observer: GateObserver) -> Evaluation:
        """Judge the candidate at hand on one workload, telling `observer` of each gate.

        Raises:
            RefereeLost: the referee died; nothing was judged.
        """
        self._idle = False
        self._send(Judge(evaluation_id=evaluation_id, workload=workload))
        while True:
            match self._receive(_SILENCE_S):
                case Alive():
                    continue
                case GateFinished(evaluation_id=name, gate=gate, result=result):
                    observer(name, gate, result)
                case Judged(evaluation=evaluation):
                    self._idle = True
                    return evaluation
                case other:
                    raise RefereeLost(f"the referee said {type(other).__name__} out of turn")

    def hang_up(self) -> None:
        """Have it end at once, whatever it is at; from any thread.

        Who waits for its answer hears that it is lost. `stop` is still to be called by its owner.
        """
        with self._ending:
            self._cut_lifeline()
            with suppress(OSError):  # it is closed already
                self._channel.sock.shutdown(socket.SHUT_RDWR)

    def dismiss(self) -> None:
        """Let it tidy up and end where it is idle; `stop` then waits for that."""
        with self._ending:
            self._channel.close()

    def stop(self) -> None:
        """End the referee and everything below it. Safe to call twice."""
        self.dismiss()
        if self._idle:  # it hears us, and tidies up before it goes
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=_HANG_UP_S)
        with self._ending:
            self._cut_lifeline()
        try:
            self._process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        except BaseException:  # Ctrl-C again: no more patience
            self.kill()
            raise

    def kill(self) -> None:
        """Leave it no time to tidy up; from any thread. What is below it notices, and ends."""
        self._process.kill()

    def _cut_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _send(self, message: Setup | Begin | Judge) -> None:
        try:
            self._channel.send(message)
        except ChannelClosed as error:
            raise self._lost() from error

    def _receive(self, patience_s: float) -> object:
        try:
            return self._channel.receive(deadline=time.monotonic() + patience_s)
        except (ChannelClosed, ProtocolViolation) as error:
            raise self._lost() from error
        except DeadlineExpired as error:
            self._process.kill()  # it may be stopped, and deaf to everything else
            self.stop()
            raise RefereeLost(f"the referee gave no sign of life for {patience_s:g} s") from error

    def _lost(self) -> RefereeLost:
        self.stop()
        status = self._process.returncode
        how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        return RefereeLost(
            f"the referee {how}", hint="its own message is above; run the same command to go on"
        )


def _has_fileno(stream: object) -> bool:
    try:
        stream.fileno()  # type: ignore[attr-defined]  # a captured stream may lack it
    except (AttributeError, OSError, ValueError):
        return False
    return True
