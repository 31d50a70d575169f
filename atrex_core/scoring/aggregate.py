"""From judged workloads to one number with an interval. Knows nothing of headlines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from random import Random
from statistics import median
from typing import Final

from attrs import frozen

from atrex_core.model import Evaluation, Gate, Outcome
from atrex_core.roofline import ROOFLINE_VIOLATION
from atrex_core.scoring.nouns import Aggregate, ProblemFacts

SCORED_GATES: Final = (Gate.COMPILE, Gate.CORRECTNESS, Gate.PERFORMANCE)
DSL_GATES: Final = (*SCORED_GATES, Gate.AUTHENTICITY)

_RESAMPLES: Final = 1000
_SEED: Final = "atrex-eval"
_TAIL: Final = 0.025

Reduce = Callable[[Sequence[float]], float]
Counted = Mapping[str, tuple[Evaluation, ...]]
"""The evaluations in each operator's score, by the operator's name."""


class Standing(StrEnum):
    """What a workload is to a score."""

    SCORED = "scored"
    WITHHELD = "withheld"
    UNMEASURED = "unmeasured"
    ERRORED = "errored"


@frozen(kw_only=True)
class Judged:
    """One workload's score by each clock. Both are 0 when a gate failed."""

    standing: Standing
    device: float | None = None
    call: float | None = None


def judge(evaluation: Evaluation, gates: Sequence[Gate]) -> Judged:
    """Return what `evaluation` counts when `gates` are what has to be passed."""
    results = [evaluation.gates.get(gate) for gate in gates]
    outcomes = [result.outcome if result else Outcome.SKIPPED for result in results]
    if Outcome.ERRORED in outcomes:
        return Judged(standing=Standing.ERRORED)
    if Outcome.FAILED in outcomes:
        return Judged(standing=Standing.SCORED, device=0.0, call=0.0)
    share = evaluation.share_of_roofline
    if Outcome.SKIPPED in outcomes or share is None or (share.device is share.call is None):
        return Judged(standing=Standing.UNMEASURED)
    if ROOFLINE_VIOLATION in evaluation.flags:
        return Judged(standing=Standing.WITHHELD)
    return Judged(standing=Standing.SCORED, device=share.device, call=share.call)


def operator_score(judged: Sequence[Judged], clock: str, reduce: Reduce = median) -> float | None:
    """Return S_i by one clock; None when that clock measured nothing and nothing failed."""
    values = _values(judged, clock)
    return reduce(values) if values else None


def aggregate(
    problems: Sequence[ProblemFacts],
    counted: Counted,
    gates: Sequence[Gate],
    reduce: Reduce = median,
) -> Aggregate | None:
    """Return the weighted score over `problems`; those without evaluations count 0.

    None when no clock measured anything, or the weights add up to nothing.
    """
    weight_sum = sum(problem.importance for problem in problems)
    judged = {
        problem.name: [judge(evaluation, gates) for evaluation in counted.get(problem.name, ())]
        for problem in problems
    }
    if weight_sum <= 0:
        return None
    weights = {problem.name: problem.importance / weight_sum for problem in problems}
    device = _weighted(weights, judged, "device", reduce)
    call = _weighted(weights, judged, "call", reduce)
    if device is None and call is None:
        return None
    low, high = _interval(weights, judged, "call" if device is None else "device", reduce)
    return Aggregate(device=device, call=call, low=low, high=high)


def _values(judged: Sequence[Judged], clock: str) -> list[float]:
    scored = [one for one in judged if one.standing is Standing.SCORED]
    values: list[float | None] = [getattr(one, clock) for one in scored]
    if all(value is None for value in values):
        return []
    if any(one.standing is Standing.UNMEASURED for one in judged) and not any(values):
        return []  # the failures alone are not this operator's score
    return [value or 0.0 for value in values]


def _weighted(
    weights: Mapping[str, float],
    judged: Mapping[str, Sequence[Judged]],
    clock: str,
    reduce: Reduce,
) -> float | None:
    scores = {name: operator_score(found, clock, reduce) for name, found in judged.items()}
    if all(score is None for score in scores.values()):
        return None
    return sum(weights[name] * (score or 0.0) for name, score in scores.items())


def _interval(
    weights: Mapping[str, float],
    judged: Mapping[str, Sequence[Judged]],
    clock: str,
    reduce: Reduce,
) -> tuple[float, float]:
    """Resample workloads within each operator; the same evaluations give the same interval."""
    totals = [0.0] * _RESAMPLES
    for name, found in judged.items():
        values = sorted(_values(found, clock))
        if not values:
            continue
        # Seeded by name, so that one operator's draws do not depend on which others there are.
        random = Random(f"{_SEED}:{name}")  # noqa: S311 - statistics, not secrets
        constant = values[0] == values[-1]
        for index in range(_RESAMPLES):
            draw = values if constant else random.choices(values, k=len(values))
            totals[index] += weights[name] * reduce(draw)
    totals.sort()
    tail = round(_TAIL * _RESAMPLES)
    return totals[tail], totals[-1 - tail]
