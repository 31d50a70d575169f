"""Time one workload: the worker's device samples, and the referee's own clock beside them.

The worker's samples are a claim. `call_us` is measured here, from outside, as the slope
between N and 2N back-to-back calls, so that whatever is constant (messages, waking up)
cancels. Outputs of one timed call, chosen afterwards, are compared like any other.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from statistics import fmean, median, quantiles

from attrs import define, evolve, field, frozen

from atrex_core import roofline
from atrex_core.interfaces import DeviceSamples, Problem, Tensors
from atrex_core.model import Bound, GateResult, Outcome, Share, Timing, Workload
from atrex_core.printable import one_line
from atrex_core.processes.messages import Collect, Done, Run, Sample
from atrex_core.processes.workers import Answer, Worker
from atrex_core.referee.arena import Arena
from atrex_core.referee.bench import Bench, Case, first_wrong, judge_outputs

_ATTEMPTS = 3
_LEAST_FOR_SPREAD = 4
_STABLE_SPREAD = 0.2
_ROUNDS = 7
_ROUND_S = 0.02
_MOST_CALLS = 512
_PILOT_CALLS = 4
_REHEARSAL_S = 1.0
_DISPUTE_RATIO = 0.6
"""What a sampler's warm-up and its own bookkeeping may take of the request, at most 40 %."""
_DISPUTE_SLACK_US = 10.0


@frozen(kw_only=True)
class Measurement:
    """What timing found, with everything a score needs."""

    timing: Timing
    bound: Bound | None
    unbounded_reason: str | None
    share: Share | None
    flags: tuple[str, ...]


@frozen(kw_only=True)
class _Claim:
    """What the worker says of its own speed, and how long it took to say it."""

    samples: DeviceSamples
    calls: int
    wall_s: float


class _Unanswered(Exception):
    """The worker did not do what was asked."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


@define(eq=False)
class Stopwatch:
    """Measures one workload in a worker that has already answered correctly."""

    bench: Bench
    worker: Worker
    arena: Arena
    problem: Problem
    workload: Workload
    _draw: Callable[[str], Case] = field(init=False)
    _made: int = field(default=0, init=False)
    """Timed calls so far, by the worker's count."""

    def measure(self, draw: Callable[[str], Case]) -> Measurement | GateResult | Answer:
        """Return a measurement, a failed gate, or the answer that was no answer."""
        regime = self.problem.regimes(self.workload)[0]
        self._draw = draw
        first, cases = draw(regime), []
        for index in range(len(self.arena.input_sets)):
            case = first if index == 0 else draw(regime)
            self.arena.write_inputs(index, case.inputs)
            cases.append((case.regime, case.seed))
        self.bench.context.synchronize()
        try:
            timing, flags = self._time()
            if failure := self._verify(cases):
                return failure
        except _Unanswered as stop:
            return stop.answer
        return self._against_roof(timing, flags, first)

    def _time(self) -> tuple[Timing, list[str]]:
        """Measure until both clocks agree: threads that settle differently are no lie."""
        timing, flags = self._settle(self._sample(), self._call_slopes())
        for _ in range(_ATTEMPTS - 1):
            if not flags:
                break
            timing, flags = self._settle(self._sample(), self._call_slopes())
        return timing, flags + _spread(timing)

    # -- what the worker claims ----------------------------------------------------------------

    def _sample(self) -> _Claim:
        budget_s = self.bench.setup.perf_budget_s
        self._rehearse()
        before, started = self._made, time.perf_counter()
        answer = self._ask(Sample, budget_s=budget_s, timeout_s=self._timeout_s + budget_s)
        wall_s = time.perf_counter() - started
        samples = answer.samples or DeviceSamples(method="none", reason="the worker gave none")
        if any(not 0 < value < 1e12 for value in samples.samples_us):
            samples = DeviceSamples(method=samples.method, reason="the samples make no sense")
        reason = one_line(samples.reason) if samples.reason else None
        samples = evolve(samples, method=one_line(samples.method, 100), reason=reason)
        self._made = answer.calls
        return _Claim(samples=samples, calls=answer.calls - before, wall_s=wall_s)

    def _rehearse(self) -> None:
        """Make one round of calls and a little more, or as many as a second has room for.

        After it, the memory of every output kept, and of the one being made beside them, is no
        longer fresh: its first use is no part of a call's time.
        """
        once_s = self._wall_s(1)
        room_s = min(_REHEARSAL_S, self._timeout_s / 4)
        more = min(len(self.arena.input_sets) + _PILOT_CALLS, int(room_s / max(once_s, 1e-6)))
        if more:
            self._wall_s(more)

    def _verify(self, cases: list[tuple[str, int]]) -> GateResult | None:
        """Compare the outputs of one timed call, drawn now, with what they should be.

        Its inputs are gone by then, so that an answer put off until somebody asks is wrong.
        """
        updated = self.problem.in_place.values()
        if updated:
            index, seed, inputs = self._call_once_more(cases)
        else:
            index = secrets.randbelow(max(1, min(self._made, len(cases))))
            regime, seed = cases[index]
            inputs = self.problem.draw(
                self.workload, regime=regime, seed=seed, device=self.bench.context.torch_device
            )
        if changed := self.arena.changed_inputs(index, inputs, updated=updated):
            reason = f"a timed call changed its input {changed[0]!r}"
            return GateResult(outcome=Outcome.FAILED, reason=reason)
        self.arena.poison_inputs(index, updated=updated)
        self.arena.poison_outputs()
        self.bench.context.synchronize()
        self._ask(Collect, index=index, timeout_s=self._timeout_s)
        outputs = self.arena.snapshot_outputs()
        wrong = first_wrong(judge_outputs(self.problem, self.workload, inputs, outputs))
        if wrong is None:
            return None
        name, comparison = wrong
        return GateResult(
            outcome=Outcome.FAILED,
            reason=f"a timed call answered wrongly: output {name!r}: {comparison.reason}",
            details={"input_set": index, "seed": seed, **comparison.details},
        )

    def _call_once_more(self, cases: list[tuple[str, int]]) -> tuple[int, int, Tensors]:
        """Make one more timed call, on values drawn now: earlier ones have updated their inputs.

        To the worker it is a call like those before it.
        """
        index = self._made % len(cases)
        case = self._draw(cases[index][0])
        self.arena.write_inputs(index, case.inputs)
        self.bench.context.synchronize()
        self._wall_s(1)
        return index, case.seed, case.inputs

    # -- what the referee sees -----------------------------------------------------------------

    def _call_slopes(self) -> tuple[float, ...]:
        """Return wall microseconds per call, one slope for each round."""
        once_s = self._wall_s(_PILOT_CALLS) / _PILOT_CALLS
        calls = int(min(_MOST_CALLS, max(2, _ROUND_S / max(once_s, 1e-6))))
        rounds = _ROUNDS if once_s < 1 else 1
        slopes = []
        for _ in range(rounds):
            single_s = self._wall_s(calls)
            slopes.append((self._wall_s(2 * calls) - single_s) / calls * 1e6)
        return tuple(slope for slope in slopes if slope > 0)

    def _wall_s(self, calls: int) -> float:
        started = time.perf_counter()
        done = self._ask(Run, calls=calls, timeout_s=self._timeout_s)
        wall_s = time.perf_counter() - started
        self._made = done.calls
        return wall_s

    def _settle(self, claim: _Claim, slopes: tuple[float, ...]) -> tuple[Timing, list[str]]:
        """Put the two clocks side by side; where they contradict, believe our own.

        Where a call returns only when its work is done, the samples must add up to about the
        time that the whole request took here: other load on the machine lengthens both. And
        their median, which counts, must be near our own quickest round, or a few samples could
        take the time of all others upon them.
        """
        call_us = median(slopes) if slopes else None
        samples_us = claim.samples.samples_us
        timing = Timing(
            device_us=Timing.median_us(samples_us),
            call_us=call_us,
            method=claim.samples.method,
            samples_us=samples_us,
            call_samples_us=slopes,
            reason=claim.samples.reason,
        )
        if not (self.bench.accelerator.is_synchronous and samples_us and claim.calls > 0):
            return timing, []
        mean_us, seen_us = fmean(samples_us), claim.wall_s / claim.calls * 1e6
        claimed_us, least_us = median(samples_us), min(slopes, default=0.0)
        if _may_be(mean_us, seen_us) and _may_be(claimed_us, least_us):
            return timing, []
        reason = (
            f"the process claimed {claimed_us:.2f} us a call, "
            f"the referee's clock says {seen_us:.2f} us over {claim.calls} calls: the latter counts"
        )
        believed_us = max(seen_us, call_us or 0.0)
        return evolve(timing, device_us=believed_us, reason=reason), ["clock_disputed"]

    def _against_roof(self, timing: Timing, flags: list[str], first: Case) -> Measurement:
        profile = self.bench.profile
        bound: Bound | None = None
        reason: str | None = f"no hardware profile describes {self.bench.device.name!r}"
        if profile is not None:
            found = roofline.bound(self.problem.cost(self.workload, first.inputs), profile)
            if isinstance(found, Bound):
                bound, reason = found, None
            else:
                reason = str(found)
        share = roofline.share(bound, timing) if bound else None
        if share is not None:
            flags += roofline.flags(share)
        return Measurement(
            timing=timing,
            bound=bound,
            unbounded_reason=reason,
            share=share,
            flags=tuple(flags),
        )

    def _ask(self, request: type[Sample | Collect | Run], **fields: object) -> Done:
        answer = self.worker.ask(request, **fields)  # type: ignore[arg-type]
        if not isinstance(answer, Done):
            raise _Unanswered(answer)
        return answer

    @property
    def _timeout_s(self) -> float:
        return self.bench.setup.timeout_s


def _spread(timing: Timing) -> list[str]:
    """Return a flag when the middle half of the samples is wide: other load, or several modes."""
    if len(timing.samples_us) < _LEAST_FOR_SPREAD:
        return []
    low, middle, high = quantiles(timing.samples_us, n=4)
    return ["unstable"] if high - low > _STABLE_SPREAD * middle else []


def _may_be(claimed_us: float, seen_us: float) -> bool:
    return claimed_us >= _DISPUTE_RATIO * seen_us - _DISPUTE_SLACK_US
