"""Grouped routing: which groups take part, which choices among equal ones are open."""

from __future__ import annotations

import math

import pytest
import torch
from atrex_problems_production.moe_topk_gating_softmax.private import Operator

from atrex_core import Inapplicable, Pack, Tensors, Workload
from atrex_core.referee.bench import first_wrong, judge_outputs

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

NEAR = 3.0 - 2.0**-22
"""The next smaller fp32 value: softmax in fp32 need not tell it from 3.0."""


def route(logits: list[float], top_k: int, groups: int, chosen: int) -> tuple[Workload, Tensors]:
    init = {"top_k": top_k, "num_expert_groups": groups, "topk_group": chosen}
    axes = {"token_count": 1, "num_experts": len(logits)}
    return Workload(id="case", axes=axes, init=init), {"gating_output": torch.tensor([logits])}


def answer(inputs: Tensors, ids: list[int], counted: list[bool] | None = None) -> Tensors:
    """Return an answer that names `ids`, with the probabilities of those that count."""
    p = torch.softmax(inputs["gating_output"].double(), dim=-1)
    weights = p[:, ids] * torch.tensor(counted or [True] * len(ids))
    return {
        "topk_weights": weights.float(),
        "topk_ids": torch.tensor([ids], dtype=torch.int32),
    }


def accepted(workload: Workload, inputs: Tensors, outputs: Tensors) -> bool:
    return first_wrong(judge_outputs(PROBLEM, workload, inputs, outputs)) is None


def test_only_experts_of_the_best_groups_take_part() -> None:
    logits = [1.0, 0.0, 3.0, -9.0, 2.0, 1.9, 1.8, 1.7]
    workload, inputs = route(logits, 3, 4, 2)
    total = sum(math.exp(x) for x in logits)

    # Groups of two: 2 has 2.0 and 1.9, 3 has 1.8; group 1 with 3.0 comes first.
    for run in (PROBLEM.expected, PROBLEM.honest):
        outputs = run(workload, inputs)
        weights = outputs["topk_weights"]
        weights = weights if isinstance(weights, torch.Tensor) else weights.dense()
        assert outputs["topk_ids"].tolist() == [[2, 4, 5]]
        assert weights[0].tolist() == pytest.approx([math.exp(x) / total for x in (3, 2, 1.9)])
    # Group 3 in place of group 2, though it is worse.
    assert not accepted(workload, inputs, answer(inputs, [2, 6, 7]))


@pytest.mark.parametrize("second", [3.0, NEAR], ids=["equal", "nearly"])
def test_any_choice_among_equal_groups_will_do(second: float) -> None:
    workload, inputs = route([3.0, 1.0, second, 2.0, 0.0, 0.5], 2, 3, 1)

    assert PROBLEM.expected(workload, inputs)["topk_ids"].tolist() == [[0, 1]]
    assert accepted(workload, inputs, answer(inputs, [0, 1]))
    assert accepted(workload, inputs, answer(inputs, [2, 3]))
    assert not accepted(workload, inputs, answer(inputs, [0, 2]))
    assert not accepted(workload, inputs, answer(inputs, [0, 3]))
    assert not accepted(workload, inputs, answer(inputs, [2, 1]))
    assert not accepted(workload, inputs, answer(inputs, [4, 5]))


def test_weights_must_be_those_of_the_groups_that_were_chosen() -> None:
    workload, inputs = route([3.0, 1.0, 3.0, 2.0], 2, 2, 1)
    ids = answer(inputs, [2, 3])
    mixed = {**ids, "topk_weights": answer(inputs, [0, 1])["topk_weights"]}

    assert accepted(workload, inputs, ids)
    assert not accepted(workload, inputs, mixed)


def test_a_group_clearly_among_the_best_must_take_part() -> None:
    workload, inputs = route([3.0, 1.0, 3.0, 2.0, 4.0, 2.5], 3, 3, 2)

    assert accepted(workload, inputs, answer(inputs, [4, 2, 5]))
    assert accepted(workload, inputs, answer(inputs, [4, 0, 5]))
    assert not accepted(workload, inputs, answer(inputs, [0, 2, 3]))


def test_experts_outside_count_as_zero_where_places_are_left() -> None:
    workload, inputs = route([2.0, 0.0, 3.0, 1.0, 2.5, 2.5], 3, 3, 1)

    for third in (0, 1, 4, 5):
        outputs = answer(inputs, [2, 3, third], [True, True, False])
        assert accepted(workload, inputs, outputs)
    assert not accepted(workload, inputs, answer(inputs, [2, 3, 4]))


def test_variants_pass_where_groups_are_often_equal() -> None:
    init = {"top_k": 5, "num_expert_groups": 8, "topk_group": 3}
    workload = Workload(id="case", axes={"token_count": 500, "num_experts": 16}, init=init)
    for regime in ("ties", "near_ties"):
        inputs = PROBLEM.draw(workload, regime=regime, seed=0, device="cpu")
        expected = PROBLEM.expected(workload, inputs)["topk_ids"]
        answers = [variant(workload, inputs) for variant in PROBLEM.variants().values()]

        assert any((outputs["topk_ids"] != expected).any() for outputs in answers)
        assert all(accepted(workload, inputs, outputs) for outputs in answers)


def test_grouped_workloads_are_at_full_and_at_smoke_scale() -> None:
    grouped = [w for w in PROBLEM.workloads if w.init.get("topk_group")]
    widths = {w.axes["num_experts"] for w in PROBLEM.workloads}

    assert {(w.scale.value, w.origin.value) for w in grouped} == {
        ("full", "added"),
        ("smoke", "added"),
    }
    assert {64, 384} <= widths


def test_mutants_of_groups_need_groups() -> None:
    workload, inputs = route([1.0, 2.0, 3.0, 4.0], 2, 0, 0)

    with pytest.raises(Inapplicable, match="in no groups"):
        PROBLEM.mutants()["no_groups"](workload, inputs)


@pytest.mark.parametrize(("experts", "stride"), [(24, 4), (60, 8), (128, 32), (512, 32)])
def test_close_experts_are_told_apart_and_stand_in_a_comb_and_in_a_run(
    experts: int, stride: int
) -> None:
    workload = Workload(
        id="case", axes={"token_count": 5, "num_experts": experts}, init={"top_k": 8}
    )
    logits = PROBLEM.draw(workload, regime="close", seed=1, device="cpu")["gating_output"]
    ordered = logits.sort(-1, descending=True)

    assert ordered.values.diff(dim=-1).unique().tolist() == [-(2.0**-18)]
    for best in ordered.indices[:, :8].tolist():
        assert any({one + i * stride for i in range(4)} <= set(best) for one in best)
        assert any({one + i for i in range(4)} <= set(best) for one in best)


def test_neighbours_among_close_experts_may_not_be_swapped() -> None:
    workload = Workload(id="case", axes={"token_count": 1, "num_experts": 64}, init={"top_k": 8})
    inputs = PROBLEM.draw(workload, regime="close", seed=1, device="cpu")
    ids = inputs["gating_output"][0].argsort(descending=True)[:8].tolist()

    assert accepted(workload, inputs, answer(inputs, ids))
    assert not accepted(workload, inputs, answer(inputs, [*ids[:6], ids[7], ids[6]]))
