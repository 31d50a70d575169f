"""The process that opens a device to calibrate it: identify, wait to be told to, measure, end."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime

from attrs import define, evolve

from atrex_core.calibration import measure
from atrex_core.device_choice import find_device
from atrex_core.errors import AtrexError, ExitCode, HarnessError, Unavailable
from atrex_core.interfaces import Accelerator, DeviceContext
from atrex_core.model import Device
from atrex_core.model.calibration import Calibration, DeviceIdentity
from atrex_core.plugins import PluginHost
from atrex_core.printable import one_line
from atrex_core.processes.channel import Channel, ChannelClosed
from atrex_core.processes.messages import (
    Calibrate,
    Calibrated,
    CalibrationReady,
    CalibrationSetup,
    CalibrationStep,
    NotReady,
)
from atrex_core.profile_choice import resolved_profile

_MOST_REASON = 450


def main(arguments: list[str]) -> None:
    """Run as `python -P -m atrex_core.calibration.main CHANNEL_FD LIFELINE_FD`."""
    channel_fd, lifeline_fd = (int(word) for word in arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the orchestrator decides what Ctrl-C means
    threading.Thread(target=_die_with_orchestrator, args=(lifeline_fd,), daemon=True).start()
    channel = Channel.from_fd(channel_fd)
    with suppress(ChannelClosed):
        try:
            _serve(channel)
        except AtrexError as error:
            code = error.exit_code
            channel.send(NotReady(reason=str(error), hint=error.hint, exit_code=code))
        except Exception as error:  # noqa: BLE001  (a plugin may raise anything: say it, and end)
            said = one_line(f"{type(error).__name__}: {error}", _MOST_REASON)
            reason = f"the device could not be calibrated: {said}"
            channel.send(NotReady(reason=reason, hint="", exit_code=ExitCode.HARNESS_ERROR))


def _serve(channel: Channel) -> None:
    setup = channel.receive()
    assert isinstance(setup, CalibrationSetup), "the first thing an orchestrator says"
    host = PluginHost.discover(disabled=setup.disabled_plugins)
    accelerator, device = find_device(host, setup.device)
    opened = Opened.open(accelerator, device)
    channel.send(CalibrationReady(identity=opened.identity))
    request = channel.receive()
    assert isinstance(request, Calibrate), "the second and last"

    def announce(what: str, done: int, total: int) -> None:
        channel.send(CalibrationStep(what=what, done=done, total=total))

    announce("hardware profile", 0, 1)
    calibration = opened.calibrate(host, request.minutes, announce)
    channel.send(Calibrated(calibration=calibration))


@define(eq=False)
class Opened:
    """A device that this process may use."""

    accelerator: Accelerator
    device: Device
    context: DeviceContext
    identity: DeviceIdentity

    @classmethod
    def open(cls, accelerator: Accelerator, device: Device) -> Opened:
        """Initialise `device`.

        Raises:
            Unavailable: it gives no time, or does not start.
        """
        if device.virtual or not accelerator.is_timed:
            raise Unavailable(
                f"device {device.id!r} never gives a time",
                hint="name a real one; see `atrex-eval list devices`",
            )
        import torch

        context = accelerator.open(device)
        if device.last_level_cache_bytes is None:
            device = evolve(device, last_level_cache_bytes=context.last_level_cache_bytes)
        identity = DeviceIdentity.of(device, context.versions(), str(torch.__version__))
        return cls(accelerator, device, context, identity)

    def calibrate(
        self, host: PluginHost, minutes: float, announce: measure.Announce
    ) -> Calibration:
        """Measure for at most about `minutes`.

        Raises:
            HarnessError: no load could be timed at all.
        """
        import torch

        started = time.monotonic()
        taken_at = datetime.now(UTC).isoformat(timespec="seconds")
        profile = resolved_profile(host, self.device)
        found = measure.take(
            self.context,
            profile,
            torch=torch,
            cache_bytes=self.context.last_level_cache_bytes or self.device.last_level_cache_bytes,
            is_synchronous=self.accelerator.is_synchronous,
            minutes=minutes,
            announce=announce,
        )
        if not any(reading.measured for reading in found.streams):
            raise HarnessError(
                f"no load could be measured on {self.device.id!r}: {found.streams[-1].reason}",
                hint="`atrex-eval doctor` shows whether the device works",
            )
        return Calibration(
            device=self.device,
            identity=self.identity,
            versions={
                "python": platform.python_version(),
                "kernel": platform.release(),
                **self.context.versions(),
                "torch": str(torch.__version__),
            },
            profile=profile,
            streams=found.streams,
            products=found.products,
            floors=found.floors,
            taken_at=taken_at,
            seconds=round(time.monotonic() - started, 3),
        )


def _die_with_orchestrator(lifeline_fd: int) -> None:
    """Wait for the orchestrator's end of a pipe to close, whatever closed it."""
    os.read(lifeline_fd, 1)
    os._exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    main(sys.argv[1:])
