"""When there is no headline, and what is shown nevertheless."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve

from atrex_core import (
    Basis,
    Bound,
    Ceiling,
    Device,
    Gate,
    Limiter,
    Origin,
    Outcome,
    Pack,
    Phase,
    Scale,
    Weight,
    Workload,
)
from atrex_core.scoring import Selection, summarise

PASS = dict.fromkeys(Gate, Outcome.PASSED)
WRONG = {Gate.COMPILE: Outcome.PASSED, Gate.CORRECTNESS: Outcome.FAILED}
UNTIMED = {**PASS, Gate.PERFORMANCE: Outcome.SKIPPED, Gate.AUTHENTICITY: Outcome.SKIPPED}
UNJUDGED = {**PASS, Gate.AUTHENTICITY: Outcome.SKIPPED}
BROKEN = {Gate.COMPILE: Outcome.PASSED, Gate.CORRECTNESS: Outcome.ERRORED}
CPU_ROOF = Bound(t_sol_us=1.0, limiter=Limiter.MEMORY, ceiling=Ceiling.MEASURED)
OTHER_PACK = Pack(name="pack", version="2", digest="d2")
VIRTUAL = Device(
    id="virtual:anvil2", accelerator="v", vendor="acme", name="v", arch="anvil2", virtual=True
)
OTHER_DEVICE = Device(id="gpu:0", accelerator="gpu", vendor="acme", name="Anvil 3", arch="anvil3")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scale": Scale.SMOKE}, "smoke scale"),
        ({"bound": CPU_ROOF}, "the roof was measured on this machine"),
        ({"device": VIRTUAL}, "a virtual device gives no time"),
        ({"pack": OTHER_PACK}, "mixed packs: results are not of pack 1 (d1)"),
    ],
    ids=["smoke", "measured", "virtual", "pack"],
)
def test_no_headline(changes: dict[str, Any], reason: str, complete: Any, whole: Selection) -> None:
    summary = summarise(complete(**changes), whole)

    assert summary.headline_withheld is not None
    assert summary.headline_withheld.startswith(reason)
    assert summary.s_agg is None
    assert summary.s_agg_dsl is None
    assert summary.paper_unnormalised is None
    assert summary.s_agg_shape_weighted is None
    assert all(phase.s_agg is None for phase in summary.by_phase.values())


@pytest.mark.parametrize(
    ("gates", "reason"),
    [
        (UNTIMED, "6 workloads could not be measured: gemm g1"),
        (BROKEN, "6 workloads errored, which is no fault of the candidate: gemm g1"),
    ],
    ids=["untimed", "errored"],
)
def test_what_nobody_failed_is_no_zero(
    gates: dict[Gate, Outcome], reason: str, complete: Any, evaluation: Any, whole: Selection
) -> None:
    found = [evaluation(e.problem, e.workload, gates=gates) for e in complete()]
    summary = summarise(found, whole)

    assert summary.headline_withheld == f"{reason}, gemm g2, gemm g3 and 3 more"
    assert summary.by_operator["gemm"].s_device is None


def test_unpublished_workloads_alone_have_no_headline(evaluation: Any, whole: Selection) -> None:
    found = [evaluation("norm", "elsewhere")]

    assert summarise(found, whole).headline_withheld == (
        "no published workload of the pack was evaluated"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bound": CPU_ROOF}, "mixed ceilings: measured, spec"),
        ({"pack": OTHER_PACK}, "mixed packs: pack 1 (d1), pack 2 (d2)"),
        ({"device": OTHER_DEVICE}, "mixed devices: acme Anvil 2, acme Anvil 3"),
        ({"backend": "other"}, "mixed backends: dsl, other"),
        ({"profile_digest": "p2"}, "mixed profiles: anvil-2 (p1), anvil-2 (p2)"),
        ({"scale": Scale.SMOKE}, "mixed scales: full, smoke"),
        ({"digest": "edited"}, "mixed versions of one submission: norm by mine"),
    ],
    ids=["ceilings", "packs", "devices", "backends", "profiles", "scales", "versions"],
)
def test_mixed_results_have_no_headline(
    changes: dict[str, Any], reason: str, complete: Any, evaluation: Any, whole: Selection
) -> None:
    found = [e for e in complete() if e.workload != "n1"]
    summary = summarise([*found, evaluation("norm", "n1", **changes)], whole)

    assert summary.headline_withheld == reason


class Stub:
    """As much of a problem as a selection looks at."""

    name = "op"
    importance = 0.3
    phases = (Phase.DECODE,)

    def __init__(self, pack: Pack) -> None:
        self.pack = pack

    def workload_weights(self) -> dict[str, Weight]:
        return {"one": Weight(share=1.0, basis=Basis.DERIVED)}

    def select(self, scale: Scale) -> list[Workload]:
        return [
            Workload(id="one", axes={}, scale=scale),
            Workload(id="two", axes={}, scale=scale, origin=Origin.ADDED),
        ]


def test_a_selection_takes_one_packs_published_workloads(facts: Any, whole: Selection) -> None:
    selection = Selection.of(whole.pack, [Stub(whole.pack), Stub(OTHER_PACK)])  # type: ignore[list-item]

    expected = facts("op", 0.3, "one", phases=(Phase.DECODE,))
    weights = {"one": Weight(share=1.0, basis=Basis.DERIVED)}
    assert selection == Selection(pack=whole.pack, problems=(evolve(expected, weights=weights),))
    assert selection.weight_sum == 0.3


def test_nothing_has_no_headline(whole: Selection) -> None:
    summary = summarise([], whole)

    assert summary.headline_withheld == "nothing was evaluated"
    assert summary.pass_rate is None
    assert summary.adoption_rate is None
    assert summary.coverage == 0.0


def test_a_partial_selection_has_no_headline(complete: Any, whole: Selection) -> None:
    partial = Selection(pack=whole.pack, problems=whole.problems, is_partial=True)
    summary = summarise([e for e in complete() if e.problem == "gemm"], partial)

    assert summary.headline_withheld == "partial selection: only a whole pack is scored"
    assert summary.by_operator["gemm"].s_device == pytest.approx(0.8)
    assert summary.by_operator["norm"].s_device is None


def test_an_interrupted_run_has_no_headline(complete: Any, whole: Selection) -> None:
    summary = summarise(complete()[:-2], whole)

    assert summary.headline_withheld == "not every published workload was evaluated: norm"


def test_unjudged_authenticity_withholds_the_second_headline_only(
    complete: Any, evaluation: Any, headline: Any, whole: Selection
) -> None:
    found = [e for e in complete() if e.problem != "sort"]
    found.append(evaluation("sort", "s1", 0.2, gates=UNJUDGED))
    summary = summarise(found, whole)

    assert headline(summary).device == pytest.approx(0.62)
    assert summary.s_agg_dsl is None
    assert summary.dsl_withheld == "authenticity was not judged for 1 workload: sort s1"


def test_smoke_and_measured_roofs_still_fill_the_operators(
    evaluation: Any, whole: Selection
) -> None:
    found = [
        evaluation("norm", w, s, s / 2, scale=Scale.SMOKE, bound=CPU_ROOF, origin=Origin.ADDED)
        for w, s in (("tiny", 0.3), ("small", 0.5))
    ]
    summary = summarise(found, whole)

    assert summary.s_agg is None
    assert summary.by_operator["norm"].s_device == pytest.approx(0.4)
    assert summary.by_operator["norm"].s_call == pytest.approx(0.2)
    assert summary.by_operator["norm"].pass_rate == 1.0


def test_failures_are_no_score_where_nothing_could_be_timed(
    evaluation: Any, whole: Selection
) -> None:
    found = [
        evaluation("norm", "n1", gates=WRONG),
        evaluation("norm", "n2", gates=UNTIMED),
    ]
    summary = summarise(found, whole)

    assert summary.by_operator["norm"].s_device is None
    assert summary.by_operator["norm"].pass_rate == 0.5
