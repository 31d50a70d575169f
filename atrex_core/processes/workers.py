"""The referee's view of its workers: ask, wait with a deadline, and explain a death."""

from __future__ import annotations

import re
import select
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from atrex_core.errors import HarnessError
from atrex_core.interfaces import Stage
from atrex_core.processes import linux
from atrex_core.processes.channel import (
    Channel,
    ChannelClosed,
    DeadlineExpired,
    ProtocolViolation,
)
from atrex_core.processes.fork_server import ServerLost, WorkerServer
from atrex_core.processes.gate import GateWords
from atrex_core.processes.messages import (
    Broken,
    Build,
    Collect,
    Done,
    Enqueue,
    Exited,
    Kill,
    Load,
    OpenWorkload,
    Refused,
    Run,
    Sample,
    Spawn,
    Spawned,
)
from atrex_core.processes.output import OutputDrain
from atrex_core.processes.scratch import make_scratch, remove_scratch
from atrex_core.processes.stage import StageCell
from atrex_core.processes.worker import CHANNEL_LOST

_POLL_S = 0.05
_GRACE_S = 15.0
_LAST_WORDS_S = 0.5
_EXIT_S = 2.0
"""Between the end of a channel and the end of its process, while a driver lets go of a device."""
_ORDERS = (signal.SIGKILL, signal.SIGTERM)
_MOST_MESSAGE_BYTES = 4 * 2**20
_MOST_OUTPUT_BYTES = 256 * 2**20


class _LimitExceeded(Exception):
    """The worker used more than it may."""


class Abandoned(Exception):
    """Nobody wants the answer any more. Raised by a worker's `interlude`."""


@frozen(kw_only=True)
class Died:
    """The worker ended, or had to be ended, before it answered. A result, not an error."""

    stage: Stage
    reason: str
    where: str = ""
    """The line of the candidate that ran last, as far as it can be told."""
    output: str = ""
    with_server: bool = False
    """Whether the server was lost too."""
    by_order: bool = False
    """Whether somebody sent it SIGKILL or SIGTERM: not we; perhaps the system, short of memory."""


Answer = Done | Refused | Broken | Died


@define(eq=False)
class Worker:
    """One forked process that holds one candidate."""

    server: WorkerServer
    channel: Channel
    pid: int
    stage: StageCell
    output: OutputDrain
    scratch: Path
    memory_limit_bytes: int | None = None
    alive: bool = True
    ungated: str | None = "it has not started"
    """Why its queue cannot be held from here, or None."""
    interlude: Callable[[], float] = lambda: 0.0
    """Called now and then while an answer is awaited: returns seconds that do not count."""
    _number: int = field(default=0, init=False)
    _asked: Stage = field(default=Stage.STARTUP, init=False)
    """What the latest request is part of. The worker itself can only say that it compiles."""

    @classmethod
    def spawn(
        cls,
        server: WorkerServer,
        files: Mapping[str, bytes],
        *,
        memory_limit_bytes: int | None,
        cache: Path | None = None,
    ) -> Worker:
        """Fork a worker whose scratch folder holds `files`, by relative path.

        Should we die, the server removes `cache`.

        Raises:
            ServerLost: try again; the server will be started anew.
            HarnessError: the server cannot start.
        """
        if server.has_ended:  # while it had nothing to do
            server.stop()
        to_server = server.channel
        scratch = make_scratch(files)
        ours, theirs = Channel.pair(max_bytes=_MOST_MESSAGE_BYTES, accepts_fds=False)
        output, stage = OutputDrain(), StageCell.create()
        try:
            to_server.send(
                Spawn(scratch=str(scratch), cache=str(cache) if cache else None),
                [theirs.fileno(), output.write_fd, stage.fd],
            )
            spawned = to_server.receive(deadline=time.monotonic() + _GRACE_S)
        except (ChannelClosed, DeadlineExpired, ProtocolViolation) as error:
            server.stop()
            ours.close()
            stage.close()
            remove_scratch(scratch)
            raise ServerLost("the worker server was lost") from error
        finally:
            theirs.close()
            output.close_writer()
        assert isinstance(spawned, Spawned), "the answer to Spawn"
        return cls(server, ours, spawned.pid, stage, output, scratch, memory_limit_bytes)

    def ask(
        self,
        request: type[Any],
        *,
        timeout_s: float,
        fds: Sequence[int] = (),
        meanwhile: Callable[[], None] = lambda: None,
        **fields: Any,
    ) -> Answer:
        """Send a request and wait for its reply, at most `timeout_s`.

        Anything but a well-formed reply in time ends the worker and becomes `Died`. `meanwhile`
        runs between the request and the wait.
        """
        self._number += 1
        number = self._number
        self._asked = fields.get("stage") or _STAGES.get(request, self._asked)
        deadline = time.monotonic() + timeout_s
        try:
            self.channel.send(request(number=number, **fields), fds)
            meanwhile()
            reply = self._await(deadline)
        except ProtocolViolation as error:
            return self._end(f"broke the protocol: {error}")
        except _LimitExceeded as error:
            return self._end(str(error))
        except Abandoned:
            return self._end("was told to stop")
        except DeadlineExpired:
            return self._end(f"gave no answer within {timeout_s:g} s and was ended", hung=True)
        except ChannelClosed:
            return self._end(None)
        if not isinstance(reply, Done | Refused | Broken) or reply.number != number:
            return self._end("broke the protocol: an answer to another question")
        if isinstance(reply, Refused):
            return evolve(reply, stage=self._believed(reply.stage))
        return reply

    def has_answered(self) -> bool:
        """Return whether an answer, or the news of an end, is there: for `meanwhile` to ask.

        Raises:
            _LimitExceeded: the worker takes more than it may; `ask` ends it.
        """
        self._check_limits()
        ready, _, _ = select.select([self.channel, self.server.channel], [], [], 0)
        return bool(ready)

    @property
    def gate(self) -> GateWords:
        """The words by which its queue is held and clocked."""
        return self.stage.gate

    def strays(self) -> list[str]:
        """Name the processes that the candidate started and did not wait for, as `name (pid)`.

        What it detached from itself has become a child of the server.
        """
        return [
            f"{linux.command_of(pid) or 'a process'} ({pid})"
            for pid in linux.descendants(self.server.pid)
            if pid != self.pid
        ]

    def stop(self) -> None:
        """End the worker, alive or not, and release what it held."""
        if self.alive:
            self._end("was told to stop")

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
                    try:  # a message that arrives in drops must not keep us from looking around
                        soon = min(deadline, time.monotonic() + _POLL_S)
                        return self.channel.receive(deadline=soon)
                    except DeadlineExpired:
                        pass
                elif ready:
                    raise ChannelClosed  # the server speaks unasked only to report an exit
                self._check_limits()
                deadline += self.interlude()

    def _check_limits(self) -> None:
        limit = self.memory_limit_bytes
        if limit and self._memory_bytes() > limit + _BASE_RESIDENT_BYTES:
            raise _LimitExceeded(f"exceeded the memory limit of {limit / 2**30:.3g} GiB")
        if self.output.total_bytes > _MOST_OUTPUT_BYTES:
            raise _LimitExceeded(f"printed more than {_MOST_OUTPUT_BYTES >> 20} MiB")

    def _memory_bytes(self) -> int:
        """Return what the worker holds, with all that it started."""
        family = linux.descendants(self.server.pid)
        if family == [self.pid]:
            return linux.resident_bytes(self.pid)
        return sum(linux.proportional_bytes(pid) for pid in family)

    def _end(self, reason: str | None, *, hung: bool = False) -> Died:
        """Kill the worker if need be, collect its exit, and say how it ended."""
        stage = self._believed(self.stage.stage)
        self.alive = False
        if hung:  # its fault handler then says where it was
            linux.send_quietly(self.pid, signal.SIGABRT)
        patience_s = _LAST_WORDS_S if hung else _EXIT_S if reason is None else 0.0
        exited, forced = self._collect_exit(patience_s)
        fatal = hung or (exited is not None and exited.status < 0 and not forced)
        if reason is None:
            reason = _explain_exit(exited, forced=forced)
        output = self.output.text()
        self.channel.close()
        self.stage.close()
        remove_scratch(self.scratch)
        where = _last_line(output, self.scratch) if fatal else ""
        ordered = exited is not None and not forced and -exited.status in _ORDERS
        return Died(
            stage=stage,
            reason=reason,
            where=where,
            output=output,
            with_server=exited is None,
            by_order=ordered,
        )

    def _believed(self, claimed: Stage) -> Stage:
        """Return the stage that a failure is charged to: the cell is the candidate's to write."""
        return Stage.COMPILE if claimed is Stage.COMPILE else self._asked

    def _collect_exit(self, patience_s: float) -> tuple[Exited | None, bool]:
        """Return how it ended, and whether we had to end it after `patience_s`.

        The first is None when the server itself was lost with it.
        """
        linux.send_quietly(self.server.pid, signal.SIGCONT)  # a candidate may have stopped it
        now = time.monotonic()
        forced = False
        try:
            channel = self.server.channel
            for deadline in (now + patience_s, now + patience_s + _GRACE_S):
                try:
                    exited = channel.receive(deadline=deadline)
                except DeadlineExpired:
                    if forced:
                        break
                    channel.send(Kill(pid=self.pid))
                    forced = True
                    continue
                if isinstance(exited, Exited) and exited.pid == self.pid:
                    return exited, forced
        except (ChannelClosed, ProtocolViolation, HarnessError):
            pass
        linux.kill_group(self.pid)
        self.server.stop(grace_s=0.0)
        self.server.end_orphans()
        return None, True


_STAGES: Mapping[type[Any], Stage] = {
    Load: Stage.IMPORT,
    OpenWorkload: Stage.CONSTRUCT,
    Build: Stage.COMPILE,
    Enqueue: Stage.PERFORMANCE,
    Run: Stage.PERFORMANCE,
    Sample: Stage.PERFORMANCE,
    Collect: Stage.PERFORMANCE,
}
"""Other requests say it themselves, or belong to what was asked before them."""

_BASE_RESIDENT_BYTES = 2**30
"""What torch and a DSL hold by themselves."""


def _explain_exit(exited: Exited | None, *, forced: bool) -> str:
    if exited is None:
        return "took the worker server down with it"
    if forced or exited.status == CHANNEL_LOST:
        return "closed the descriptors that its answers go through"
    if exited.status < 0:
        number = -exited.status
        names = {known.value: known.name for known in signal.Signals}
        meaning = signal.strsignal(number) or "unknown"
        return f"was killed by {names.get(number, f'signal {number}')} ({meaning.lower()})"
    return f"exited with status {exited.status} instead of returning"


def _last_line(output: str, scratch: Path) -> str:
    """Find the innermost line of the candidate's own files in what its fault handler wrote."""
    report = output[max(0, output.rfind("Fatal Python error:")) :]
    own = re.search(rf'File "{re.escape(str(scratch))}/[^"]*", line (\d+) in (\S+)', report)
    return f"line {own[1]}, in {own[2]}" if own else ""
