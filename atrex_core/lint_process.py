"""The orchestrator's linters: processes that lint side by side, each replaced when it is lost."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO

from attrs import define, field, frozen

from atrex_core.errors import AtrexError, ExitCode, HarnessError
from atrex_core.model.lint import Fate, Finding, Kind, Task
from atrex_core.processes import linux
from atrex_core.processes.attempt import Attempt, AttemptCell
from atrex_core.processes.channel import (
    Channel,
    ChannelClosed,
    DeadlineExpired,
    ProtocolViolation,
)
from atrex_core.processes.messages import Lint, Linted, LintReady, LintSetup, NotReady
from atrex_core.referee.faults import DEVICE_LOST

_START_S = 300.0
_SILENCE_S = 60.0
"""A linter gives a sign of life every few seconds."""
_POLL_S = 0.2
_MESSAGE_S = 10.0
"""From the first byte of a message to the last."""
_EXIT_S = 3.0
_MOST_LOST_STARTS = 3
"""How many may be killed while they start, one after the other, before none is begun again."""
_ORDERS = (signal.SIGKILL, signal.SIGTERM)


class _NotReadyError(AtrexError):
    """What a linter that cannot start says, as an error with its own exit code."""

    def __init__(self, message: NotReady) -> None:
        super().__init__(message.reason, hint=message.hint)
        self.exit_code = ExitCode(message.exit_code)  # type: ignore[misc]  # per instance here


@frozen(kw_only=True)
class TaskDone:
    """What was found in one task."""

    task: Task
    findings: tuple[Finding, ...]
    seconds: float


@frozen
class _Trouble:
    """Why a process will not answer."""

    reason: str
    by_order: bool = False
    """Whether somebody sent it SIGKILL or SIGTERM: not we; perhaps the system, short of memory."""

    @property
    def hint(self) -> str:
        """What to do where a linter cannot start."""
        return "free memory, or use fewer --jobs" if self.by_order else "its own message is above"


@define(eq=False)
class _Order:
    """A task, and what became of earlier tries at it."""

    task: Task
    found: list[Finding] = field(factory=list)
    without: list[tuple[Kind, str]] = field(factory=list)
    was_forgiven: bool = False
    seconds: float = 0.0

    def done(self, more: Sequence[Finding] = ()) -> TaskDone:
        return TaskDone(
            task=self.task, findings=(*self.found, *more), seconds=round(self.seconds, 6)
        )

    def charge(self, attempt: Attempt, reason: str) -> bool:
        """Note what was being tried when the process was lost; return whether to try the rest."""
        self.found.append(attempt.finding(self.task, Fate.BROKEN, reason))
        key = (attempt.kind, attempt.name)
        if key in self.without:
            return False
        self.without.append(key)
        return True


@define(eq=False)
class Linters:
    """Up to `jobs` processes. Close them, or exhaust `run`."""

    setup: LintSetup
    environment: Mapping[str, str]
    """What the accelerator wants set where its device is used."""
    jobs: int
    ready: LintReady | None = None
    """What the first of them said of itself."""
    _linters: list[_Linter] = field(factory=list, init=False)
    _lost_starts: int = field(default=0, init=False)

    def run(self, tasks: Sequence[Task]) -> Iterator[TaskDone]:
        """Lint `tasks`, begun in this order; yield each when it is done.

        Raises:
            AtrexError: a linter cannot start here; the error says why.
        """
        waiting = deque(_Order(task) for task in tasks)
        try:
            while waiting or any(linter.order for linter in self._linters):
                self._staff(len(waiting))
                self._hand_out(waiting)
                self._wait()
                for linter in list(self._linters):
                    done = self._attend(linter, waiting)
                    if done is not None:
                        yield done
        finally:
            self.close()

    def close(self) -> None:
        """End every process. Safe to call twice."""
        while self._linters:
            self._linters.pop().stop()

    def _staff(self, waiting: int) -> None:
        busy = sum(linter.order is not None for linter in self._linters)
        while len(self._linters) < min(self.jobs, waiting + busy):
            self._linters.append(_Linter.start(self.setup, self.environment))

    def _hand_out(self, waiting: deque[_Order]) -> None:
        for linter in list(self._linters):
            if not waiting:
                return
            if linter.is_ready and linter.order is None:
                order = waiting.popleft()
                if not linter.take(order):  # it was lost while it had nothing to do
                    waiting.appendleft(order)
                    self._drop(linter)

    def _wait(self) -> None:
        poll = select.poll()
        for linter in self._linters:
            poll.register(linter.channel.fileno(), select.POLLIN)
        poll.poll(_POLL_S * 1000)

    def _attend(self, linter: _Linter, waiting: deque[_Order]) -> TaskDone | None:
        message = linter.hear()
        match message:
            case LintReady():
                linter.is_ready, self._lost_starts = True, 0
                self.ready = self.ready or message
                linter.note_progress()
            case NotReady():
                raise _NotReadyError(message)
            case Linted(findings=findings):
                return linter.finish(findings)
        trouble = linter.trouble(self.setup.timeout_s)
        if trouble is None:
            return None
        self._drop(linter)
        if linter.is_ready:
            return self._settle(linter, trouble, waiting)
        self._lost_starts += 1
        if not trouble.by_order or self._lost_starts >= _MOST_LOST_STARTS:
            raise HarnessError(f"a linter could not start: {trouble.reason}", hint=trouble.hint)
        return None

    def _settle(
        self, linter: _Linter, trouble: _Trouble, waiting: deque[_Order]
    ) -> TaskDone | None:
        """Charge a lost process to what it was trying, and have the rest tried by another."""
        order = linter.order
        if order is None:
            return None
        order.seconds += time.monotonic() - linter.began
        if trouble.by_order and not order.was_forgiven:
            order.was_forgiven = True
            waiting.appendleft(order)
            return None
        attempt = linter.attempt or Attempt(Kind.CHECK, "task")
        if order.charge(attempt, trouble.reason):
            waiting.appendleft(order)
            return None
        return order.done()

    def _drop(self, linter: _Linter) -> None:
        self._linters.remove(linter)
        linter.stop()


@define(eq=False)
class _Linter:
    """One process, and what it has to do."""

    channel: Channel
    cell: AttemptCell
    process: subprocess.Popen[bytes]
    is_ready: bool = False
    order: _Order | None = None
    began: float = 0.0
    attempt: Attempt | None = None
    """What it was trying, once it is lost."""
    _counts: tuple[int, int] = (0, 0)
    _beat_at: float = 0.0
    _progress_at: float = 0.0

    @classmethod
    def start(cls, setup: LintSetup, environment: Mapping[str, str]) -> _Linter:
        """Start a linter in a session of its own, so that Ctrl-C reaches only us."""
        ours, theirs = Channel.pair(accepts_fds=False)
        cell = AttemptCell.create()
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "atrex_core.referee.lint_main"),
                *(str(theirs.fileno()), str(cell.fd), str(os.getpid())),
            ],
            pass_fds=[theirs.fileno(), cell.fd],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            stdout=_number(sys.stderr),
            start_new_session=True,
        )
        theirs.close()
        linter = cls(ours, cell, process)
        linter.note_progress()
        with suppress(ChannelClosed):  # it will be found dead
            ours.send(setup)
        return linter

    def take(self, order: _Order) -> bool:
        """Hand an order over; return whether the process was there to take it."""
        try:
            self.channel.send(Lint(task=order.task, without=tuple(order.without)))
        except ChannelClosed:
            return False
        self.order, self.began = order, time.monotonic()
        self.note_progress()
        return True

    def hear(self) -> object | None:
        """Return what the process has said, if anything."""
        poll = select.poll()
        poll.register(self.channel.fileno(), select.POLLIN)
        if not poll.poll(0):
            return None
        try:
            message: object = self.channel.receive(deadline=time.monotonic() + _MESSAGE_S)
        except (ChannelClosed, DeadlineExpired, ProtocolViolation):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=_EXIT_S)
            return None
        return message

    def finish(self, findings: Sequence[Finding]) -> TaskDone:
        """Return what the order at hand has brought, and be free for another."""
        assert self.order is not None, "nothing is answered that was not asked"
        order, self.order = self.order, None
        order.seconds += time.monotonic() - self.began
        return order.done(findings)

    def trouble(self, timeout_s: float) -> _Trouble | None:
        """Return why the process will not answer, if it will not."""
        if self.process.poll() is not None:
            return _ended(self.process.returncode)
        now, (beats, attempts) = time.monotonic(), self.cell.counts
        if beats != self._counts[0]:
            self._beat_at = now
        if attempts != self._counts[1]:
            self._progress_at = now
        self._counts = (beats, attempts)
        patience = timeout_s if self.is_ready else _START_S
        is_waited_for = self.order is not None or not self.is_ready
        if is_waited_for and now - self._progress_at > patience:
            return _Trouble(f"it gave no answer within {patience:g} s")
        if now - self._beat_at > _SILENCE_S:
            return _Trouble(f"its process gave no sign of life for {_SILENCE_S:g} s")
        return None

    def note_progress(self) -> None:
        """Begin to wait anew."""
        self._beat_at = self._progress_at = time.monotonic()

    def stop(self) -> None:
        """End the process and everything below it: nothing there has to be tidied up."""
        self.channel.close()
        linux.kill_group(self.process.pid, leader=self.process.poll() is None)
        self.process.wait()
        self.attempt = self.cell.attempt
        self.cell.close()


def _ended(status: int) -> _Trouble:
    if status == DEVICE_LOST:
        return _Trouble("a fault of the device: nothing more could be computed in its process")
    if status >= 0:
        return _Trouble(f"its process exited with status {status}")
    number = signal.Signals(-status)
    if number in _ORDERS:
        reason = (
            f"its process was killed by {number.name} more than once: by somebody, or for want of "
            "memory"
        )
        return _Trouble(reason, by_order=True)
    return _Trouble(f"its process was killed by {number.name}")


def _number(stream: IO[str] | None) -> int | None:
    """Return the descriptor behind a stream, None where it has none: a captured one may not."""
    try:
        return stream.fileno() if stream is not None else None
    except (AttributeError, OSError, ValueError):
        return None
