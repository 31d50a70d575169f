"""The process that the user starts: another does the work, this one sees that it is concluded.

Code of plugins runs in the process that works, and may end it at any moment, with status 0 too.
Only what was concluded is believed; a process that ended before is an error of its own.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import signal
import struct
import time
from collections.abc import Callable

from atrex_core.cli.console import say
from atrex_core.errors import ExitCode
from atrex_core.plugins.turn import listen
from atrex_core.printable import one_line
from atrex_core.processes import linux

Conclude = Callable[[int], None]
"""Takes the exit code, once everything has been said."""

_HEADER = struct.Struct("=??iH")
_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
_ORDERS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP)
"""What somebody sends on purpose, and shells know how to report."""
_SI_KERNEL = 0x80
"""Where a signal comes from that a terminal sends to all of its foreground processes."""


class _Page:
    """What the two processes share."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self.is_concluded = False
        self.is_to_be_swept = False
        self.code = 0
        self.turn = ""
        """The plugin whose code runs."""

    def write(self) -> None:
        text = self.turn.encode(errors="replace")[: mmap.PAGESIZE - _HEADER.size]
        head = _HEADER.pack(self.is_concluded, self.is_to_be_swept, self.code, len(text))
        self.memory[: len(head) + len(text)] = head + text

    def read(self) -> None:
        head = _HEADER.unpack_from(self.memory)
        self.is_concluded, self.is_to_be_swept, self.code, length = head
        self.turn = self.memory[_HEADER.size : _HEADER.size + length].decode(errors="replace")

    def conclude(self, code: int) -> None:
        self.is_concluded, self.code = True, code
        self.write()

    def hear(self, turn: str) -> None:
        self.turn = turn
        self.write()


_pages: list[_Page] = []
"""That of this process, where it is supervised."""


def supervised() -> Conclude:
    """Go on in a new process, supervised by this one, which ends as that has concluded.

    Returns, in the new process only, what is to be told the conclusion. Call it before any code
    of a plugin has run.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    linux.adopt_orphans()
    page, ourselves = _Page(mmap.mmap(-1, mmap.PAGESIZE)), os.getpid()
    gc.freeze()  # what is imported stays: no collection has to look through it, in neither process
    try:
        pid = os.fork()
    except OSError:  # no more processes may be had: work unsupervised
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return page.conclude
    if pid == 0:
        linux.die_with_parent(ourselves)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _pages.append(page)
        listen(page.hear)
        return page.conclude
    status = _wait(pid)
    page.read()
    if page.is_to_be_swept:
        _end_orphans()
    # Nothing of ours is left to clean up, and taking the modules apart takes longer than a fork.
    if page.is_concluded:
        os._exit(page.code)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os._exit(_unconcluded(status, page.turn))


def sweep() -> None:
    """Have everything ended that is still running of what plugins started, once we have ended."""
    for page in _pages:
        page.is_to_be_swept = True
        page.write()


def _wait(pid: int) -> int:
    """Pass on what is asked of us; return how the process has ended."""
    while True:
        received = signal.sigwaitinfo(_WATCHED)
        if received.si_signo != signal.SIGCHLD:
            if received.si_code != _SI_KERNEL:
                linux.send_quietly(pid, signal.Signals(received.si_signo))
            continue
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitpid(-1, os.WNOHANG):
                if ended[0] == pid:
                    return os.waitstatus_to_exitcode(ended[1])
                if ended[0] == 0:
                    break


def _end_orphans() -> None:
    """Kill what has come to us because those that had started it are gone."""
    while orphans := linux.descendants(os.getpid()):
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none forks while others are killed
            for pid in orphans:
                linux.send_quietly(pid, number)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.001)  # a killed process takes a moment to become a zombie


def _unconcluded(status: int, turn: str) -> int:
    """Say how the process ended that has not concluded; return the exit code for that."""
    if -status in _ORDERS:
        with contextlib.suppress(OSError):  # SIGKILL cannot be set
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    how = f"was killed by {_name(-status)}" if status < 0 else f"exited with status {status}"
    whose = f"while code of plugin {turn} ran" if turn else "before it was done"
    plugin = turn.partition("'")[2].partition("'")[0]
    what = "mend the plugin" if plugin else "a plugin may have ended it"
    say(one_line(f"error: the process of this command {how} {whose}: nothing is concluded"))
    say(one_line(f"hint: {what}, or run with --disable-plugin {plugin or 'NAME'}"))
    return int(ExitCode.HARNESS_ERROR)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
