"""Group, choose, check whether a headline would be honest, and fill the summary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Final

from attrs import evolve

from atrex_core.model import Ceiling, Evaluation, Gate, Outcome, Phase, Scale
from atrex_core.printable import many
from atrex_core.scoring.aggregate import (
    DSL_GATES,
    SCORED_GATES,
    Counted,
    Reduction,
    Standing,
    aggregate,
    judge,
    operator_score,
)
from atrex_core.scoring.nouns import (
    Aggregate,
    OperatorSummary,
    PhaseSummary,
    ProblemFacts,
    Selection,
    SubmissionSummary,
    Summary,
)

_CORRECT: Final = (Gate.COMPILE, Gate.CORRECTNESS)


def summarise(
    evaluations: Sequence[Evaluation], selection: Selection, *, best_of: bool = False
) -> Summary:
    """Score `evaluations` against the whole pack of `selection`."""
    latest = _latest(evaluations)
    if best_of:
        latest = _best(latest, selection)
    contested = _contested(latest)
    counted = _counted(latest, selection)
    withheld = next(_reasons(latest, selection, counted), None)
    dsl_withheld = withheld or _dsl_reason(counted)
    s_agg = None if withheld else aggregate(selection.problems, counted, SCORED_GATES)
    return Summary(
        s_agg=s_agg,
        s_agg_dsl=None if dsl_withheld else aggregate(selection.problems, counted, DSL_GATES),
        headline_withheld=withheld,
        dsl_withheld=dsl_withheld,
        s_agg_shape_weighted=(
            None
            if withheld
            else aggregate(selection.problems, counted, SCORED_GATES, Reduction.WEIGHTED)
        ),
        shape_weights=selection.bases,
        paper_unnormalised=_scaled(s_agg, selection.weight_sum),
        weight_sum=selection.weight_sum,
        pass_rate=_pass_rate(latest),
        adoption_rate=_adoption_rate(latest),
        coverage=_coverage(latest, selection),
        best_of=best_of,
        by_operator={
            facts.name: _operator(facts, latest, counted, selection) for facts in selection.problems
        },
        by_phase={
            str(phase): _phase(phase, selection, counted, withheld, dsl_withheld) for phase in Phase
        },
        by_submission=_by_submission(latest, selection) if contested else {},
        seconds=sum(evaluation.seconds for evaluation in evaluations),
    )


def _latest(evaluations: Sequence[Evaluation]) -> tuple[Evaluation, ...]:
    """Keep the last result of each submission, workload and place, in order of appearance."""
    found: dict[object, Evaluation] = {}
    for evaluation in evaluations:
        key = (
            evaluation.submission,
            evaluation.problem,
            evaluation.workload,
            evaluation.backend,
            evaluation.device.name,
            evaluation.protocol,
            evaluation.pack,
        )
        known = found.get(key)
        if known is None or evaluation.started_at >= known.started_at:
            found[key] = evaluation
    return tuple(found.values())


def _submissions(evaluations: Sequence[Evaluation]) -> dict[str, tuple[str, ...]]:
    """Return the labels that each problem was submitted under."""
    labels: dict[str, dict[str, None]] = {}
    for evaluation in evaluations:
        labels.setdefault(evaluation.problem, {})[evaluation.submission] = None
    return {problem: tuple(found) for problem, found in labels.items()}


def _contested(evaluations: Sequence[Evaluation]) -> tuple[str, ...]:
    return tuple(name for name, labels in _submissions(evaluations).items() if len(labels) > 1)


def _best(evaluations: Sequence[Evaluation], selection: Selection) -> tuple[Evaluation, ...]:
    """Keep, of each operator, the submission with the highest S_i; the first one on a tie."""
    facts = {problem.name: problem for problem in selection.problems}
    kept: dict[str, str] = {}
    for name, labels in _submissions(evaluations).items():
        scores: dict[str, float] = {}
        for label in labels:
            own = [e for e in evaluations if e.problem == name and e.submission == label]
            judged = [judge(e, SCORED_GATES) for e in own if _counts(e, facts.get(name), own)]
            device = operator_score(judged, "device")
            call = operator_score(judged, "call")
            scores[label] = device if device is not None else call if call is not None else -1.0
        kept[name] = max(labels, key=lambda label: scores[label])
    return tuple(e for e in evaluations if kept[e.problem] == e.submission)


def _counts(
    evaluation: Evaluation, facts: ProblemFacts | None, among: Sequence[Evaluation]
) -> bool:
    """Return whether a workload is in its operator's median.

    At full scale the pack's published workloads are; a run at smoke scale has only its own.
    """
    if facts is None:
        return False
    if any(other.scale is Scale.FULL for other in among):
        return evaluation.scale is Scale.FULL and evaluation.workload in facts.workloads
    return True


def _counted(evaluations: Sequence[Evaluation], selection: Selection) -> Counted:
    contested = _contested(evaluations)
    return {
        facts.name: tuple(
            evaluation
            for evaluation in evaluations
            if evaluation.problem == facts.name and _counts(evaluation, facts, evaluations)
        )
        for facts in selection.problems
        if facts.name not in contested
    }


# -- whether a headline would be honest --------------------------------------------------------


def _reasons(
    evaluations: Sequence[Evaluation], selection: Selection, counted: Counted
) -> Iterator[str]:
    """Yield why there can be no headline, the most telling reason first."""
    if not evaluations:
        yield "nothing was evaluated"
        return
    if selection.weight_sum <= 0:
        yield "the pack gives its operators no weight"
    yield from _mixtures(evaluations, selection)
    if any(evaluation.device.virtual for evaluation in evaluations):
        yield "a virtual device gives no time"
    if any(evaluation.scale is Scale.SMOKE for evaluation in evaluations):
        yield "smoke scale: only production sizes are scored"
    if any(e.bound is not None and e.bound.ceiling is Ceiling.MEASURED for e in evaluations):
        yield "the roof was measured on this machine, and is no published ceiling"
    if selection.is_partial:
        yield "partial selection: only a whole pack is scored"
    if contested := _contested(evaluations):
        yield f"several submissions for {_some(contested)}: by_submission scores each of them"
    yield from _gaps(selection, counted)


def _mixtures(evaluations: Sequence[Evaluation], selection: Selection) -> Iterator[str]:
    kinds: dict[str, set[str]] = {
        "packs": {f"{e.pack.name} {e.pack.version} ({e.pack.digest})" for e in evaluations},
        "protocols": {str(e.protocol) for e in evaluations},
        "backends": {e.backend for e in evaluations},
        "devices": {f"{e.device.vendor} {e.device.name}" for e in evaluations},
        "ceilings": {str(e.bound.ceiling) for e in evaluations if e.bound},
        "profiles": {f"{e.profile} ({e.profile_digest})" for e in evaluations if e.bound},
        "scales": {str(e.scale) for e in evaluations},
    }
    for kind, found in kinds.items():
        if len(found) > 1:
            yield f"mixed {kind}: {_some(sorted(found))}"
    pack = selection.pack
    if any(evaluation.pack != pack for evaluation in evaluations):
        yield f"mixed packs: results are not of {pack.name} {pack.version} ({pack.digest})"
    sources: dict[tuple[str, str], set[str]] = {}
    for evaluation in evaluations:
        key = (evaluation.problem, evaluation.submission)
        sources.setdefault(key, set()).add(evaluation.digest)
    if changed := [f"{p} by {s}" for (p, s), digests in sources.items() if len(digests) > 1]:
        yield f"mixed versions of one submission: {_some(changed)}"


def _gaps(selection: Selection, counted: Counted) -> Iterator[str]:
    evaluated = {name: {e.workload for e in found} for name, found in counted.items()}
    missing = [
        facts.name
        for facts in selection.problems
        if evaluated.get(facts.name) and set(facts.workloads) - evaluated[facts.name]
    ]
    if missing:
        yield f"not every published workload was evaluated: {_some(missing)}"
    for standing, what in (
        (Standing.ERRORED, "errored, which is no fault of the candidate"),
        (Standing.UNMEASURED, "could not be measured"),
    ):
        if found := _standing(counted, SCORED_GATES, standing):
            yield f"{many(len(found), 'workload')} {what}: {_some(found)}"
    if not any(counted.values()):
        yield "no published workload of the pack was evaluated"


def _dsl_reason(counted: Counted) -> str | None:
    for standing in (Standing.ERRORED, Standing.UNMEASURED):
        if found := _standing(counted, DSL_GATES, standing):
            return f"authenticity was not judged for {many(len(found), 'workload')}: {_some(found)}"
    return None


def _standing(counted: Counted, gates: Sequence[Gate], standing: Standing) -> list[str]:
    return [
        f"{name} {evaluation.workload}"
        for name, found in counted.items()
        for evaluation in found
        if judge(evaluation, gates).standing is standing
    ]


def _some(names: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


# -- parts of the summary ----------------------------------------------------------------------


def _scaled(found: Aggregate | None, factor: float) -> Aggregate | None:
    if found is None:
        return None
    values = (found.device, found.call, found.low, found.high)
    device, call, low, high = (None if v is None else v * factor for v in values)
    return evolve(found, device=device, call=call, low=low, high=high)


def _operator(
    facts: ProblemFacts,
    evaluations: Sequence[Evaluation],
    counted: Counted,
    selection: Selection,
) -> OperatorSummary:
    own = [evaluation for evaluation in evaluations if evaluation.problem == facts.name]
    found = counted.get(facts.name, ())
    judged = [judge(evaluation, SCORED_GATES) for evaluation in found]
    dsl = [judge(evaluation, DSL_GATES) for evaluation in found]
    standings = [one.standing for one in judged]
    # An operator that nobody submitted scores 0, if it was asked for.
    missing = 0.0 if not own and not selection.is_partial else None
    total = selection.weight_sum
    shares = [evaluation.adoption.share for evaluation in own if evaluation.adoption]
    return OperatorSummary(
        submissions=_submissions(own).get(facts.name, ()),
        weight=facts.importance,
        normalised_weight=facts.importance / total if total > 0 else 0.0,
        s_device=operator_score(judged, "device") if own else missing,
        s_call=operator_score(judged, "call") if own else missing,
        s_device_dsl=operator_score(dsl, "device") if own else missing,
        s_call_dsl=operator_score(dsl, "call") if own else missing,
        pass_rate=_pass_rate(own),
        adoption_rate=_adoption_rate(own),
        adoption=fmean(shares) if shares else None,
        workloads=len(own),
        published=len(facts.workloads),
        scored=standings.count(Standing.SCORED),
        withheld=standings.count(Standing.WITHHELD),
        unmeasured=standings.count(Standing.UNMEASURED),
        errored=standings.count(Standing.ERRORED),
    )


def _phase(
    phase: Phase,
    selection: Selection,
    counted: Counted,
    withheld: str | None,
    dsl_withheld: str | None,
) -> PhaseSummary:
    wanted = set(Phase) if phase is Phase.BOTH else {phase, Phase.BOTH}
    seen = {
        name: tuple(evaluation for evaluation in found if evaluation.phase in wanted)
        for name, found in counted.items()
    }
    # What was evaluated says by its workloads whether it belongs here; the rest, by its label.
    problems = tuple(
        facts
        for facts in selection.problems
        if (seen[facts.name] if counted.get(facts.name) else wanted & set(facts.phases))
    )
    return PhaseSummary(
        s_agg=None if withheld else aggregate(problems, seen, SCORED_GATES),
        s_agg_dsl=None if dsl_withheld else aggregate(problems, seen, DSL_GATES),
        operators=len(problems),
        weight_sum=sum(facts.importance for facts in problems),
    )


def _by_submission(
    evaluations: Sequence[Evaluation], selection: Selection
) -> dict[str, SubmissionSummary]:
    summaries: dict[str, SubmissionSummary] = {}
    for label in sorted({evaluation.submission for evaluation in evaluations}):
        own = summarise([e for e in evaluations if e.submission == label], selection)
        summaries[label] = SubmissionSummary(
            s_agg=own.s_agg,
            s_agg_dsl=own.s_agg_dsl,
            headline_withheld=own.headline_withheld,
            by_operator=own.by_operator,
        )
    return summaries


def _pass_rate(evaluations: Sequence[Evaluation]) -> float | None:
    """Return how many of the evaluations that were judged are correct."""
    judged = [
        evaluation
        for evaluation in evaluations
        if not any(_says(evaluation, gate, Outcome.ERRORED) for gate in _CORRECT)
        and (
            evaluation.passed(*_CORRECT)
            or any(_says(evaluation, gate, Outcome.FAILED) for gate in _CORRECT)
        )
    ]
    if not judged:
        return None
    return sum(evaluation.passed(*_CORRECT) for evaluation in judged) / len(judged)


def _adoption_rate(evaluations: Sequence[Evaluation]) -> float | None:
    judged = [
        _says(evaluation, Gate.AUTHENTICITY, Outcome.PASSED)
        for evaluation in evaluations
        if evaluation.passed(*_CORRECT)
        and not _says(evaluation, Gate.AUTHENTICITY, Outcome.SKIPPED)
        and not _says(evaluation, Gate.AUTHENTICITY, Outcome.ERRORED)
    ]
    return sum(judged) / len(judged) if judged else None


def _says(evaluation: Evaluation, gate: Gate, outcome: Outcome) -> bool:
    result = evaluation.gates.get(gate)
    return (result.outcome if result else Outcome.SKIPPED) is outcome


def _coverage(evaluations: Sequence[Evaluation], selection: Selection) -> float:
    evaluated = {evaluation.problem for evaluation in evaluations}
    covered = sum(f.importance for f in selection.problems if f.name in evaluated)
    return covered / selection.weight_sum if selection.weight_sum > 0 else 0.0
