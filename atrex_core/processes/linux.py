"""The few Linux calls that Python does not wrap. Out of scope: any other system."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38


def _prctl(option: int, argument: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent's thread ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the request was in force
        os._exit(1)


def adopt_orphans() -> None:
    """Make orphaned descendants our children, so that nothing escapes by forking twice."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def forbid_new_privileges() -> None:
    """Let no program started from here gain rights, set-user-id bits or not."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def children(pid: int) -> list[int]:
    """Return the direct children of `pid`, of all its threads."""
    found: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in listing.read_text().split()]
        except OSError:  # the thread ended while we looked
            continue
    return found


def descendants(pid: int) -> list[int]:
    """Return every process below `pid`, parents before children."""
    found: list[int] = []
    pending = children(pid)
    while pending:
        child = pending.pop()
        if child not in found:
            found.append(child)
            pending += children(child)
    return found


def command_of(pid: int) -> str:
    """Return a process's short name, or "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def is_zombie(pid: int) -> bool:
    """Return whether a process has ended and only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return True


def resident_bytes(pid: int) -> int:
    """Return the memory `pid` holds now, 0 when it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def proportional_bytes(pid: int) -> int:
    """Return the memory `pid` holds now, a shared page counted in parts; 0 when it is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):  # it ended while we looked
        pass
    return 0


def address_space_bytes() -> int:
    """Return the size of this process's address space."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def age_s() -> float:
    """Return how long this process has existed, to 10 ms."""
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    began_s = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)


def available_bytes() -> int:
    """Return how much memory the machine could still give out."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def send_quietly(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that is already gone is fine."""
    if pid > 0:  # 0 and below mean groups
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_group(pid: int, *, leader: bool = True) -> None:
    """Send SIGKILL to a whole process group.

    Args:
        leader: also to the process itself; False once it has been reaped, when its number
            may already belong to a stranger.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if leader:
        send_quietly(pid, signal.SIGKILL)
