"""What evaluations add up to."""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any

import pytest

from atrex_core import (
    Adoption,
    Bound,
    Ceiling,
    Device,
    Evaluation,
    Gate,
    GateResult,
    Isolation,
    Limiter,
    Origin,
    Outcome,
    Pack,
    Phase,
    Protocol,
    Scale,
    Share,
    codec,
)
from atrex_core.scoring import Aggregate, ProblemFacts, Selection, Summary, summarise

PACK = Pack(name="pack", version="1", digest="d1")
DEVICE = Device(id="gpu:0", accelerator="gpu", vendor="acme", name="Anvil 2", arch="anvil2")
PASS = dict.fromkeys(Gate, Outcome.PASSED)
UNAUTHENTIC = {**PASS, Gate.AUTHENTICITY: Outcome.FAILED}
WRONG = {Gate.COMPILE: Outcome.PASSED, Gate.CORRECTNESS: Outcome.FAILED}


def facts(
    name: str,
    importance: float,
    *workloads: str,
    phases: tuple[Phase, ...] = (Phase.PREFILL, Phase.DECODE),
) -> ProblemFacts:
    return ProblemFacts(name=name, importance=importance, phases=phases, workloads=workloads)


GEMM = facts("gemm", 0.6, "g1", "g2", "g3")
NORM = facts("norm", 0.2, "n1", "n2")
SORT = facts("sort", 0.2, "s1", phases=(Phase.DECODE,))
WHOLE = Selection(pack=PACK, problems=(GEMM, NORM, SORT))


def evaluation(
    problem: str,
    workload: str,
    by_device: float | None = 0.5,
    by_call: float | None = 0.25,
    gates: dict[Gate, Outcome] | None = None,
    **changes: Any,
) -> Evaluation:
    outcomes = PASS if gates is None else gates
    timed = outcomes.get(Gate.PERFORMANCE) is Outcome.PASSED
    fields: dict[str, Any] = {
        "id": f"{problem}-{workload}",
        "submission": "mine",
        "candidate": f"{problem}.py",
        "digest": problem,
        "pack": PACK,
        "problem": problem,
        "workload": workload,
        "phase": Phase.BOTH,
        "origin": Origin.PUBLISHED,
        "scale": Scale.FULL,
        "backend": "dsl",
        "accelerator": "gpu",
        "device": DEVICE,
        "target": "anvil2",
        "profile": "anvil-2",
        "profile_digest": "p1",
        "protocol": Protocol.STRICT,
        "isolation": Isolation.PROCESS,
        "gates": {
            gate: GateResult(
                outcome=outcome, reason=None if outcome is Outcome.PASSED else "because"
            )
            for gate, outcome in outcomes.items()
        },
        "bound": Bound(t_sol_us=1.0, limiter=Limiter.MEMORY, ceiling=Ceiling.SPEC),
        "share_of_roofline": Share(device=by_device, call=by_call) if timed else None,
        "seconds": 2.0,
        "started_at": "2026-01-01T00:00:00+00:00",
    }
    return Evaluation(**{**fields, **changes})


def complete(**changes: Any) -> list[Evaluation]:
    """gemm 0.8, norm 0.5, sort 0.2 by device time; half of each by the call clock."""
    shares = {
        "gemm": {"g1": 0.7, "g2": 0.8, "g3": 0.9},
        "norm": {"n1": 0.4, "n2": 0.6},
        "sort": {"s1": 0.2},
    }
    return [
        evaluation(problem, workload, share, share / 2, **changes)
        for problem, found in shares.items()
        for workload, share in found.items()
    ]


def headline(summary: Summary) -> Aggregate:
    assert summary.headline_withheld is None
    assert summary.s_agg is not None
    return summary.s_agg


# -- the score ---------------------------------------------------------------------------------


def test_a_whole_pack_is_the_weighted_sum_of_medians() -> None:
    summary = summarise(complete(), WHOLE)

    # 0.6 * 0.8 + 0.2 * 0.5 + 0.2 * 0.2
    assert headline(summary).device == pytest.approx(0.62)
    assert headline(summary).call == pytest.approx(0.31)
    assert summary.s_agg_dsl == summary.s_agg
    assert summary.dsl_withheld is None
    assert summary.pass_rate == 1.0
    assert summary.adoption_rate == 1.0
    assert summary.coverage == 1.0
    assert summary.seconds == 12.0


def test_weights_are_normalised_and_both_figures_are_shown() -> None:
    heavy = Selection(pack=PACK, problems=(facts("gemm", 1.5, "g1"), facts("norm", 0.5, "n1")))
    found = [evaluation("gemm", "g1", 0.8), evaluation("norm", "n1", 0.4)]
    summary = summarise(found, heavy)

    assert summary.weight_sum == pytest.approx(2.0)
    assert headline(summary).device == pytest.approx(0.7)
    assert summary.paper_unnormalised is not None
    assert summary.paper_unnormalised.device == pytest.approx(1.4)
    assert summary.by_operator["gemm"].weight == 1.5
    assert summary.by_operator["gemm"].normalised_weight == pytest.approx(0.75)


def test_a_missing_operator_scores_zero() -> None:
    summary = summarise([e for e in complete() if e.problem != "gemm"], WHOLE)

    assert headline(summary).device == pytest.approx(0.14)
    assert summary.by_operator["gemm"].s_device == 0.0
    assert summary.by_operator["gemm"].workloads == 0
    assert summary.coverage == pytest.approx(0.4)


def test_a_failed_workload_scores_zero_in_the_median() -> None:
    found = [e for e in complete() if e.workload not in ("g2", "g3")]
    found += [evaluation("gemm", w, gates=WRONG) for w in ("g2", "g3")]
    summary = summarise(found, WHOLE)

    assert summary.by_operator["gemm"].s_device == 0.0
    assert summary.by_operator["gemm"].scored == 3
    assert headline(summary).device == pytest.approx(0.14)
    assert summary.pass_rate == pytest.approx(4 / 6)


def test_fallbacks_are_the_difference_between_the_two_headlines() -> None:
    found = [e for e in complete() if e.problem != "gemm"]
    found += [evaluation("gemm", w, 0.8, gates=UNAUTHENTIC) for w in GEMM.workloads]
    summary = summarise(found, WHOLE)

    assert headline(summary).device == pytest.approx(0.62)
    assert summary.s_agg_dsl is not None
    assert summary.s_agg_dsl.device == pytest.approx(0.14)
    assert summary.adoption_rate == 0.5
    assert summary.by_operator["gemm"].s_device == pytest.approx(0.8)
    assert summary.by_operator["gemm"].s_device_dsl == 0.0
    assert summary.by_operator["gemm"].adoption_rate == 0.0


def test_adoption_is_the_mean_over_what_was_measured() -> None:
    found = complete()
    found[3:5] = [
        evaluation("norm", "n1", adoption=Adoption(share=0.9, basis="measured")),
        evaluation("norm", "n2", adoption=Adoption(share=0.7, basis="measured")),
    ]
    summary = summarise(found, WHOLE)

    assert summary.by_operator["norm"].adoption == pytest.approx(0.8)
    assert summary.by_operator["sort"].adoption is None


def test_added_workloads_affect_the_pass_rate_only() -> None:
    added = [
        evaluation("norm", f"x{n}", 0.01, gates=gates, origin=Origin.ADDED)
        for n, gates in enumerate((PASS, WRONG))
    ]
    summary = summarise([*complete(), *added], WHOLE)

    assert headline(summary).device == pytest.approx(0.62)
    assert summary.pass_rate == pytest.approx(7 / 8)
    assert summary.by_operator["norm"].workloads == 4
    assert summary.by_operator["norm"].scored == 2


def test_a_roofline_violation_is_left_out_of_the_median() -> None:
    found = [e for e in complete() if e.workload != "g3"]
    found.append(evaluation("gemm", "g3", 3.0, 2.0, flags=("roofline_violation",)))
    summary = summarise(found, WHOLE)

    assert summary.by_operator["gemm"].s_device == pytest.approx(0.75)
    assert (summary.by_operator["gemm"].scored, summary.by_operator["gemm"].withheld) == (2, 1)
    assert headline(summary).device == pytest.approx(0.6 * 0.75 + 0.14)


def test_an_operator_of_violations_alone_scores_zero() -> None:
    found = [e for e in complete() if e.problem != "sort"]
    found.append(evaluation("sort", "s1", 2.0, 2.0, flags=("roofline_violation",)))
    summary = summarise(found, WHOLE)

    assert summary.by_operator["sort"].s_device is None
    assert headline(summary).device == pytest.approx(0.58)


def test_a_share_slightly_above_one_is_kept() -> None:
    found = [e for e in complete() if e.problem != "sort"]
    found.append(evaluation("sort", "s1", 1.04, flags=("above_sol_within_tolerance",)))

    assert summarise(found, WHOLE).by_operator["sort"].s_device == 1.04


def test_a_clock_that_gave_no_time_has_no_figure() -> None:
    found = [
        evaluation(e.problem, e.workload, None, e.share_of_roofline.call)
        for e in complete()
        if e.share_of_roofline
    ]
    summary = summarise(found, WHOLE)

    assert headline(summary).device is None
    assert headline(summary).call == pytest.approx(0.31)
    assert headline(summary).low is not None


def test_a_clock_that_missed_one_workload_counts_zero_there() -> None:
    found = [e for e in complete() if e.problem != "sort"]
    found.append(evaluation("sort", "s1", None, 0.1))
    summary = summarise(found, WHOLE)

    assert headline(summary).device == pytest.approx(0.58)
    assert headline(summary).call == pytest.approx(0.31)


def test_shape_weighted_takes_the_mean_over_workloads() -> None:
    found = [evaluation("gemm", w, s) for w, s in (("g1", 0.1), ("g2", 0.2), ("g3", 0.9))]
    summary = summarise(found, WHOLE)

    assert summary.s_agg_shape_weighted is not None
    assert summary.s_agg_shape_weighted.device == pytest.approx(0.6 * 0.4)
    assert summary.shape_weights == "uniform"
    assert headline(summary).device == pytest.approx(0.6 * 0.2)


# -- the interval ------------------------------------------------------------------------------


def test_the_interval_encloses_the_score_and_repeats() -> None:
    first, second = summarise(complete(), WHOLE), summarise(complete()[::-1], WHOLE)
    found = headline(first)

    assert found.low is not None
    assert found.high is not None
    # From every operator's worst workload to every one's best.
    assert 0.6 * 0.7 + 0.2 * 0.4 + 0.04 <= found.low < 0.62 < found.high <= 0.6 * 0.9 + 0.16
    assert (headline(second).low, headline(second).high) == (found.low, found.high)


def test_equal_workloads_leave_no_interval() -> None:
    found = [evaluation(f.name, workload, 0.5) for f in WHOLE.problems for workload in f.workloads]
    score = headline(summarise(found, WHOLE))

    assert (score.device, score.low, score.high) == pytest.approx((0.5, 0.5, 0.5))


def test_the_interval_narrows_with_more_workloads() -> None:
    widths = []
    for count in (4, 64):
        names = [f"w{n}" for n in range(count)]
        pack = Selection(pack=PACK, problems=(facts("op", 1.0, *names),))
        found = [evaluation("op", w, 0.1 + 0.8 * n / count) for n, w in enumerate(names)]
        score = headline(summarise(found, pack))
        assert score.low is not None
        assert score.high is not None
        widths.append(score.high - score.low)

    assert widths[1] < widths[0] / 2


def test_a_pack_of_440_workloads_is_scored_in_seconds() -> None:
    names = [f"w{n}" for n in range(15)]
    problems = tuple(facts(f"op{n}", 0.03, *names) for n in range(30))
    found = [evaluation(p.name, w, 0.1 + n / 40) for p in problems for n, w in enumerate(names)]
    start_s = perf_counter()
    summary = summarise(found, Selection(pack=PACK, problems=problems))

    assert headline(summary).device == pytest.approx(0.1 + 7 / 40)
    assert perf_counter() - start_s < 5


# -- phases ------------------------------------------------------------------------------------


def test_phases_count_their_own_workloads_and_those_of_both() -> None:
    found = [
        evaluation("gemm", "g1", 0.9, phase=Phase.PREFILL),
        evaluation("gemm", "g2", 0.5, phase=Phase.DECODE),
        evaluation("gemm", "g3", 0.3, phase=Phase.DECODE),
        evaluation("norm", "n1", 0.4, phase=Phase.BOTH),
        evaluation("norm", "n2", 0.4, phase=Phase.BOTH),
    ]
    by_phase = summarise(found, WHOLE).by_phase
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


def test_the_later_result_counts_and_not_the_better_one() -> None:
    again = evaluation("sort", "s1", 0.1, 0.1, started_at="2026-01-02T00:00:00+00:00")
    earlier = evaluation("sort", "s1", 0.9, 0.9, started_at="2025-01-01T00:00:00+00:00")
    summary = summarise([again, *complete(), earlier], WHOLE)

    assert summary.by_operator["sort"].s_device == 0.1
    assert summary.by_operator["sort"].workloads == 1


def contested() -> list[Evaluation]:
    return [*complete(), evaluation("sort", "s1", 0.6, 0.3, submission="theirs", digest="t")]


def test_several_submissions_are_scored_apart() -> None:
    summary = summarise(contested(), WHOLE)

    assert summary.headline_withheld == (
        "several submissions for sort: by_submission scores each of them"
    )
    assert summary.by_operator["sort"].submissions == ("mine", "theirs")
    assert summary.by_operator["sort"].s_device is None
    assert summary.by_operator["gemm"].s_device == pytest.approx(0.8)
    scores = {name: one.s_agg.device for name, one in summary.by_submission.items() if one.s_agg}
    assert scores == pytest.approx({"mine": 0.62, "theirs": 0.12})


def test_best_of_takes_the_better_submission_when_asked() -> None:
    summary = summarise(contested(), WHOLE, best_of=True)

    assert summary.best_of
    assert headline(summary).device == pytest.approx(0.62 + 0.2 * 0.4)
    assert summary.by_operator["sort"].submissions == ("theirs",)
    assert summary.by_submission == {}


def test_different_labels_for_different_operators_are_one_set() -> None:
    found = [
        evaluation(e.problem, e.workload, e.share_of_roofline.device, submission=e.problem)
        for e in complete()
        if e.share_of_roofline
    ]

    assert headline(summarise(found, WHOLE)).device == pytest.approx(0.62)


# -- as JSON -----------------------------------------------------------------------------------


@pytest.mark.parametrize("found", [complete(), contested(), []], ids=["whole", "contested", "none"])
def test_a_summary_survives_json(found: list[Evaluation]) -> None:
    summary = summarise(found, WHOLE)
    plain = json.loads(codec.dumps(summary))

    assert codec.loads(codec.dumps(summary), Summary) == summary
    assert set(plain["by_phase"]) == {"prefill", "decode", "both"}
    assert plain["headline_withheld"] == summary.headline_withheld
