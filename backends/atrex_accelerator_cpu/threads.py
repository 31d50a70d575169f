"""One CPU for each thread of a worker while it is timed.

On a machine that does something else too, the scheduler often wakes two threads of a parallel loop
on one CPU and leaves them there, for a second or for the whole life of a process: the loop takes
eight times as long, in one run and not in the next (docs/decisions/0008-cpu-threads.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")
_LAST_CPU_FIELD = 36
"""Of a `stat` file, counted from what follows the name in brackets."""


@contextmanager
def placed(allowed: Sequence[int]) -> Iterator[None]:
    """Pin every thread of this process for as long as the block runs.

    What the kernel refuses stays as it was. Threads that start inside the block share the CPU of
    the thread that starts them until it ends.

    Args:
        allowed: The CPUs to choose from, and to be given back to all threads afterwards.
    """
    threads = _threads()
    if len(allowed) < 2 or len(threads) < 2:
        yield
        return
    for thread, cpu in places(threads, allowed).items():
        _allow(thread, {cpu})
    try:
        yield
    finally:
        for thread in _threads():
            _allow(thread, allowed)


def places(last_cpus: Mapping[int, int | None], allowed: Sequence[int]) -> Mapping[int, int]:
    """Return a CPU for each thread: the one it ran on last, unless another thread needs it.

    The first thread has its CPU to itself. Pools of threads work one at a time, and each has as
    many threads as there are other CPUs, so that those of one pool never meet.

    Args:
        last_cpus: Where each thread ran last, the main thread first, others in order of creation.
        allowed: At least two CPUs.
    """
    main, *others = last_cpus
    last = last_cpus[main]
    own = last if last in allowed and last is not None else allowed[0]
    found = {main: own}
    rest = [cpu for cpu in allowed if cpu != own]
    for start in range(0, len(others), len(rest)):
        pool, free = others[start : start + len(rest)], list(rest)
        for thread in pool:
            last = last_cpus[thread]
            if last is not None and last in free:
                free.remove(last)
                found[thread] = last
        for thread in pool:
            if thread not in found:
                found[thread] = free.pop(0)
    return found


def _threads() -> dict[int, int | None]:
    """Return where each thread ran last, the main thread first."""
    main = os.getpid()
    others = sorted({int(entry.name) for entry in _TASKS.iterdir()} - {main})
    return {thread: _last_cpu(thread) for thread in (main, *others)}


def _last_cpu(thread: int) -> int | None:
    try:
        text = (_TASKS / str(thread) / "stat").read_text()
        return int(text.rpartition(")")[2].split()[_LAST_CPU_FIELD])
    except (OSError, IndexError, ValueError):  # it ended while we looked
        return None


def _allow(thread: int, cpus: Iterable[int]) -> None:
    with suppress(OSError):
        os.sched_setaffinity(thread, cpus)
