"""From judged workloads to one number with an interval. Knows nothing of headlines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import fmean, median
from typing import Final
from zlib import crc32

from attrs import frozen

from atrex_core.model import Evaluation, Gate, Outcome
from atrex_core.roofline import ROOFLINE_VIOLATION
from atrex_core.scoring.nouns import Aggregate, ProblemFacts

SCORED_GATES: Final = (Gate.COMPILE, Gate.CORRECTNESS, Gate.PERFORMANCE)
DSL_GATES: Final = (*SCORED_GATES, Gate.AUTHENTICITY)

_RESAMPLES: Final = 1000
_TAIL: Final = 0.025

Counted = Mapping[str, tuple[Evaluation, ...]]
"""The evaluations in each operator's score, by the operator's name."""


class Reduction(StrEnum):
    """How the workloads of one operator become one score."""

    MEDIAN = "median"
    WEIGHTED = "weighted"
    """Mean by the workloads' weights."""


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
    weight: float = 1.0
    """Among the operator's workloads."""


def judge(evaluation: Evaluation, gates: Sequence[Gate], weight: float = 1.0) -> Judged:
    """Return what `evaluation` counts when `gates` are what has to be passed."""
    results = [evaluation.gates.get(gate) for gate in gates]
    outcomes = [result.outcome if result else Outcome.SKIPPED for result in results]
    if Outcome.ERRORED in outcomes:
        return Judged(standing=Standing.ERRORED)
    if Outcome.FAILED in outcomes:
        return Judged(standing=Standing.SCORED, device=0.0, call=0.0, weight=weight)
    if ROOFLINE_VIOLATION in evaluation.flags:
        return Judged(standing=Standing.WITHHELD)
    share = evaluation.share_of_roofline
    if Outcome.SKIPPED in outcomes or share is None or (share.device is share.call is None):
        return Judged(standing=Standing.UNMEASURED)
    return Judged(standing=Standing.SCORED, device=share.device, call=share.call, weight=weight)


def operator_score(
    judged: Sequence[Judged], clock: str, how: Reduction = Reduction.MEDIAN
) -> float | None:
    """Return S_i by one clock; None when that clock measured nothing and nothing failed."""
    values, weights = _values(judged, clock)
    if not values:
        return None
    return median(values) if how is Reduction.MEDIAN else fmean(values, weights)


def aggregate(
    problems: Sequence[ProblemFacts],
    counted: Counted,
    gates: Sequence[Gate],
    how: Reduction = Reduction.MEDIAN,
) -> Aggregate | None:
    """Return the weighted score over `problems`; those without evaluations count 0.

    None when no clock measured anything, or the weights add up to nothing.
    """
    weight_sum = sum(problem.importance for problem in problems)
    judged = {
        problem.name: [
            judge(evaluation, gates, problem.weight_of(evaluation.workload))
            for evaluation in counted.get(problem.name, ())
        ]
        for problem in problems
    }
    if weight_sum <= 0:
        return None
    weights = {problem.name: problem.importance / weight_sum for problem in problems}
    device = _weighted(weights, judged, "device", how)
    call = _weighted(weights, judged, "call", how)
    if device is None and call is None:
        return None
    low, high = _interval(weights, judged, "call" if device is None else "device", how)
    return Aggregate(device=device, call=call, low=low, high=high)


def _values(judged: Sequence[Judged], clock: str) -> tuple[list[float], list[float]]:
    """Return what counts by one clock, and the weight of each among them."""
    scored = [one for one in judged if one.standing is Standing.SCORED]
    values: list[float | None] = [getattr(one, clock) for one in scored]
    if all(value is None for value in values):
        return [], []
    if any(one.standing is Standing.UNMEASURED for one in judged) and not any(values):
        return [], []  # the failures alone are not this operator's score
    weights = [one.weight for one in scored]
    if not any(weights):
        weights = [1.0] * len(scored)
    return [value or 0.0 for value in values], weights


def _weighted(
    weights: Mapping[str, float],
    judged: Mapping[str, Sequence[Judged]],
    clock: str,
    how: Reduction,
) -> float | None:
    scores = {name: operator_score(found, clock, how) for name, found in judged.items()}
    if all(score is None for score in scores.values()):
        return None
    return sum(weights[name] * (score or 0.0) for name, score in scores.items())


def _interval(
    weights: Mapping[str, float],
    judged: Mapping[str, Sequence[Judged]],
    clock: str,
    how: Reduction,
) -> tuple[float, float]:
    """Resample workloads within each operator; the same evaluations give the same interval."""
    import numpy as np

    totals = np.zeros(_RESAMPLES)
    for name, found in judged.items():
        values, parts = (np.asarray(column) for column in _values(found, clock))
        if not values.size:
            continue
        order = np.lexsort((parts, values))
        values, parts = values[order], parts[order]
        # Seeded by name, so that one operator's draws do not depend on which others there are,
        # and of the generator whose stream numpy promises never to change.
        random = np.random.RandomState(crc32(name.encode()))
        draws = random.randint(0, values.size, size=(_RESAMPLES, values.size))
        if how is Reduction.MEDIAN:
            scores = np.median(values[draws], axis=1)
        else:
            parts = parts + np.finfo(float).tiny  # a sample may hold workloads of no weight only
            scores = (values[draws] * parts[draws]).sum(axis=1) / parts[draws].sum(axis=1)
        totals += weights[name] * scores
    low, high = np.quantile(totals, (_TAIL, 1 - _TAIL))
    return float(low), float(high)
