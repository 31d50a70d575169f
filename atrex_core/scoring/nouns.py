"""What goes into a score besides evaluations, and what comes out. Serialisable, no logic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from attrs import field, frozen
from attrs.validators import ge

from atrex_core.interfaces import Problem
from atrex_core.model import Basis, Origin, Pack, Phase, Scale, Weight


@frozen(kw_only=True)
class ProblemFacts:
    """What scoring needs to know of one problem."""

    name: str
    importance: float = field(validator=ge(0))
    """Published weight, before normalisation."""
    phases: tuple[Phase, ...]
    workloads: tuple[str, ...]
    """Published workloads at full scale, by id."""
    weights: Mapping[str, Weight] = field(factory=dict)
    """How the operator's time divides among them; equal parts where it says nothing."""

    def weight_of(self, workload: str) -> float:
        """Return a workload's share of the operator's time."""
        weight = self.weights.get(workload)
        return 1.0 / max(1, len(self.workloads)) if weight is None else weight.share


@frozen(kw_only=True)
class Selection:
    """One pack, whole: also the operators that nobody submitted a kernel for."""

    pack: Pack
    problems: tuple[ProblemFacts, ...]
    is_partial: bool = False
    """Whether only some of its problems or workloads were asked for."""

    @classmethod
    def of(cls, pack: Pack, problems: Iterable[Problem], *, is_partial: bool = False) -> Self:
        """Collect the facts of those of `problems` that belong to `pack`."""
        facts = tuple(
            ProblemFacts(
                name=problem.name,
                importance=problem.importance,
                phases=tuple(problem.phases),
                workloads=tuple(
                    workload.id
                    for workload in problem.select(Scale.FULL)
                    if workload.origin is Origin.PUBLISHED
                ),
                weights=dict(problem.workload_weights()),
            )
            for problem in problems
            if problem.pack == pack
        )
        return cls(pack=pack, problems=facts, is_partial=is_partial)

    @property
    def weight_sum(self) -> float:
        """What the published weights add up to."""
        return sum(problem.importance for problem in self.problems)

    @property
    def bases(self) -> Mapping[str, float]:
        """Return which part of the pack's weight divides among workloads on which basis."""
        found = dict.fromkeys(map(str, Basis), 0.0)
        for problem in self.problems:
            part = problem.importance / (self.weight_sum or 1.0)
            for id_ in problem.workloads:
                weight = problem.weights.get(id_)
                basis = Basis.UNIFORM if weight is None else weight.basis
                found[str(basis)] += part * problem.weight_of(id_)
        return found


@frozen(kw_only=True)
class Aggregate:
    """A weighted score by each clock; the interval is that of `device`, else of `call`."""

    device: float | None
    call: float | None
    low: float | None
    """2.5% of scores over resampled workloads are lower."""
    high: float | None


@frozen(kw_only=True)
class OperatorSummary:
    """One operator. Scores are None when nothing was measured or several submitted."""

    submissions: tuple[str, ...]
    weight: float
    """As published."""
    normalised_weight: float
    s_device: float | None
    """Median share."""
    s_call: float | None
    s_device_dsl: float | None
    """The same, where kernels that are not the target DSL's score 0."""
    s_call_dsl: float | None
    pass_rate: float | None
    adoption_rate: float | None
    """Of the correct workloads that authenticity judged, how many passed."""
    adoption: float | None
    """Mean share of device time inside the target DSL's kernels."""
    workloads: int
    """Evaluated, `added` ones included."""
    published: int
    """Published at full scale, evaluated or not."""
    scored: int
    """Whose share, or zero for failing, is in the median."""
    withheld: int
    """Left out of the median as roofline violations."""
    unmeasured: int
    errored: int


@frozen(kw_only=True)
class PhaseSummary:
    """The part of the pack that was observed in one phase."""

    s_agg: Aggregate | None
    s_agg_dsl: Aggregate | None
    operators: int
    weight_sum: float
    weights: str = "derived"
    """Where weights by phase come from: "observed", "derived" or "uniform"."""


@frozen(kw_only=True)
class SubmissionSummary:
    """One submission, where some operator has several."""

    s_agg: Aggregate | None
    s_agg_dsl: Aggregate | None
    headline_withheld: str | None
    by_operator: Mapping[str, OperatorSummary]


@frozen(kw_only=True)
class Summary:
    """Every figure, and why the headline is missing when it is."""

    s_agg: Aggregate | None
    """Compile, correctness and performance passed."""
    s_agg_dsl: Aggregate | None
    """Authenticity too; the difference is the correctness illusion."""
    headline_withheld: str | None
    """Why there is no `s_agg`."""
    dsl_withheld: str | None
    """Why there is no `s_agg_dsl`."""
    s_agg_shape_weighted: Aggregate | None
    """With the weighted mean over an operator's workloads in place of the median."""
    shape_weights: Mapping[str, float]
    """Part of the weight that divides among workloads as observed, derived, or uniformly."""
    paper_unnormalised: Aggregate | None
    """`s_agg` under the weights as published, which add up to `weight_sum`."""
    weight_sum: float
    pass_rate: float | None
    """Of the workloads judged, `added` ones included, how many are correct."""
    adoption_rate: float | None
    coverage: float
    """Share of the pack's weight whose operators were evaluated at all."""
    best_of: bool
    by_operator: Mapping[str, OperatorSummary]
    by_phase: Mapping[str, PhaseSummary]
    by_submission: Mapping[str, SubmissionSummary]
    """Filled only when some operator has several submissions."""
    seconds: float
