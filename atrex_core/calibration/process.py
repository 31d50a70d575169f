"""The orchestrator's handle on a process that calibrates: it touches no device itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import IO, Final, Self

from attrs import define, field

from atrex_core.errors import AtrexError, ExitCode, HarnessError
from atrex_core.model.calibration import Calibration, DeviceIdentity
from atrex_core.processes import linux
from atrex_core.processes.channel import (
    Channel,
    ChannelClosed,
    DeadlineExpired,
    ProtocolViolation,
)
from atrex_core.processes.messages import (
    Calibrate,
    Calibrated,
    CalibrationReady,
    CalibrationSetup,
    CalibrationStep,
    NotReady,
)

_START_S: Final = 300.0
_SILENCE_S: Final = 300.0
"""It says before each figure which it is, and none takes minutes."""


class _RefusedError(AtrexError):
    """What a process that cannot go on says, as an error with its own exit code."""

    def __init__(self, message: NotReady) -> None:
        super().__init__(message.reason, hint=message.hint)
        self.exit_code = ExitCode(message.exit_code)  # type: ignore[misc]  # per instance here


@define(eq=False)
class CalibratingProcess:
    """One process on one device. Use `with`."""

    _process: subprocess.Popen[bytes]
    _channel: Channel
    _lifeline: int
    calibration: Calibration | None = field(default=None, init=False)
    """What was measured, once `measure` is exhausted."""

    @classmethod
    def start(cls, setup: CalibrationSetup, environment: Mapping[str, str]) -> Self:
        """Start it in a session of its own, so that Ctrl-C reaches only us.

        Args:
            environment: What the accelerator wants set where its device is used.
        """
        ours, theirs = Channel.pair(accepts_fds=False)
        watched, lifeline = os.pipe()
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "atrex_core.calibration.main"),
                *(str(theirs.fileno()), str(watched)),
            ],
            pass_fds=[theirs.fileno(), watched],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            stdout=_number(sys.stderr),
            start_new_session=True,
        )
        theirs.close()
        os.close(watched)
        started = cls(process, ours, lifeline)
        started._send(setup)
        return started

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def identity(self) -> DeviceIdentity:
        """Wait until the device is open; return what its calibration is kept by.

        Raises:
            AtrexError: it cannot be opened; the error says why.
        """
        answer = self._receive(_START_S)
        if not isinstance(answer, CalibrationReady):
            raise self._out_of_turn(answer)
        return answer.identity

    def measure(self, minutes: float) -> Iterator[CalibrationStep]:
        """Measure; yield each step before it is taken, and set `calibration` after the last.

        Raises:
            AtrexError: it cannot be done, or the process was lost.
        """
        self._send(Calibrate(minutes=minutes))
        while True:
            answer = self._receive(_SILENCE_S)
            match answer:
                case CalibrationStep():
                    yield answer
                case Calibrated(calibration=calibration):
                    self.calibration = calibration
                    return
                case other:
                    raise self._out_of_turn(other)

    def stop(self) -> None:
        """End the process, whatever it does: nothing there has to be tidied up."""
        self._channel.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        linux.kill_group(self._process.pid, leader=self._process.poll() is None)
        self._process.wait()

    def _send(self, message: CalibrationSetup | Calibrate) -> None:
        try:
            self._channel.send(message)
        except ChannelClosed as error:
            raise self._lost() from error

    def _receive(self, patience_s: float) -> object:
        try:
            answer: object = self._channel.receive(deadline=time.monotonic() + patience_s)
        except (ChannelClosed, ProtocolViolation) as error:
            raise self._lost() from error
        except DeadlineExpired as error:
            raise HarnessError(
                f"the process that calibrates gave no sign of life for {patience_s:g} s",
                hint="`atrex-eval doctor` shows whether the device works",
            ) from error
        if isinstance(answer, NotReady):
            raise _RefusedError(answer)
        return answer

    def _lost(self) -> HarnessError:
        try:
            status = self._process.wait(timeout=3.0)
        except subprocess.TimeoutExpired:
            status = 0
        how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        return HarnessError(
            f"the process that calibrates {how}", hint="its own message is above, if it left one"
        )

    @staticmethod
    def _out_of_turn(answer: object) -> HarnessError:
        return HarnessError(f"the process that calibrates said {type(answer).__name__} out of turn")


def _number(stream: IO[str] | None) -> int | None:
    """Return the descriptor behind a stream, None where it has none: a captured one may not."""
    try:
        return stream.fileno() if stream is not None else None
    except (AttributeError, OSError, ValueError):
        return None
