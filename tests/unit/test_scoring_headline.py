"""When there is no headline, and what is shown nevertheless."""

from __future__ import annotations

from typing import Any

import pytest

from atrex_core import (
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
    Workload,
)
from atrex_core.scoring import Aggregate, ProblemFacts, Selection, Summary, summarise

PACK = Pack(name="pack", version="1", digest="d1")
DEVICE = Device(id="gpu:0", accelerator="gpu", vendor="acme", name="Anvil 2", arch="anvil2")
PASS = dict.fromkeys(Gate, Outcome.PASSED)
WRONG = {Gate.COMPILE: Outcome.PASSED, Gate.CORRECTNESS: Outcome.FAILED}
UNTIMED = {**PASS, Gate.PERFORMANCE: Outcome.SKIPPED, Gate.AUTHENTICITY: Outcome.SKIPPED}
UNJUDGED = {**PASS, Gate.AUTHENTICITY: Outcome.SKIPPED}
BROKEN = {Gate.COMPILE: Outcome.PASSED, Gate.CORRECTNESS: Outcome.ERRORED}


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
def test_no_headline(changes: dict[str, Any], reason: str) -> None:
    summary = summarise(complete(**changes), WHOLE)

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
def test_what_nobody_failed_is_no_zero(gates: dict[Gate, Outcome], reason: str) -> None:
    found = [evaluation(e.problem, e.workload, gates=gates) for e in complete()]
    summary = summarise(found, WHOLE)

    assert summary.headline_withheld == f"{reason}, gemm g2, gemm g3 and 3 more"
    assert summary.by_operator["gemm"].s_device is None


def test_unpublished_workloads_alone_have_no_headline() -> None:
    found = [evaluation("norm", "elsewhere")]

    assert summarise(found, WHOLE).headline_withheld == (
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
def test_mixed_results_have_no_headline(changes: dict[str, Any], reason: str) -> None:
    found = [e for e in complete() if e.workload != "n1"]
    summary = summarise([*found, evaluation("norm", "n1", **changes)], WHOLE)

    assert summary.headline_withheld == reason


class Stub:
    """As much of a problem as a selection looks at."""

    name = "op"
    importance = 0.3
    phases = (Phase.DECODE,)

    def __init__(self, pack: Pack) -> None:
        self.pack = pack

    def select(self, scale: Scale) -> list[Workload]:
        return [
            Workload(id="one", axes={}, scale=scale),
            Workload(id="two", axes={}, scale=scale, origin=Origin.ADDED),
        ]


def test_a_selection_takes_one_packs_published_workloads() -> None:
    selection = Selection.of(PACK, [Stub(PACK), Stub(OTHER_PACK)])  # type: ignore[list-item]

    assert selection == Selection(
        pack=PACK, problems=(facts("op", 0.3, "one", phases=(Phase.DECODE,)),)
    )
    assert selection.weight_sum == 0.3


def test_nothing_has_no_headline() -> None:
    summary = summarise([], WHOLE)

    assert summary.headline_withheld == "nothing was evaluated"
    assert summary.pass_rate is None
    assert summary.adoption_rate is None
    assert summary.coverage == 0.0


def test_a_partial_selection_has_no_headline() -> None:
    partial = Selection(pack=PACK, problems=WHOLE.problems, is_partial=True)
    summary = summarise([e for e in complete() if e.problem == "gemm"], partial)

    assert summary.headline_withheld == "partial selection: only a whole pack is scored"
    assert summary.by_operator["gemm"].s_device == pytest.approx(0.8)
    assert summary.by_operator["norm"].s_device is None


def test_an_interrupted_run_has_no_headline() -> None:
    summary = summarise(complete()[:-2], WHOLE)

    assert summary.headline_withheld == "not every published workload was evaluated: norm"


def test_unjudged_authenticity_withholds_the_second_headline_only() -> None:
    found = [e for e in complete() if e.problem != "sort"]
    found.append(evaluation("sort", "s1", 0.2, gates=UNJUDGED))
    summary = summarise(found, WHOLE)

    assert headline(summary).device == pytest.approx(0.62)
    assert summary.s_agg_dsl is None
    assert summary.dsl_withheld == "authenticity was not judged for 1 workloads: sort s1"


def test_smoke_and_measured_roofs_still_fill_the_operators() -> None:
    found = [
        evaluation("norm", w, s, s / 2, scale=Scale.SMOKE, bound=CPU_ROOF, origin=Origin.ADDED)
        for w, s in (("tiny", 0.3), ("small", 0.5))
    ]
    summary = summarise(found, WHOLE)

    assert summary.s_agg is None
    assert summary.by_operator["norm"].s_device == pytest.approx(0.4)
    assert summary.by_operator["norm"].s_call == pytest.approx(0.2)
    assert summary.by_operator["norm"].pass_rate == 1.0


def test_failures_are_no_score_where_nothing_could_be_timed() -> None:
    found = [
        evaluation("norm", "n1", gates=WRONG),
        evaluation("norm", "n2", gates=UNTIMED),
    ]
    summary = summarise(found, WHOLE)

    assert summary.by_operator["norm"].s_device is None
    assert summary.by_operator["norm"].pass_rate == 0.5
