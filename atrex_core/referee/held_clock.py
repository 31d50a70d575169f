"""The referee's own clock: calls enqueued before their inputs exist, released and timed here.

A worker enqueues N calls behind a wait for a word in memory that the referee shares with it, and
behind them the writing of a second word. Then the referee writes the inputs, lets every cache
forget, releases, and looks at its clock until the second word is written; it takes outputs at
once. Work done early has worked on rubbish, work done late is missing from the outputs, and
everything else is on this clock, whatever the worker's own clock says. The slope between rounds
of different N is the time of one call: whatever is constant cancels.
"""

from __future__ import annotations

import itertools
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from attrs import define, field, frozen

from atrex_core.interfaces import Problem, Tensor
from atrex_core.model import Workload
from atrex_core.processes.gate import wait_for
from atrex_core.processes.messages import Done, Enqueue, Run
from atrex_core.processes.workers import Answer, Worker
from atrex_core.referee.arena import Arena
from atrex_core.referee.bench import Bench, Case
from atrex_core.referee.laps import Lap, Laps
from atrex_core.referee.timed_outputs import TimedOutputs

_ROUNDS = 8
_PATIENCE_S = 0.1
_PATIENCE_FACTOR = 5.0
"""How many times longer than alone the host may take to enqueue: other load."""
_LEAST_APART = 4
"""Rounds must differ by a fourth of the most calls, or their slope is noise."""
_ROUND_S = 0.5
_TIMEOUT_SHARE = 0.25
"""A round of long calls is kept well below what the worker is given to answer in."""
_SPIN_S = 2e-3
_LOOK_S = 0.02
"""How often to see whether whoever should finish still lives: never during a short round."""

CAUGHT_BY = "outputs of a held queue"
WAITS = "forward waits for the device, or for room in its queue; only call time counts"


@frozen(kw_only=True)
class HeldTimes:
    """What the referee's clock says of one call, or why it says nothing."""

    call_us: float | None = None
    """Slope over rounds, without the copies of outputs."""
    fresh_us: float | None = None
    """The same on inputs that nobody had seen before: from the first round alone.

    Where forward waits for the device, wall time.
    """
    waits: bool = False
    """Whether forward waits for the device, so that no queue of its calls can be held."""
    copy_us: float = 0.0
    """What was taken off for copying the outputs of one call."""
    write_back_us: float = 0.0
    """What a call of a queue may take longer than one by itself, which finds a clean cache: the
    time to write back what the call before has left in it."""
    rounds: tuple[tuple[int, float], ...] = ()
    """Calls, and microseconds from release to end."""
    reason: str | None = None


class Unanswered(Exception):
    """The worker did not do what was asked."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


@define(eq=False)
class HeldClock:
    """Clocks one workload of a worker that has already answered correctly."""

    bench: Bench
    worker: Worker
    arena: Arena
    problem: Problem
    workload: Workload
    timeout_s: float
    next_epoch: Callable[[], int]
    laps: Laps
    _once_s: float = field(default=0.0, init=False)
    _check: TimedOutputs = field(init=False)

    def measure(self, draw: Callable[[int], Sequence[Case]], once_s: float) -> HeldTimes:
        """Time calls on inputs that no call has seen before, one input set each.

        Args:
            draw: Makes at most so many, in private memory.
            once_s: How long one call takes, at most.

        Raises:
            Unanswered: the worker died, or broke the contract.
            WrongWhenTimed: the outputs of a timed call are wrong.
        """
        if self.worker.ungated is not None:
            return HeldTimes(reason=self.worker.ungated)
        self._once_s = once_s
        self._check = TimedOutputs(self.arena, self.problem, self.workload, CAUGHT_BY)
        pool = draw(self._most())
        most = len(pool)
        fresh_round_us = self._round(pool, {most - 1, secrets.randbelow(most)})
        while fresh_round_us is None and most > 1:  # more launches than its queue can take
            pool = draw(max(1, most // 4))
            most = len(pool)
            fresh_round_us = self._round(pool, {most - 1, secrets.randbelow(most)})
        if fresh_round_us is None:
            return HeldTimes(reason=WAITS, waits=True, fresh_us=self._wall_us(draw(self._most())))
        rounds = []
        counts = self._counts(most)
        also = secrets.randbelow(len(counts))
        for number, count in enumerate(counts):
            cases = self._chosen(pool, count)
            checked = set(self._check.are_approved(cases))
            if count and (number == also or not checked):
                checked.add(secrets.randbelow(count))
            found = self._round(cases, checked)
            if found is not None:
                rounds.append((count, found))
        copied_us = self._copy_us(most)
        slope_us = _slope(rounds, least_apart=max(1, most // _LEAST_APART))
        if slope_us is None:
            return HeldTimes(reason="too few rounds could be held", rounds=tuple(rounds))
        started_us = median(us - count * slope_us for count, us in rounds)
        fresh_us = (fresh_round_us - started_us) / most
        return HeldTimes(
            call_us=max(0.0, slope_us - copied_us),
            fresh_us=max(0.0, fresh_us - copied_us),
            copy_us=copied_us,
            write_back_us=self._write_back_us(),
            rounds=((most, fresh_round_us), *rounds),
        )

    def _chosen(self, pool: Sequence[Case], count: int) -> list[Case]:
        """Return so many of the pool, in any order: one at least whose answer is known, if any."""
        chosen = random.sample(list(pool), count)
        known = self._check.are_approved(pool)
        if count and known and not self._check.are_approved(chosen):
            chosen[secrets.randbelow(count)] = pool[secrets.choice(known)]
        return chosen

    def _wall_us(self, pool: Sequence[Case]) -> float:
        """Return wall time of one call on inputs that nobody has seen before."""
        sets = len(self.arena.input_sets)
        self.arena.write_all_inputs([case.inputs for case in pool])
        self.bench.context.overrun_caches()
        self.bench.context.synchronize()
        calls = min(len(pool), sets)
        return max(0.0, (self._run_s(calls) - self._run_s(0)) / calls * 1e6)

    def _run_s(self, calls: int) -> float:
        started = time.perf_counter()
        answer = self.worker.ask(Run, timeout_s=self.timeout_s, calls=calls)
        if not isinstance(answer, Done):
            raise Unanswered(answer)
        return time.perf_counter() - started

    def _most(self) -> int:
        """Return how many calls a round may make, in memory and in time."""
        round_s = min(_ROUND_S, self.timeout_s * _TIMEOUT_SHARE)
        return max(1, min(len(self.arena.output_sets), int(round_s / max(self._once_s, 1e-6))))

    def _counts(self, most: int) -> list[int]:
        """Return how many calls each round makes: nobody can know it beforehand.

        Rounds of one call and more cancel what it costs to wake a device, or to give it to
        another process; that is lost where there is room for a single call.
        """
        few, many = max(1, most // 4), most - most // 4
        counts = [few + secrets.randbelow(max(1, most // 4)) for _ in range(_ROUNDS // 2)]
        counts += [many + secrets.randbelow(most - many + 1) for _ in range(_ROUNDS // 2)]
        if most == 1:
            counts = [0, 1] * (_ROUNDS // 2)
        random.shuffle(counts)
        return counts

    def _round(self, cases: Sequence[Case], checked: set[int]) -> float | None:
        """Return microseconds from release to end of one call on each of `cases`.

        None where the queue could not be filled before it had to be released.
        """
        epoch, calls, gate = self.next_epoch(), len(cases), self.worker.gate
        context, spin_s = self.bench.context, self._spin_s
        self.arena.poison()
        context.synchronize()
        patience_s = _PATIENCE_S + _PATIENCE_FACTOR * calls * self._once_s
        outputs: dict[int, Mapping[str, Tensor]] = {}
        elapsed_us: float | None = None

        def hold_and_release() -> None:
            nonlocal elapsed_us
            is_armed = self._wait_for(
                lambda: gate.is_armed(epoch), limit_s=min(patience_s, self.timeout_s)
            )
            for index, case in enumerate(cases):
                self.arena.write_inputs(index, case.inputs)
            context.overrun_caches()
            context.synchronize()
            started = time.perf_counter()
            gate.release(epoch)
            if not is_armed:
                return  # what happens now happened too late to be clocked
            is_finished = self._wait_for(
                lambda: gate.is_finished(epoch), limit_s=self.timeout_s, spin_s=spin_s
            )
            ended = time.perf_counter()
            if is_finished:
                elapsed_us = (ended - started) * 1e6
                for index in checked:
                    outputs[index] = self.arena.snapshot_outputs(
                        index, in_place=self.problem.in_place
                    )
                context.synchronize()

        try:
            answer = self.worker.ask(
                Enqueue,
                timeout_s=self.timeout_s,
                meanwhile=hold_and_release,
                calls=calls,
                epoch=epoch,
            )
        finally:
            gate.release(epoch)
        if not isinstance(answer, Done):
            raise Unanswered(answer)
        with self.laps.within(Lap.JUDGE):
            for index, found in outputs.items():
                self._check.check_inputs(index, cases[index])
                self._check.check_outputs(index, cases[index], found)
        return elapsed_us

    def _wait_for(
        self, happened: Callable[[], bool], *, limit_s: float, spin_s: float = _SPIN_S
    ) -> bool:
        """Wait, but not for a worker that has ended, or has answered instead."""
        deadline = time.perf_counter() + limit_s
        while not wait_for(happened, limit_s=_LOOK_S, spin_s=spin_s):
            if self.worker.has_answered() or time.perf_counter() > deadline:
                return happened()
        return True

    def _copy_us(self, most: int) -> float:
        """Return what copying the outputs of one call takes by itself."""
        sets = [
            tensors
            for index in range(min(max(2, most), len(self.arena.output_sets)))
            if (tensors := self.arena.copied_outputs(index, self.problem.in_place))
        ]
        return self.bench.copies.copy_us(sets) if sets else 0.0

    def _write_back_us(self) -> float:
        """Return the least time in which a call's outputs reach the device's memory."""
        profile, cache_bytes = self.bench.profile, self.bench.context.last_level_cache_bytes
        if profile is None or cache_bytes is None or self.bench.accelerator.is_synchronous:
            return 0.0
        written_bytes = sum(spec.nbytes for spec in self.problem.outputs(self.workload))
        return min(written_bytes, cache_bytes) / profile.bandwidth_bytes_per_s.value * 1e6

    @property
    def _spin_s(self) -> float:
        """How long to look without a break: on a host device, it would take what it looks at."""
        return 0.0 if self.bench.accelerator.is_synchronous else self.timeout_s


def _slope(rounds: Sequence[tuple[int, float]], *, least_apart: int) -> float | None:
    """Return the median slope between rounds that are far enough apart."""
    slopes = [
        (us - other_us) / (count - other)
        for (count, us), (other, other_us) in itertools.combinations(rounds, 2)
        if abs(count - other) >= least_apart
    ]
    return median(slopes) if slopes else None
