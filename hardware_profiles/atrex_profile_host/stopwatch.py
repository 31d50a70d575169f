"""Highest rate that pinned threads reach, on a machine that others use too.

Each thread repeats an operation of its own and notes when each one began and ended. There is no
barrier between repetitions: a parallel loop in lock-step would wait, every time, for whichever
thread lost its CPU to a neighbour. What threads share (memory) is rated by the best window of two
milliseconds over all of them; what they do not share (a core's vector unit) by the sum of each
one's best repetition.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter, thread_time
from typing import Final, Protocol

from attrs import Factory, define, frozen

WINDOW_S: Final = 2e-3
_BINS_PER_WINDOW: Final = 4
_SLICE_S: Final = 15e-3

Operation = Callable[[], float]
"""Does a piece of work and returns its amount: bytes moved, or operations computed."""


class Load(Protocol):
    """One kind of work that threads repeat."""

    @property
    def figure(self) -> str:
        """What the rate is called; several loads may compete for one figure."""
        ...

    @property
    def threads(self) -> int:
        """How many threads take part."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether the threads compete for what is rated, as they do for memory."""
        ...

    def prepare(self, thread: int) -> Operation | None:
        """Return this thread's operation, warmed up; None when torch cannot do it here."""
        ...


@frozen(kw_only=True)
class Stint:
    """One repetition on one thread."""

    start_s: float
    end_s: float
    amount: float


@frozen(kw_only=True)
class Outcome:
    """Best rate of every round per figure, and how much CPU time the threads really got."""

    rounds: dict[str, tuple[float, ...]]
    cpu_share: float


@define
class _Schedule:
    loads: Sequence[Load]
    stop_s: float
    turn: int = -1
    slice_end_s: float = 0.0
    stints: list[list[Stint]] = Factory(list)
    rates: dict[str, dict[int, float]] = Factory(dict)
    """Best rate by figure and round."""
    cpu_s: float = 0.0
    wall_s: float = 0.0
    done: bool = False

    @property
    def load_index(self) -> int:
        return self.turn % len(self.loads)

    def advance(self) -> None:
        """Close the slice that ended and open the next one. One thread runs it, others wait."""
        if self.turn >= 0 and self.stints:
            load = self.loads[self.load_index]
            rate = (
                joint_rate(self.stints)
                if load.is_shared
                else summed_rate(self.stints, load.threads)
            )
            rounds = self.rates.setdefault(load.figure, {})
            cycle = self.turn // len(self.loads)
            rounds[cycle] = max(rate, rounds.get(cycle, 0.0))
        self.stints = []
        self.turn += 1
        now = perf_counter()
        # The first round is always finished: no figure may be missing on a slow machine.
        self.done = now >= self.stop_s and self.turn >= len(self.loads)
        self.slice_end_s = now + _SLICE_S


def run(
    loads: Sequence[Load],
    cpus: Sequence[int],
    *,
    stop_s: float,
    start_thread: Callable[[], None],
) -> Outcome:
    """Take turns at `loads` until the clock reads `stop_s`, at least once each.

    `start_thread` is called first in every thread.

    Raises:
        RuntimeError: a thread failed; its error is the cause.
    """
    schedule = _Schedule(loads=loads, stop_s=stop_s)
    barrier = threading.Barrier(len(cpus), action=schedule.advance)
    lock = threading.Lock()
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            with suppress(OSError):
                os.sched_setaffinity(0, {cpus[thread]})  # of this thread alone
            start_thread()
            _take_turns(schedule, barrier, lock, thread)
        except threading.BrokenBarrierError:
            pass  # another thread failed, and has said why
        except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread
            failures.append(error)
            barrier.abort()

    threads = [
        threading.Thread(target=work, args=(index,), name=f"calibrate-{index}", daemon=True)
        for index in range(len(cpus))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise RuntimeError("a calibration thread failed") from failures[0]
    return Outcome(
        rounds={figure: tuple(rates.values()) for figure, rates in schedule.rates.items()},
        cpu_share=schedule.cpu_s / schedule.wall_s if schedule.wall_s else 0.0,
    )


def _take_turns(
    schedule: _Schedule, barrier: threading.Barrier, lock: threading.Lock, thread: int
) -> None:
    operations = [
        load.prepare(thread) if thread < load.threads else None for load in schedule.loads
    ]
    while True:
        barrier.wait()
        if schedule.done:
            return
        operation = operations[schedule.load_index]
        if operation is None:
            continue
        stints: list[Stint] = []
        cpu_s, start_s = thread_time(), perf_counter()
        now = start_s
        while now < schedule.slice_end_s:
            began_s = now
            amount = operation()
            now = perf_counter()
            stints.append(Stint(start_s=began_s, end_s=now, amount=amount))
        used_s = thread_time() - cpu_s
        with lock:
            if stints:
                schedule.stints.append(stints)
            schedule.cpu_s += used_s
            schedule.wall_s += now - start_s


def summed_rate(stints: Sequence[Sequence[Stint]], threads: int) -> float:
    """Return the sum over `threads` of each one's best repetition, in amount per second.

    A thread that never got a CPU, and so has no stints, counts as the others' mean.
    """
    best = [
        max(stint.amount / max(stint.end_s - stint.start_s, 1e-9) for stint in own)
        for own in stints
    ]
    return sum(best) * threads / len(best)


def joint_rate(stints: Sequence[Sequence[Stint]]) -> float:
    """Return the most that all threads did in any window, in amount per second.

    A repetition counts evenly over the time that it took.
    """
    every = [stint for own in stints for stint in own]
    origin_s = min(stint.start_s for stint in every)
    span_s = max(stint.end_s for stint in every) - origin_s
    bin_s = WINDOW_S / _BINS_PER_WINDOW
    bins = [0.0] * (int(span_s / bin_s) + 1)
    for stint in every:
        start_s, end_s = stint.start_s - origin_s, stint.end_s - origin_s
        density = stint.amount / max(end_s - start_s, 1e-9)
        for index in range(int(start_s / bin_s), int(end_s / bin_s) + 1):
            overlap_s = min(end_s, (index + 1) * bin_s) - max(start_s, index * bin_s)
            bins[index] += density * max(overlap_s, 0.0)
    if span_s <= WINDOW_S:
        return sum(bins) / max(span_s, 1e-9)
    windows = range(len(bins) - _BINS_PER_WINDOW + 1)
    return max(sum(bins[first : first + _BINS_PER_WINDOW]) for first in windows) / WINDOW_S
