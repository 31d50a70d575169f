"""What evaluations add up to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from atrex_core import (
    Adoption,
    Basis,
    Evaluation,
    Gate,
    Origin,
    Outcome,
    Phase,
    Share,
    Weight,
    codec,
)
from atrex_core.scoring import Selection, Summary, summarise

PASS = dict.fromkeys(Gate, Outcome.PASSED)
UNAUTHENTIC = {**PASS, Gate.AUTHENTICITY: Outcome.FAILED}
WRONG = {Gate.COMPILE: Outcome.PASSED, Gate.CORRECTNESS: Outcome.FAILED}


# -- the score ---------------------------------------------------------------------------------


def test_a_whole_pack_is_the_weighted_sum_of_medians(
    complete: Any, headline: Any, whole: Selection
) -> None:
    summary = summarise(complete(), whole)

    # 0.6 * 0.8 + 0.2 * 0.5 + 0.2 * 0.2
    assert headline(summary).device == pytest.approx(0.62)
    assert headline(summary).call == pytest.approx(0.31)
    assert summary.s_agg_dsl == summary.s_agg
    assert summary.dsl_withheld is None
    assert summary.pass_rate == 1.0
    assert summary.adoption_rate == 1.0
    assert summary.coverage == 1.0
    assert summary.seconds == 12.0


def test_weights_are_normalised_and_both_figures_are_shown(
    evaluation: Any, headline: Any, facts: Any, whole: Selection
) -> None:
    heavy = Selection(
        pack=whole.pack, problems=(facts("gemm", 1.5, "g1"), facts("norm", 0.5, "n1"))
    )
    found = [evaluation("gemm", "g1", 0.8), evaluation("norm", "n1", 0.4)]
    summary = summarise(found, heavy)

    assert summary.weight_sum == pytest.approx(2.0)
    assert headline(summary).device == pytest.approx(0.7)
    assert summary.paper_unnormalised is not None
    assert summary.paper_unnormalised.device == pytest.approx(1.4)
    assert summary.by_operator["gemm"].weight == 1.5
    assert summary.by_operator["gemm"].normalised_weight == pytest.approx(0.75)


def test_a_missing_operator_scores_zero(complete: Any, headline: Any, whole: Selection) -> None:
    summary = summarise([e for e in complete() if e.problem != "gemm"], whole)

    assert headline(summary).device == pytest.approx(0.14)
    assert summary.by_operator["gemm"].s_device == 0.0
    assert summary.by_operator["gemm"].workloads == 0
    assert summary.coverage == pytest.approx(0.4)


def test_a_failed_workload_scores_zero_in_the_median(
    complete: Any, evaluation: Any, headline: Any, whole: Selection
) -> None:
    found = [e for e in complete() if e.workload not in ("g2", "g3")]
    found += [evaluation("gemm", w, gates=WRONG) for w in ("g2", "g3")]
    summary = summarise(found, whole)

    assert summary.by_operator["gemm"].s_device == 0.0
    assert summary.by_operator["gemm"].scored == 3
    assert headline(summary).device == pytest.approx(0.14)
    assert summary.pass_rate == pytest.approx(4 / 6)


def test_fallbacks_are_the_difference_between_the_two_headlines(
    complete: Any, evaluation: Any, headline: Any, whole: Selection
) -> None:
    found = [e for e in complete() if e.problem != "gemm"]
    found += [evaluation("gemm", w, 0.8, gates=UNAUTHENTIC) for w in ("g1", "g2", "g3")]
    summary = summarise(found, whole)

    assert headline(summary).device == pytest.approx(0.62)
    assert summary.s_agg_dsl is not None
    assert summary.s_agg_dsl.device == pytest.approx(0.14)
    assert summary.adoption_rate == 0.5
    assert summary.by_operator["gemm"].s_device == pytest.approx(0.8)
    assert summary.by_operator["gemm"].s_device_dsl == 0.0
    assert summary.by_operator["gemm"].adoption_rate == 0.0


def test_adoption_is_the_mean_over_what_was_measured(
    complete: Any, evaluation: Any, whole: Selection
) -> None:
    found = complete()
    found[3:5] = [
        evaluation("norm", "n1", adoption=Adoption(share=0.9, basis="measured")),
        evaluation("norm", "n2", adoption=Adoption(share=0.7, basis="measured")),
    ]
    summary = summarise(found, whole)

    assert summary.by_operator["norm"].adoption == pytest.approx(0.8)
    assert summary.by_operator["sort"].adoption is None


def test_added_workloads_affect_the_pass_rate_only(
    complete: Any, evaluation: Any, headline: Any, whole: Selection
) -> None:
    added = [
        evaluation("norm", f"x{n}", 0.01, gates=gates, origin=Origin.ADDED)
        for n, gates in enumerate((PASS, WRONG))
    ]
    summary = summarise([*complete(), *added], whole)

    assert headline(summary).device == pytest.approx(0.62)
    assert summary.pass_rate == pytest.approx(7 / 8)
    assert summary.by_operator["norm"].workloads == 4
    assert summary.by_operator["norm"].scored == 2


def test_a_roofline_violation_is_left_out_of_the_median(
    complete: Any, evaluation: Any, headline: Any, whole: Selection
) -> None:
    found = [e for e in complete() if e.workload != "g3"]
    found.append(evaluation("gemm", "g3", 3.0, 2.0, flags=("roofline_violation",)))
    summary = summarise(found, whole)

    assert summary.by_operator["gemm"].s_device == pytest.approx(0.75)
    assert (summary.by_operator["gemm"].scored, summary.by_operator["gemm"].withheld) == (2, 1)
    assert headline(summary).device == pytest.approx(0.6 * 0.75 + 0.14)


def test_a_violation_whose_gate_was_not_judged_does_not_withhold_the_headline(
    complete: Any, evaluation: Any, headline: Any, whole: Selection
) -> None:
    gates = {**PASS, Gate.PERFORMANCE: Outcome.SKIPPED}
    found = [e for e in complete() if e.workload != "g3"]
    found.append(
        evaluation(
            "gemm",
            "g3",
            gates=gates,
            flags=("roofline_violation",),
            share_of_roofline=Share(device=3.0, call=2.0),
        )
    )
    summary = summarise(found, whole)

    assert summary.by_operator["gemm"].withheld == 1
    assert summary.by_operator["gemm"].unmeasured == 0
    assert headline(summary).device == pytest.approx(0.6 * 0.75 + 0.14)


def test_a_violation_that_answers_wrongly_scores_zero(
    complete: Any, evaluation: Any, whole: Selection
) -> None:
    found = [e for e in complete() if e.problem != "sort"]
    found.append(evaluation("sort", "s1", gates=WRONG, flags=("roofline_violation",)))

    assert summarise(found, whole).by_operator["sort"].s_device == 0.0


def test_an_operator_of_violations_alone_scores_zero(
    complete: Any, evaluation: Any, headline: Any, whole: Selection
) -> None:
    found = [e for e in complete() if e.problem != "sort"]
    found.append(evaluation("sort", "s1", 2.0, 2.0, flags=("roofline_violation",)))
    summary = summarise(found, whole)

    assert summary.by_operator["sort"].s_device is None
    assert headline(summary).device == pytest.approx(0.58)


def test_a_share_slightly_above_one_is_kept(
    complete: Any, evaluation: Any, whole: Selection
) -> None:
    found = [e for e in complete() if e.problem != "sort"]
    found.append(evaluation("sort", "s1", 1.04, flags=("above_roofline",)))

    assert summarise(found, whole).by_operator["sort"].s_device == 1.04


def test_a_clock_that_gave_no_time_has_no_figure(
    complete: Any, evaluation: Any, headline: Any, whole: Selection
) -> None:
    found = [
        evaluation(e.problem, e.workload, None, e.share_of_roofline.call)
        for e in complete()
        if e.share_of_roofline
    ]
    summary = summarise(found, whole)

    assert headline(summary).device is None
    assert headline(summary).call == pytest.approx(0.31)
    assert headline(summary).low is not None


def test_a_clock_that_missed_one_workload_counts_zero_there(
    complete: Any, evaluation: Any, headline: Any, whole: Selection
) -> None:
    found = [e for e in complete() if e.problem != "sort"]
    found.append(evaluation("sort", "s1", None, 0.1))
    summary = summarise(found, whole)

    assert headline(summary).device == pytest.approx(0.58)
    assert headline(summary).call == pytest.approx(0.31)


def test_shape_weighted_takes_the_mean_over_workloads(
    evaluation: Any, headline: Any, whole: Selection
) -> None:
    found = [evaluation("gemm", w, s) for w, s in (("g1", 0.1), ("g2", 0.2), ("g3", 0.9))]
    summary = summarise(found, whole)

    assert summary.s_agg_shape_weighted is not None
    assert summary.s_agg_shape_weighted.device == pytest.approx(0.6 * 0.4)
    assert summary.shape_weights == {"observed": 0.0, "derived": 0.0, "uniform": 1.0}
    assert headline(summary).device == pytest.approx(0.6 * 0.2)


def test_shape_weights_are_the_problems_own(evaluation: Any, whole: Selection) -> None:
    gemm, *others = whole.problems
    weights = {
        "g1": Weight(share=0.5, basis=Basis.OBSERVED),
        "g2": Weight(share=0.3, basis=Basis.DERIVED),
        "g3": Weight(share=0.2, basis=Basis.UNIFORM),
    }
    weighted = evolve(whole, problems=(evolve(gemm, weights=weights), *others))
    found = [evaluation("gemm", w, s) for w, s in (("g1", 0.1), ("g2", 0.2), ("g3", 0.9))]

    summary = summarise(found, weighted)

    assert summary.s_agg_shape_weighted is not None
    assert summary.s_agg_shape_weighted.device == pytest.approx(0.6 * (0.05 + 0.06 + 0.18))
    assert summary.s_agg is not None
    assert summary.s_agg.device == pytest.approx(0.6 * 0.2)  # the median is not weighted
    assert summary.shape_weights == pytest.approx(
        {"observed": 0.6 * 0.5, "derived": 0.6 * 0.3, "uniform": 0.6 * 0.2 + 0.4}
    )


def test_workloads_without_weight_count_the_same(evaluation: Any, whole: Selection) -> None:
    gemm, *others = whole.problems
    nothing = dict.fromkeys(gemm.workloads, Weight(share=0.0, basis=Basis.OBSERVED))
    weighted = evolve(whole, problems=(evolve(gemm, weights=nothing), *others))
    found = [evaluation("gemm", w, s) for w, s in (("g1", 0.1), ("g2", 0.2), ("g3", 0.9))]

    summary = summarise(found, weighted)

    assert summary.s_agg_shape_weighted is not None
    assert summary.s_agg_shape_weighted.device == pytest.approx(0.6 * 0.4)


# -- the interval ------------------------------------------------------------------------------


def test_the_interval_encloses_the_score_and_repeats(
    complete: Any, headline: Any, whole: Selection
) -> None:
    first, second = summarise(complete(), whole), summarise(complete()[::-1], whole)
    found = headline(first)

    assert found.low is not None
    assert found.high is not None
    # From every operator's worst workload to every one's best.
    assert 0.6 * 0.7 + 0.2 * 0.4 + 0.04 <= found.low < 0.62 < found.high <= 0.6 * 0.9 + 0.16
    assert (headline(second).low, headline(second).high) == (found.low, found.high)


def test_equal_workloads_leave_no_interval(
    evaluation: Any, headline: Any, whole: Selection
) -> None:
    found = [evaluation(f.name, workload, 0.5) for f in whole.problems for workload in f.workloads]
    score = headline(summarise(found, whole))

    assert (score.device, score.low, score.high) == pytest.approx((0.5, 0.5, 0.5))


def test_the_interval_narrows_with_more_workloads(
    evaluation: Any, headline: Any, facts: Any, whole: Selection
) -> None:
    widths = []
    for count in (4, 64):
        names = [f"w{n}" for n in range(count)]
        pack = Selection(pack=whole.pack, problems=(facts("op", 1.0, *names),))
        found = [evaluation("op", w, 0.1 + 0.8 * n / count) for n, w in enumerate(names)]
        score = headline(summarise(found, pack))
        assert score.low is not None
        assert score.high is not None
        widths.append(score.high - score.low)

    assert widths[1] < widths[0] / 2


def test_a_pack_of_440_workloads_is_scored(
    evaluation: Any, headline: Any, facts: Any, whole: Selection
) -> None:
    names = [f"w{n}" for n in range(15)]
    problems = tuple(facts(f"op{n}", 0.03, *names) for n in range(30))
    found = [evaluation(p.name, w, 0.1 + n / 40) for p in problems for n, w in enumerate(names)]
    summary = summarise(found, Selection(pack=whole.pack, problems=problems))

    assert headline(summary).device == pytest.approx(0.1 + 7 / 40)


# -- phases ------------------------------------------------------------------------------------


def test_phases_count_their_own_workloads_and_those_of_both(
    evaluation: Any, whole: Selection
) -> None:
    found = [
        evaluation("gemm", "g1", 0.9, phase=Phase.PREFILL),
        evaluation("gemm", "g2", 0.5, phase=Phase.DECODE),
        evaluation("gemm", "g3", 0.3, phase=Phase.DECODE),
        evaluation("norm", "n1", 0.4, phase=Phase.BOTH),
        evaluation("norm", "n2", 0.4, phase=Phase.BOTH),
    ]
    by_phase = summarise(found, whole).by_phase
    scores = {name: phase.s_agg.device for name, phase in by_phase.items() if phase.s_agg}

    # Nobody submitted sort, a decode operator: its weight counts there and not in prefill.
    assert scores == pytest.approx(
        {
            "prefill": (0.6 * 0.9 + 0.2 * 0.4) / 0.8,
            "decode": 0.6 * 0.4 + 0.2 * 0.4,
            "both": 0.6 * 0.5 + 0.2 * 0.4,
        }
    )
    assert {name: phase.operators for name, phase in by_phase.items()} == {
        "prefill": 2,
        "decode": 3,
        "both": 3,
    }
    assert by_phase["prefill"].weight_sum == pytest.approx(0.8)
    assert by_phase["prefill"].weights == "derived"


# -- several results for one operator ----------------------------------------------------------


def test_the_later_result_counts_and_not_the_better_one(
    complete: Any, evaluation: Any, whole: Selection
) -> None:
    again = evaluation("sort", "s1", 0.1, 0.1, started_at="2026-01-02T00:00:00+00:00")
    earlier = evaluation("sort", "s1", 0.9, 0.9, started_at="2025-01-01T00:00:00+00:00")
    summary = summarise([again, *complete(), earlier], whole)

    assert summary.by_operator["sort"].s_device == 0.1
    assert summary.by_operator["sort"].workloads == 1


@pytest.fixture
def contested(complete: Any, evaluation: Any) -> list[Evaluation]:
    """Return the whole pack's evaluations, and one operator's of another submission."""
    return [*complete(), evaluation("sort", "s1", 0.6, 0.3, submission="theirs", digest="t")]


def test_several_submissions_are_scored_apart(
    contested: list[Evaluation], whole: Selection
) -> None:
    summary = summarise(contested, whole)

    assert summary.headline_withheld == (
        "several submissions for sort: by_submission scores each of them"
    )
    assert summary.by_operator["sort"].submissions == ("mine", "theirs")
    assert summary.by_operator["sort"].s_device is None
    assert summary.by_operator["gemm"].s_device == pytest.approx(0.8)
    scores = {name: one.s_agg.device for name, one in summary.by_submission.items() if one.s_agg}
    assert scores == pytest.approx({"mine": 0.62, "theirs": 0.12})


def test_best_of_takes_the_better_submission_when_asked(
    contested: list[Evaluation], headline: Any, whole: Selection
) -> None:
    summary = summarise(contested, whole, best_of=True)

    assert summary.best_of
    assert headline(summary).device == pytest.approx(0.62 + 0.2 * 0.4)
    assert summary.by_operator["sort"].submissions == ("theirs",)
    assert summary.by_submission == {}


def test_different_labels_for_different_operators_are_one_set(
    complete: Any, evaluation: Any, headline: Any, whole: Selection
) -> None:
    found = [
        evaluation(e.problem, e.workload, e.share_of_roofline.device, submission=e.problem)
        for e in complete()
        if e.share_of_roofline
    ]

    assert headline(summarise(found, whole)).device == pytest.approx(0.62)


# -- as JSON -----------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["whole", "contested", "none"])
def test_a_summary_survives_json(
    which: str, complete: Any, contested: list[Evaluation], whole: Selection
) -> None:
    found = {"whole": complete(), "contested": contested, "none": []}[which]
    summary = summarise(found, whole)
    plain = json.loads(codec.dumps(summary))

    assert codec.loads(codec.dumps(summary), Summary) == summary
    assert set(plain["by_phase"]) == {"prefill", "decode", "both"}
    assert plain["headline_withheld"] == summary.headline_withheld
