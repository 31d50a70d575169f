"""The referee's view of the servers that fork its workers."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from attrs import define, field

from atrex_core.errors import HarnessError
from atrex_core.processes import linux
from atrex_core.processes.channel import (
    Channel,
    ChannelClosed,
    DeadlineExpired,
    ProtocolViolation,
)
from atrex_core.processes.family import end_orphans
from atrex_core.processes.messages import Branch, Spawned, Warm

_GRACE_S = 15.0
_WARM_UP_S = 180.0


class ServerLost(HarnessError):
    """The server ended before it had forked: no candidate code has run."""


class Role(StrEnum):
    """What a server's workers are for."""

    WORK = "work"
    AHEAD = "ahead"
    """To compile for a device that they do not see, when nothing else is to be done."""


class WorkerServer(Protocol):
    """What a worker needs of the server that has forked it."""

    @property
    def channel(self) -> Channel:
        """The way to a server that is ready to fork, started if need be."""
        ...

    @property
    def pid(self) -> int:
        """The running server's process, 0 when there is none."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether the server's process is gone, though nobody told it to go."""
        ...

    def stop(self, *, grace_s: float = _GRACE_S) -> None:
        """End the server and whatever it still holds."""
        ...

    def end_orphans(self) -> None:
        """End what was left over when the server was lost."""
        ...


@define(eq=False)
class ForkServerProcess:
    """A warm fork server, restarted when it is lost."""

    backend: str
    accelerator: str
    plugins: Sequence[str]
    environment: Mapping[str, str]
    role: Role = Role.WORK
    warm_seconds: float = 0.0
    bystander: ForkServerProcess | None = None
    """Another server of this process: no orphan."""
    asking: threading.Lock = field(factory=threading.Lock)
    """Held by a branch that asks for anything, as one thing is asked at a time."""
    is_retired: bool = False
    """Whether no branch may have it started again."""
    _process: subprocess.Popen[bytes] | None = None
    _channel: Channel | None = None

    def start(self) -> None:
        """Begin importing; `channel` waits for the end of it."""
        ours, theirs = Channel.pair(accepts_fds=False)
        command = [sys.executable, "-P", "-B", "-m", "atrex_core.processes.server"]
        names = [self.role, self.backend, self.accelerator, *self.plugins]
        self._process = subprocess.Popen(
            [*command, str(theirs.fileno()), *names],
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
            linux.send_quietly(self._process.pid, signal.SIGCONT)  # a candidate may have stopped it
            try:
                self._process.wait(timeout=grace_s)
            except subprocess.TimeoutExpired:
                linux.kill_group(self._process.pid)
                self._process.wait()
            self._process = None

    def retire(self, *, grace_s: float = _GRACE_S) -> None:
        """End the server for good, though a branch in another thread may be waiting for it."""
        self.is_retired = True
        if not self.asking.acquire(blocking=False):
            linux.kill_group(self.pid)  # the branch hears of that, and lets go
            self.asking.acquire()
        try:
            self.stop(grace_s=grace_s)
        finally:
            self.asking.release()

    def end_orphans(self) -> None:
        """End what came to this process when the server was lost: workers, and all they started."""
        besides = [self.bystander.pid] if self.bystander else []
        end_orphans(os.getpid(), besides=besides, within_s=_GRACE_S)


@define(eq=False)
class ForkServerBranch:
    """A copy of a warm server, made anew when it is lost: one of several with a worker each."""

    trunk: ForkServerProcess
    _channel: Channel | None = field(default=None, init=False)
    _pidfd: int = field(default=-1, init=False)
    _pid: int = field(default=0, init=False)

    @property
    def channel(self) -> Channel:
        """The way to the branch.

        Raises:
            HarnessError: the trunk could not import what it needs.
            ServerLost: the trunk was lost; try again.
        """
        if self._channel is None:
            with self.trunk.asking:
                self._grow()
        assert self._channel is not None, "it has grown"
        return self._channel

    @property
    def pid(self) -> int:
        """The branch's process, 0 when there is none."""
        return self._pid

    @property
    def has_ended(self) -> bool:
        """Whether its process is gone, though nobody told it to go."""
        return self._pidfd >= 0 and bool(select.select([self._pidfd], [], [], 0)[0])

    def stop(self, *, grace_s: float = _GRACE_S) -> None:
        """End the branch and whatever it still holds."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._pidfd >= 0:
            linux.send_quietly(self._pid, signal.SIGCONT)
            if not select.select([self._pidfd], [], [], grace_s)[0]:
                linux.kill_group(self._pid)
            os.close(self._pidfd)
            self._pidfd, self._pid = -1, 0

    def end_orphans(self) -> None:
        """Leave that to the trunk, unless it is lost too."""
        with self.trunk.asking:
            if self.trunk.has_ended:
                self.trunk.stop(grace_s=0.0)
                self.trunk.end_orphans()

    def _grow(self) -> None:
        if self.trunk.is_retired:
            raise ServerLost("the worker server is wanted no more")
        if self.trunk.has_ended:
            self.trunk.stop()
        to_trunk = self.trunk.channel
        ours, theirs = Channel.pair(accepts_fds=False)
        try:
            to_trunk.send(Branch(), [theirs.fileno()])
            spawned = to_trunk.receive(deadline=time.monotonic() + _GRACE_S)
            assert isinstance(spawned, Spawned), "the answer to Branch"
            self._pidfd = os.pidfd_open(spawned.pid)
        except (ChannelClosed, DeadlineExpired, ProtocolViolation, ProcessLookupError) as error:
            self.trunk.stop(grace_s=0.0)
            ours.close()
            raise ServerLost("the worker server was lost") from error
        finally:
            theirs.close()
        self._channel, self._pid = ours, spawned.pid
