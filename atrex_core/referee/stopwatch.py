"""Time one workload: the worker's device samples, and the referee's own clock beside them.

The worker's samples are a claim. `call_us` is measured here, from outside, as the slope
between N and 2N back-to-back calls, so that whatever is constant (messages, waking up)
cancels. Outputs of one timed call, chosen afterwards, are compared like any other.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from statistics import median

from attrs import define, evolve, frozen

from atrex_core import roofline
from atrex_core.interfaces import DeviceSamples, Problem
from atrex_core.model import Bound, GateResult, Outcome, Share, Timing, Workload
from atrex_core.processes import linux
from atrex_core.processes.messages import Collect, Done, Run, Sample
from atrex_core.processes.workers import Answer, Worker
from atrex_core.referee.arena import Arena
from atrex_core.referee.bench import Bench, Case, first_wrong, judge_outputs

_ROUNDS = 7
_ROUND_S = 0.02
_MOST_CALLS = 512
_DISPUTE_RATIO = 0.8
_DISPUTE_SLACK_US = 5.0


@frozen(kw_only=True)
class Measurement:
    """What timing found, with everything a score needs."""

    timing: Timing
    bound: Bound | None
    unbounded_reason: str | None
    share: Share | None
    flags: tuple[str, ...]


@frozen
class _Timed:
    """One run of several calls."""

    wall_s: float
    own_s: float
    """Without the time spent waiting for a processor."""


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

    def measure(self, draw: Callable[[str], Case]) -> Measurement | GateResult | Answer:
        """Return a measurement, a failed gate, or the answer that was no answer."""
        regime = self.problem.regimes(self.workload)[0]
        first, cases = draw(regime), []
        for index in range(len(self.arena.input_sets)):
            case = first if index == 0 else draw(regime)
            self.arena.write_inputs(index, case.inputs)
            cases.append((case.regime, case.seed))
        self.bench.context.synchronize()
        try:
            claimed, made = self._sample()
            if failure := self._verify(cases, made):
                return failure
            slopes, quickest_us = self._call_slopes(claimed)
        except _Unanswered as stop:
            return stop.answer
        timing, flags = self._settle(claimed, slopes, quickest_us)
        return self._against_roof(timing, flags, first)

    # -- what the worker claims ----------------------------------------------------------------

    def _sample(self) -> tuple[DeviceSamples, int]:
        budget_s = self.bench.setup.perf_budget_s
        answer = self._ask(Sample, budget_s=budget_s, timeout_s=self._timeout_s + budget_s)
        samples = answer.samples or DeviceSamples(method="none", reason="the worker gave none")
        if any(not 0 < value < 1e12 for value in samples.samples_us):
            samples = DeviceSamples(method=samples.method, reason="the samples make no sense")
        return samples, answer.calls

    def _verify(self, cases: list[tuple[str, int]], made: int) -> GateResult | None:
        """Compare the outputs of one timed call, drawn now, with what they should be."""
        reached = min(made, len(cases))
        if reached == 0:
            return GateResult(outcome=Outcome.FAILED, reason="no timed call was made")
        index = secrets.randbelow(reached)
        self.arena.poison_outputs()
        self.bench.context.synchronize()
        self._ask(Collect, index=index, timeout_s=self._timeout_s)
        outputs = self.arena.snapshot_outputs()
        regime, seed = cases[index]
        inputs = self.problem.draw(
            self.workload, regime=regime, seed=seed, device=self.bench.context.torch_device
        )
        if changed := self.arena.changed_inputs(index, inputs):
            reason = f"a timed call changed its input {changed[0]!r}"
            return GateResult(outcome=Outcome.FAILED, reason=reason)
        wrong = first_wrong(judge_outputs(self.problem, self.workload, inputs, outputs))
        if wrong is None:
            return None
        name, comparison = wrong
        return GateResult(
            outcome=Outcome.FAILED,
            reason=f"a timed call answered wrongly: output {name!r}: {comparison.reason}",
            details={"input_set": index, "seed": seed, **comparison.details},
        )

    # -- what the referee sees -----------------------------------------------------------------

    def _call_slopes(self, claimed: DeviceSamples) -> tuple[tuple[float, ...], float | None]:
        """Return wall microseconds per call: one slope a round, and that of the quickest runs.

        A claim is held against the quickest runs, less the time that the worker stood in the
        kernel's queue for a processor: other load on the machine is not the candidate's.
        """
        once_s = self._timed_run(1).wall_s
        guess_s = median(claimed.samples_us) / 1e6 if claimed.samples_us else once_s
        calls = int(min(_MOST_CALLS, max(2, _ROUND_S / max(min(guess_s, once_s), 1e-6))))
        rounds = _ROUNDS if once_s < 1 else 1
        singles, doubles = [], []
        for _ in range(rounds):
            singles.append(self._timed_run(calls))
            doubles.append(self._timed_run(2 * calls))
        slopes = [
            (d.wall_s - s.wall_s) / calls * 1e6 for s, d in zip(singles, doubles, strict=True)
        ]
        quickest = (min(d.own_s for d in doubles) - min(s.own_s for s in singles)) / calls * 1e6
        return tuple(s for s in slopes if s > 0), quickest if quickest > 0 else None

    def _timed_run(self, calls: int) -> _Timed:
        delayed, started = linux.run_delay_s(self.worker.pid), time.perf_counter()
        self._ask(Run, calls=calls, timeout_s=self._timeout_s)
        wall_s = time.perf_counter() - started
        return _Timed(wall_s, wall_s - (linux.run_delay_s(self.worker.pid) - delayed))

    def _settle(
        self, claimed: DeviceSamples, slopes: tuple[float, ...], quickest_us: float | None
    ) -> tuple[Timing, list[str]]:
        """Put the two clocks side by side; where they contradict, believe our own."""
        call_us = median(slopes) if slopes else None
        timing = Timing(
            device_us=Timing.median_us(claimed.samples_us),
            call_us=call_us,
            method=claimed.method,
            samples_us=claimed.samples_us,
            call_samples_us=slopes,
            reason=claimed.reason,
        )
        if (
            self.bench.accelerator.is_synchronous
            and timing.device_us is not None
            and quickest_us is not None
            and timing.device_us < _DISPUTE_RATIO * quickest_us - _DISPUTE_SLACK_US
        ):
            reason = (
                f"the process claimed {timing.device_us:.2f} us a call, "
                f"the referee's clock says {quickest_us:.2f} us: the latter counts"
            )
            return evolve(timing, device_us=quickest_us, reason=reason), ["clock_disputed"]
        return timing, []

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
