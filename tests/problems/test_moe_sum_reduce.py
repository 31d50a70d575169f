"""Sums over experts: by hand, cancellation, the factor, numbers of slots, cost, and the inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from atrex_problems_production.moe_sum_reduce.private import Operator

from atrex_core import ArithmeticPath, Inapplicable, Pack, Protocol, Tensors, Workload
from atrex_core.referee.bench import judge_outputs
from atrex_core.referee.lint import lint_workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))


def shape(tokens: int, slots: int, hidden: int, factor: float = 1.0) -> Workload:
    return Workload(
        id="case",
        axes={"token_count": tokens, "top_k": slots, "hidden_size": hidden},
        init={"routed_scaling_factor": factor},
    )


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def test_a_written_out_case() -> None:
    x = [[[1, 2], [10, 20], [-4, 8]], [[0.5, 0], [0.25, 0], [0, -1]]]
    inputs = {"expert_outputs": torch.tensor(x).bfloat16()}
    right = [17.5, 75, 1.875, -2.5]

    assert PROBLEM.expected(shape(2, 3, 2, 2.5), inputs)["out"].dense().flatten().tolist() == right
    assert PROBLEM.honest(shape(2, 3, 2, 2.5), inputs)["out"].flatten().tolist() == right


def test_what_is_left_after_cancellation_is_kept() -> None:
    # In bf16 the sum would pass through 1024 + 1, which is 1024 there.
    inputs = {"expert_outputs": torch.tensor([[[1024.0], [1], [-1024]]]).bfloat16()}
    workload = shape(1, 3, 1)
    narrow = PROBLEM.mutants()["summed_in_bf16"](workload, inputs)["out"]
    answers = [run(workload, inputs)["out"] for run in PROBLEM.variants().values()]

    assert narrow.item() == 0
    assert [out.item() for out in (*answers, PROBLEM.honest(workload, inputs)["out"])] == [1] * 4


@pytest.mark.parametrize("slots", [3, 8, 10], ids=str)
def test_sums_in_bf16_are_refused_from_either_end(slots: int) -> None:
    workload = shape(1, slots, 64)
    inputs = draw(workload, "cancelling")
    x = inputs["expert_outputs"]
    for order in (range(slots), reversed(range(slots))):
        total = x[:, 0] * 0
        for slot in order:
            total = total + x[:, slot]

        assert not judge_outputs(PROBLEM, workload, inputs, {"out": total})["out"].passed


def test_the_factor_is_not_rounded_to_bf16() -> None:
    workload = shape(4, 6, 64, factor=1.003)
    inputs = draw(workload, "shifted")
    rounded = PROBLEM.run_reference(workload, inputs, routed_scaling_factor=1.0)
    right = PROBLEM.honest(workload, inputs)["out"].float().mean() / rounded["out"].float().mean()

    assert torch.tensor(1.003).bfloat16() == 1
    assert right.item() == pytest.approx(1.003, abs=1e-3)


@pytest.mark.parametrize("slots", [1, 2, 3, 16], ids=str)
def test_any_number_of_slots_is_checkable(slots: int) -> None:
    workload = shape(3, slots, 40, 2.5)
    findings = lint_workload(
        PROBLEM, workload, protocol=Protocol.STRICT, device="cpu", seed=0, cases=5
    )

    assert [f for f in findings if not f.is_as_it_should_be] == []


@pytest.mark.parametrize(
    ("factor", "operations"), [(1.0, 7), (2.5, 8)], ids=["no_factor", "factor"]
)
def test_the_cost_counts_a_factor_only_where_there_is_one(factor: float, operations: int) -> None:
    cost = PROBLEM.cost(shape(7, 8, 96, factor))

    assert cost.flops == {ArithmeticPath.FP32_VECTOR: operations * 7 * 96}
    assert cost.read_bytes == 2 * 7 * 8 * 96
    assert cost.write_bytes == 2 * 7 * 96


def test_mutants_that_change_nothing_say_so() -> None:
    cases = {
        "no_factor": shape(3, 8, 16),
        "factor_twice": shape(3, 8, 16),
        "summed_in_bf16": shape(3, 2, 16, 2.5),
        "mean": shape(3, 1, 16, 2.5),
        "truncated": shape(3, 8, 16, 0.7),
        "last_slot_of_next_token": shape(1, 8, 16, 2.5),
        "sum_rounded_before_factor": shape(99, 8, 16, 4.0),
        "factor_in_bf16": shape(99, 8, 16, 2.5),
    }
    for name, workload in cases.items():
        with pytest.raises(Inapplicable):
            PROBLEM.mutants()[name](workload, draw(workload, "nominal"))


def test_each_regime_does_what_it_says() -> None:
    workload = shape(50, 6, 64)

    def drawn(regime: str, seed: int = 0) -> Any:
        return draw(workload, regime, seed)["expert_outputs"].double()

    cancelling = drawn("cancelling")
    pairs = (cancelling.abs() > 8).sum(1)
    assert pairs.max() == 2
    assert (pairs == 2).double().mean() > 0.9
    assert cancelling.sum(1).abs().max() < 16
    loud = cancelling.abs().mean(0).topk(2, dim=0).indices
    assert set(loud.flatten().tolist()) == set(range(6))
    assert not loud.equal(drawn("cancelling", 1).abs().mean(0).topk(2, dim=0).indices)
    slots = drawn("slots").square().sum(-1)
    assert (slots.amax(-1) / slots.sum(-1)).min() > 0.9
    assert set(slots.argmax(-1).tolist()) == set(range(6))
    shifted = drawn("shifted")
    assert (shifted.mean().item(), shifted.std().item()) == pytest.approx((1, 0.25), rel=0.05)
    sums = drawn("brink").sum(1)
    assert sums.bfloat16().double().div(sums).sub(1).mul(2**12).round().unique().tolist() == [1]
    assert (sums > 0).any()
    assert (sums < 0).any()
    sums = drawn("halfway").sum(1)
    missing = sums.sub(sums.bfloat16().double()) / sums
    assert (missing > 0.001).all()
    assert (missing < 0.0035).all()
    size = drawn("rows").square().mean((1, 2))
    assert (size == 0).sum() == 1
    assert size.max() / size[size > 0].min() > 1e6
    assert (drawn("nominal") == 1).sum() == 1
    assert drawn("published").std().item() == pytest.approx(0.02, rel=0.05)
