"""The referee's view of the server that forks its workers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from attrs import define

from atrex_core.errors import HarnessError
from atrex_core.processes import linux
from atrex_core.processes.channel import (
    Channel,
    ChannelClosed,
    DeadlineExpired,
    ProtocolViolation,
)
from atrex_core.processes.messages import Warm

_GRACE_S = 15.0
_WARM_UP_S = 180.0


class ServerLost(HarnessError):
    """The server ended before it had forked: no candidate code has run."""


@define(eq=False)
class ForkServerProcess:
    """A warm fork server, restarted when it is lost."""

    backend: str
    accelerator: str
    plugins: Sequence[str]
    environment: Mapping[str, str]
    warm_seconds: float = 0.0
    _process: subprocess.Popen[bytes] | None = None
    _channel: Channel | None = None

    def start(self) -> None:
        """Begin importing; `channel` waits for the end of it."""
        ours, theirs = Channel.pair(accepts_fds=False)
        command = [sys.executable, "-P", "-B", "-m", "atrex_core.processes.server"]
        arguments = [str(theirs.fileno()), self.backend, self.accelerator, *self.plugins]
        self._process = subprocess.Popen(
            command + arguments,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=dict(self.environment),
            start_new_session=True,
        )
        theirs.close()
        self._channel = ours
        self.warm_seconds = 0.0

    @property
    def channel(self) -> Channel:
        """The way to a server that is ready to fork.

        Raises:
            HarnessError: it could not import what it needs.
        """
        if self._channel is None:
            self.start()
        assert self._channel is not None, "start sets it"
        if not self.warm_seconds:
            try:
                answer = self._channel.receive(deadline=time.monotonic() + _WARM_UP_S)
            except (ChannelClosed, DeadlineExpired, ProtocolViolation) as error:
                self.stop()
                raise HarnessError(
                    f"the worker server for backend {self.backend!r} did not start",
                    hint="its own message is above; `atrex-eval doctor` checks each backend",
                ) from error
            assert isinstance(answer, Warm), "the first thing a server says"
            self.warm_seconds = max(answer.seconds, 1e-6)
        return self._channel

    @property
    def pid(self) -> int:
        """The running server's process, 0 when there is none."""
        return self._process.pid if self._process else 0

    @property
    def has_ended(self) -> bool:
        """Whether the server's process is gone, though nobody told it to go."""
        return self._process is not None and self._process.poll() is not None

    def stop(self, *, grace_s: float = _GRACE_S) -> None:
        """End the server and whatever it still holds."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            try:
                self._process.wait(timeout=grace_s)
            except subprocess.TimeoutExpired:
                linux.kill_group(self._process.pid)
                self._process.wait()
            self._process = None
