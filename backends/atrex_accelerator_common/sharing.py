"""Who else holds a GPU, as far as that can be seen.

A driver lists the processes with a context on a GPU, by ids of its own namespace. Three cases:

- The list holds our own id: its ids are ours, and each is one of our descendants or it is not.
- It holds ids, and not ours: they are of another namespace, that of a container's host. Only the
  numbers can be compared: how many are listed, and how many of ours have opened the driver.
- It is empty, though this process has a context: the driver shows a container nothing.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

UNLISTED: Final = "other_processes: the driver lists no process, not even this one"
UNCOUNTED: Final = (
    "other_processes: the driver lists ids of another namespace, and not all of our own processes "
    "can be looked into"
)

_PROC = Path("/proc")


def count_others(
    listed: Collection[int], *, opened: Path, own: int | None = None, proc: Path = _PROC
) -> tuple[int | None, str | None]:
    """Return how many listed processes are neither ours nor our descendants', or why it is unknown.

    Args:
        listed: Ids of the processes that hold the GPU.
        opened: The driver's file, which every process with a context has open.
        own: This process, which holds it too.
        proc: Where the process file system is mounted.
    """
    own = os.getpid() if own is None else own
    if not listed:
        return None, UNLISTED
    if own in listed:
        return sum(not _descends(pid, own, proc) for pid in listed), None
    try:
        holders = sum(_holds(pid, opened, proc) for pid in (own, *_descendants(own, proc)))
    except PermissionError:
        return None, UNCOUNTED
    return max(0, len(listed) - holders), None


def _descends(pid: int, ancestor: int, proc: Path) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = _parent(pid, proc)
    return False


def _parent(pid: int, proc: Path) -> int:
    try:
        # The name, in brackets, may hold anything; state and parent follow the last bracket.
        return int((proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _descendants(pid: int, proc: Path) -> Iterator[int]:
    for listing in (proc / str(pid) / "task").glob("*/children"):
        try:
            children = [int(word) for word in listing.read_text().split()]
        except OSError:  # the thread ended while we looked
            continue
        for child in children:
            yield child
            yield from _descendants(child, proc)


def _holds(pid: int, driver: Path, proc: Path) -> bool:
    """Return whether a process has opened the driver.

    Raises:
        PermissionError: it may not be looked into.
    """
    try:
        opened = list((proc / str(pid) / "fd").iterdir())
    except PermissionError:
        raise
    except OSError:  # it ended while we looked
        return False
    for entry in opened:
        with suppress(FileNotFoundError):  # closed while we looked
            if entry.readlink() == driver:
                return True
    return False
