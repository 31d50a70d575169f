"""Time one workload: the worker's claim, and two clocks of the referee beside it.

`call_us` is wall time measured here, as the slope between few and many back-to-back calls, so
that messages and waking up cancel. `device_us` is the median of the worker's own samples, which
is a claim; the held queue of `held_clock` says whether it can be true. Outputs of calls that
were timed, chosen where the worker cannot know it, are compared like any other.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from attrs import define, evolve, field

from atrex_core.interfaces import DeviceSamples, Problem
from atrex_core.model import GateResult, Workload
from atrex_core.printable import one_line
from atrex_core.processes.messages import Collect, Done, Run, Sample
from atrex_core.processes.workers import Answer, Worker
from atrex_core.referee import clocks, conditions, roof
from atrex_core.referee.arena import Arena
from atrex_core.referee.bench import Bench, Case
from atrex_core.referee.held_clock import HeldClock, Unanswered
from atrex_core.referee.laps import Lap, Laps
from atrex_core.referee.roof import Measurement
from atrex_core.referee.timed_outputs import TimedOutputs, WrongWhenTimed

_ATTEMPTS = 3
_ROUNDS = 5
_ROUND_S = 0.004
_FEWER = 8
"""The fewer calls of a round are an eighth of the many: nearly all of its time counts."""
_MOST_CALLS = 512
_PILOT_CALLS = 4
_REHEARSAL_S = 1.0
_DRAWING_S = 0.06
_LEAST_DRAWN = 2
_MOST_US = 1e12

CAUGHT_BY = "outputs of a timed call"


@define(eq=False)
class Stopwatch:
    """Measures one workload in a worker that has already answered correctly."""

    bench: Bench
    worker: Worker
    arena: Arena
    problem: Problem
    workload: Workload
    next_epoch: Callable[[], int]
    """Counts up over all that this worker is ever asked to hold."""
    laps: Laps
    _draw: Callable[[str], Case] = field(init=False)
    _pool: list[Case] = field(factory=list, init=False)
    _made: int = field(default=0, init=False)
    """Timed calls so far, by the worker's count."""
    _asked: int = field(default=0, init=False)
    """Timed calls that were asked for since the sets were written."""

    def measure(self, draw: Callable[[str], Case]) -> Measurement | GateResult | Answer:
        """Return a measurement, a failed gate, or the answer that was no answer."""
        self._draw = draw
        try:
            first = self._fill()
            self._rehearse()
            found = self._look(first)
            del first  # its memory may be needed
            if found.is_violation:
                return self._look_again(found)
        except Unanswered as stop:
            return stop.answer
        except WrongWhenTimed as stop:
            return stop.result
        return found

    def _look(self, first: Case) -> Measurement:
        before = self.bench.context.conditions()
        settled = self._time()
        settled = conditions.noted(settled, before, self.bench.context.conditions())
        self._verify()
        return roof.against_roof(self.bench, self.problem, self.workload, settled, first.inputs)

    def _look_again(self, first: Measurement) -> Measurement:
        """Measure all over again, on inputs drawn now: a time beats what is possible."""
        case = self._fill()
        second = self._look(case)
        found = roof.looked_again(first, second)
        if not found.is_violation:
            return found
        return roof.with_evidence(
            self.bench,
            found,
            first,
            constant_inputs=roof.constant(case.inputs),
            rotated_bytes=sum(buffer.nbytes for buffer in self.arena.buffers),
        )

    def _fill(self) -> Case:
        """Draw inputs to rehearse on, and write all sets."""
        self._redraw(_LEAST_DRAWN)
        self._write_sets()
        return self._pool[0]

    def _redraw(self, most: int) -> list[Case]:
        """Draw inputs that no call has seen: so many at most, or as time allows."""
        regime = self.problem.regimes(self.workload)[0]
        self._pool.clear()  # its memory is needed
        started, self._pool = time.perf_counter(), [self._draw(regime)]
        while len(self._pool) < most and (
            len(self._pool) < _LEAST_DRAWN or time.perf_counter() - started < _DRAWING_S
        ):
            self._pool.append(self._draw(regime))
        return self._pool

    def _write_sets(self) -> None:
        self.arena.write_all_inputs([case.inputs for case in self._pool])
        self.bench.context.synchronize()
        self._asked = 0

    def _time(self) -> clocks.Settled:
        """Measure until the clocks agree: threads that settle differently are no lie."""
        for _ in range(_ATTEMPTS - 1):
            settled = self._time_once()
            if settled.caught_by is None:
                return settled
        return self._time_once()

    def _time_once(self) -> clocks.Settled:
        clock = HeldClock(
            self.bench,
            self.worker,
            self.arena,
            self.problem,
            self.workload,
            self._timeout_s,
            self.next_epoch,
            self.laps,
        )
        with self.laps.within(Lap.HOLD):
            held = clock.measure(self._redraw, self._wall_s(1))
        self._write_sets()  # what updates its inputs finds them as they were drawn
        with self.laps.within(Lap.SAMPLE):
            samples = self._sample()
        return clocks.settle(
            samples,
            held,
            self._call_slopes(),
            is_synchronous=self.bench.accelerator.is_synchronous,
        )

    # -- what the worker claims ----------------------------------------------------------------

    def _sample(self) -> DeviceSamples:
        budget_s = self.bench.setup.perf_budget_s
        self._rehearse()
        answer = self._ask(Sample, budget_s=budget_s, timeout_s=self._timeout_s + budget_s)
        samples = answer.samples or DeviceSamples(method="none", reason="the worker gave none")
        if any(not 0 < value < _MOST_US for value in samples.samples_us):
            samples = DeviceSamples(method=samples.method, reason="the samples make no sense")
        self._made = answer.calls
        return evolve(
            samples,
            method=one_line(samples.method, 100),
            reason=one_line(samples.reason) if samples.reason else None,
        )

    def _rehearse(self) -> None:
        """Make one round of calls and a little more, or as many as a second has room for.

        After it, the memory of every output kept, and of the one being made beside them, is no
        longer fresh: its first use is no part of a call's time.
        """
        with self.laps.within(Lap.REHEARSE):
            self._rehearse_now()

    def _rehearse_now(self) -> None:
        once_s = self._wall_s(1)
        room_s = min(_REHEARSAL_S, self._timeout_s / 4)
        more = min(len(self.arena.input_sets) + _PILOT_CALLS, int(room_s / max(once_s, 1e-6)))
        if more:
            self._wall_s(more)

    def _verify(self) -> None:
        """Compare the outputs of one call that the worker timed, drawn now.

        Its inputs are gone by then, so that an answer put off until somebody asks is wrong.

        Raises:
            WrongWhenTimed: they are wrong, or an input was changed.
        """
        updated = self.problem.in_place.values()
        if updated:
            index, case = self._call_once_more()
        else:
            index = self._any_but_the_latest()
            case = self._pool[index % len(self._pool)]
        check = TimedOutputs(self.arena, self.problem, self.workload, CAUGHT_BY)
        check.check_inputs(index, case)
        self.arena.poison_inputs(index, updated=updated)
        self.arena.poison_outputs()
        self.bench.context.synchronize()
        self._ask(Collect, index=index, timeout_s=self._timeout_s)
        with self.laps.within(Lap.JUDGE):
            check.check_outputs(index, case, self.arena.snapshot_outputs())

    def _any_but_the_latest(self) -> int:
        """Return the number of an input set that a call has seen since the sets were written.

        Not that of the latest call: one buffer that every call fills anew would be right there.
        """
        sets = len(self.arena.input_sets)
        before = min(self._asked, sets) - 1
        back = 1 + secrets.randbelow(before) if before > 0 else 0
        return (self._made - 1 - back) % sets

    def _call_once_more(self) -> tuple[int, Case]:
        """Make one more timed call, on values drawn now: earlier ones have updated their inputs.

        To the worker it is a call like those before it.
        """
        index = self._made % len(self.arena.input_sets)
        case = self._draw(self._pool[0].regime)
        self.arena.write_inputs(index, case.inputs)
        self.bench.context.synchronize()
        self._wall_s(1)
        return index, case

    # -- what the referee sees -----------------------------------------------------------------

    def _call_slopes(self) -> tuple[float, ...]:
        """Return wall microseconds per call, one slope for each round."""
        once_s = self._wall_s(_PILOT_CALLS) / _PILOT_CALLS
        many = int(min(_MOST_CALLS, max(4, _ROUND_S / max(once_s, 1e-6))))
        few = max(1, many // _FEWER)
        rounds = _ROUNDS if once_s < 1 else 1
        slopes = []
        for _ in range(rounds):
            few_s = self._wall_s(few)
            slopes.append((self._wall_s(many) - few_s) / (many - few) * 1e6)
        return tuple(slope for slope in slopes if slope > 0)

    def _wall_s(self, calls: int) -> float:
        started = time.perf_counter()
        done = self._ask(Run, calls=calls, timeout_s=self._timeout_s)
        wall_s = time.perf_counter() - started
        self._made = done.calls
        self._asked += calls
        return wall_s

    def _ask(self, request: type[Sample | Collect | Run], **fields: object) -> Done:
        answer = self.worker.ask(request, **fields)  # type: ignore[arg-type]
        if not isinstance(answer, Done):
            raise Unanswered(answer)
        return answer

    @property
    def _timeout_s(self) -> float:
        return self.bench.setup.timeout_s
