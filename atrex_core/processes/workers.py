"""The referee's view of its workers: ask, wait with a deadline, and explain a death."""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from atrex_core.errors import HarnessError
from atrex_core.interfaces import Stage
from atrex_core.processes import linux
from atrex_core.processes.channel import (
    Channel,
    ChannelClosed,
    DeadlineExpired,
    ProtocolViolation,
)
from atrex_core.processes.messages import (
    Broken,
    Done,
    Exited,
    Kill,
    Refused,
    Spawn,
    Spawned,
    Warm,
)
from atrex_core.processes.output import OutputDrain
from atrex_core.processes.stage import StageCell
from atrex_core.processes.worker import CHANNEL_LOST

_POLL_S = 0.05
_GRACE_S = 15.0
_MOST_MESSAGE_BYTES = 4 * 2**20
_MOST_OUTPUT_BYTES = 256 * 2**20
_WARM_UP_S = 180.0


class _LimitExceeded(Exception):
    """The worker used more than it may."""


@frozen(kw_only=True)
class Died:
    """The worker ended, or had to be ended, before it answered. A result, not an error."""

    stage: Stage
    reason: str
    output: str = ""


Answer = Done | Refused | Broken | Died


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
        ours, theirs = Channel.pair()
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

    def stop(self) -> None:
        """End the server and whatever it still holds."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            try:
                self._process.wait(timeout=_GRACE_S)
            except subprocess.TimeoutExpired:
                linux.kill_group(self._process.pid)
                self._process.wait()
            self._process = None


@define(eq=False)
class Worker:
    """One forked process that holds one candidate."""

    server: ForkServerProcess
    channel: Channel
    pid: int
    stage: StageCell
    output: OutputDrain
    scratch: Path
    memory_limit_bytes: int | None = None
    alive: bool = True
    _number: int = field(default=0, init=False)

    @classmethod
    def spawn(
        cls,
        server: ForkServerProcess,
        files: Mapping[str, bytes],
        *,
        memory_limit_bytes: int | None,
    ) -> Worker:
        """Fork a worker whose scratch folder holds `files`, by relative path."""
        to_server = server.channel
        scratch = Path(tempfile.mkdtemp(prefix="atrex-worker-"))
        for name, content in files.items():
            target = scratch / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        ours, theirs = Channel.pair(max_bytes=_MOST_MESSAGE_BYTES)
        output, stage = OutputDrain(), StageCell.create()
        try:
            to_server.send(
                Spawn(scratch=str(scratch)), [theirs.fileno(), output.write_fd, stage.fd]
            )
            spawned = to_server.receive(deadline=time.monotonic() + _GRACE_S)
        except (ChannelClosed, DeadlineExpired, ProtocolViolation) as error:
            server.stop()
            ours.close()
            shutil.rmtree(scratch, ignore_errors=True)
            raise HarnessError("the worker server was lost") from error
        finally:
            theirs.close()
            output.close_writer()
        assert isinstance(spawned, Spawned), "the answer to Spawn"
        return cls(server, ours, spawned.pid, stage, output, scratch, memory_limit_bytes)

    def ask(
        self, request: type[Any], *, timeout_s: float, fds: Sequence[int] = (), **fields: Any
    ) -> Answer:
        """Send a request and wait for its reply, at most `timeout_s`.

        Anything but a well-formed reply in time ends the worker and becomes `Died`.
        """
        self._number += 1
        number = self._number
        deadline = time.monotonic() + timeout_s
        try:
            self.channel.send(request(number=number, **fields), fds)
            reply = self._await(deadline)
        except ProtocolViolation as error:
            return self._end(f"broke the protocol: {error}")
        except _LimitExceeded as error:
            return self._end(str(error))
        except DeadlineExpired:
            return self._end(f"gave no answer within {timeout_s:g} s and was ended")
        except ChannelClosed:
            return self._end(None)
        if not isinstance(reply, Done | Refused | Broken) or reply.number != number:
            return self._end("broke the protocol: an answer to another question")
        return reply

    def strays(self) -> list[str]:
        """Name the processes that the candidate has running beside it, as `name (pid)`."""
        return [
            f"{linux.command_of(pid) or 'a process'} ({pid})"
            for pid in linux.descendants(self.pid)
            if not linux.is_zombie(pid)
        ]

    def stop(self) -> None:
        """End the worker, alive or not, and release what it held."""
        if self.alive:
            self._end("was told to stop")

    def kill(self, reason: str) -> Died:
        """End the worker for a reason of our own."""
        return self._end(reason)

    def _await(self, deadline: float) -> Any:
        """Wait for a reply while watching for the death of the worker and for its limits."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.channel, selectors.EVENT_READ)
            selector.register(self.server.channel, selectors.EVENT_READ)
            while True:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise DeadlineExpired
                ready = {key.fileobj for key, _ in selector.select(min(remaining, _POLL_S))}
                if self.channel in ready:
                    return self.channel.receive(deadline=deadline)
                if ready:
                    raise ChannelClosed  # the server speaks unasked only to report an exit
                self._check_limits()

    def _check_limits(self) -> None:
        limit = self.memory_limit_bytes
        if limit and linux.resident_bytes(self.pid) > limit + _BASE_RESIDENT_BYTES:
            raise _LimitExceeded(f"exceeded the memory limit of {limit / 2**30:.3g} GiB")
        if self.output.total_bytes > _MOST_OUTPUT_BYTES:
            raise _LimitExceeded(f"printed more than {_MOST_OUTPUT_BYTES >> 20} MiB")

    def _end(self, reason: str | None) -> Died:
        """Kill the worker if need be, collect its exit, and say how it ended."""
        stage = self.stage.stage
        self.alive = False
        exited, forced = self._collect_exit(kill=reason is not None)
        if reason is None:
            reason = _explain_exit(exited, forced=forced)
        output = self.output.text()
        self.channel.close()
        self.stage.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
        return Died(stage=stage, reason=reason, output=output)

    def _collect_exit(self, *, kill: bool) -> tuple[Exited | None, bool]:
        """Return how it ended, and whether we had to end it.

        The first is None when the server itself was lost with it.
        """
        deadline = time.monotonic() + _GRACE_S
        grace = time.monotonic() + 1.0
        try:
            channel = self.server.channel
            if kill:
                channel.send(Kill(pid=self.pid))
            while True:
                try:
                    exited = channel.receive(deadline=deadline if kill else grace)
                except DeadlineExpired:
                    if kill:
                        break
                    channel.send(Kill(pid=self.pid))  # it closed its end but lives on
                    kill = True
                    continue
                if isinstance(exited, Exited) and exited.pid == self.pid:
                    return exited, kill
        except (ChannelClosed, ProtocolViolation, HarnessError):
            pass
        linux.kill_group(self.pid)
        for pid in linux.descendants(os.getpid()):
            linux.kill_quietly(pid)
        self.server.stop()
        return None, True


_BASE_RESIDENT_BYTES = 2**30
"""What torch and a DSL hold by themselves."""


def _explain_exit(exited: Exited | None, *, forced: bool) -> str:
    if exited is None:
        return "took the worker server down with it"
    if forced or exited.status == CHANNEL_LOST:
        return "closed the descriptors that its answers go through"
    if exited.status < 0:
        number = -exited.status
        meaning = signal.strsignal(number) or "unknown signal"
        return f"was killed by {signal.Signals(number).name} ({meaning.lower()})"
    return f"exited with status {exited.status} instead of returning"
