"""Routes counted and sorted: by hand, what is open, the cost, and the inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from atrex_problems_production.moe_count_and_sort.private import Operator

from atrex_core import Inapplicable, Pack, Tensors, Workload
from atrex_core.referee.bench import first_wrong, judge_outputs

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

IDS = [[2, 0], [2, 4], [2, 0]]
"""Three tokens, two routes each; of five experts, 1 and 3 are empty."""


def shape(tokens: int, top_k: int, experts: int) -> Workload:
    axes = {"token_count": tokens, "top_k": top_k, "num_experts": experts, "block_size": 16}
    return Workload(id="case", axes=axes, init={"num_experts": experts, "block_size": 16})


CASE = shape(3, 2, 5)
COUNTS, BEGINS = [2, 0, 3, 0, 1], [0, 2, 2, 5, 5, 6]


def draw(workload: Workload, regime: str, seed: int = 0) -> Any:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")["topk_ids"]


def ids(rows: list[list[int]]) -> Tensors:
    return {"topk_ids": torch.tensor(rows, dtype=torch.int32)}


def answer(slots: list[int], counts: list[int], begins: list[int]) -> Tensors:
    named = {"sorted_token_ids": slots, "expert_token_counts": counts, "cumsum": begins}
    return {name: torch.tensor(values, dtype=torch.int32) for name, values in named.items()}


def wrong(outputs: Tensors) -> str | None:
    """Return the first output of the written-out case that is not accepted."""
    found = first_wrong(judge_outputs(PROBLEM, CASE, ids(IDS), outputs))
    return found[0] if found else None


def test_the_written_out_case() -> None:
    for run in (PROBLEM.expected, PROBLEM.honest):
        outputs = run(CASE, ids(IDS))
        assert outputs["sorted_token_ids"].tolist() == [1, 5, 0, 2, 4, 3]
        assert outputs["expert_token_counts"].tolist() == COUNTS
        assert outputs["cumsum"].tolist() == BEGINS
        assert {tensor.dtype for tensor in outputs.values()} == {torch.int32}


@pytest.mark.parametrize("slots", [[1, 5, 0, 2, 4, 3], [5, 1, 4, 2, 0, 3], [5, 1, 2, 4, 0, 3]])
def test_any_order_within_an_expert_will_do(slots: list[int]) -> None:
    assert wrong(answer(slots, COUNTS, BEGINS)) is None


@pytest.mark.parametrize(
    ("slots", "counts", "begins", "name"),
    [
        ([1, 5, 0, 2, 2, 3], COUNTS, BEGINS, "sorted_token_ids"),
        ([1, 0, 5, 2, 4, 3], COUNTS, BEGINS, "sorted_token_ids"),
        ([0, 2, 4, 1, 5, 3], COUNTS, BEGINS, "sorted_token_ids"),
        ([1, 5, 0, 2, -4, 3], COUNTS, BEGINS, "sorted_token_ids"),
        ([1, 5, 0, 2, 4, 3], [2, 0, 3, 1, 0], BEGINS, "expert_token_counts"),
        ([1, 5, 0, 2, 4, 3], COUNTS, [2, 2, 5, 5, 6, 6], "cumsum"),
    ],
    ids=["twice", "across experts", "experts in another order", "negative", "counts", "begins"],
)
def test_wrong_answers_stay_wrong(
    slots: list[int], counts: list[int], begins: list[int], name: str
) -> None:
    assert wrong(answer(slots, counts, begins)) == name


@pytest.mark.parametrize("regime", ["nominal", "crowded", "sparse", "descending", "boundary"])
def test_truth_and_reference_agree_with_a_slow_loop(regime: str) -> None:
    workload = shape(23, 3, 6)
    topk_ids = draw(workload, regime)
    own = [
        [i for i, e in enumerate(topk_ids.flatten().tolist()) if e == expert] for expert in range(6)
    ]

    for run in (PROBLEM.expected, PROBLEM.honest):
        outputs = run(workload, {"topk_ids": topk_ids})
        assert outputs["sorted_token_ids"].tolist() == [i for slots in own for i in slots]
        assert outputs["expert_token_counts"].tolist() == [len(slots) for slots in own]
        assert outputs["cumsum"].tolist() == [sum(map(len, own[:e])) for e in range(7)]


def test_cost_reads_ids_and_writes_three_lists() -> None:
    cost = PROBLEM.cost(CASE, ids(IDS))

    assert dict(cost.flops) == {}
    assert (cost.read_bytes, cost.write_bytes) == (24, 4 * (6 + 5 + 6))


def test_a_workload_that_names_no_experts_has_128() -> None:
    published = next(w for w in PROBLEM.workloads if w.id == "1")

    assert published.init == {}
    assert [spec.shape for spec in PROBLEM.outputs(published)] == [(608,), (128,), (129,)]


def test_each_regime_is_what_it_says() -> None:
    workload = shape(40, 3, 9)
    flat = {regime: draw(workload, regime).flatten() for regime in PROBLEM.regimes(workload)}
    counts = flat["boundary"].bincount(minlength=9)

    assert len(flat["nominal"].unique()) == 9
    assert len(flat["crowded"].unique()) == 1
    assert len(flat["sparse"].unique()) == 3
    assert (flat["descending"].diff() <= 0).all()
    assert (flat["descending"][0], flat["descending"][-1]) == (8, 0)
    assert sorted((counts % 16).tolist()) == [0] * 8 + [8]


def test_mutants_say_where_they_cannot_be_wrong() -> None:
    mutants, one = PROBLEM.mutants(), shape(1, 8, 128)
    inputs = {"topk_ids": draw(one, "nominal")}

    with pytest.raises(Inapplicable, match="same numbers"):
        mutants["routes_before_tokens"](one, inputs)
    with pytest.raises(Inapplicable, match="exact in so few bits"):
        mutants["coarse"](one, inputs)
