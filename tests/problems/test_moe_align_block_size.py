"""Blocks of routes: the layout by hand, what is open in it, the cost, and the inputs."""

from __future__ import annotations

from math import comb
from typing import Any

import pytest
import torch
from atrex_problems_production.moe_align_block_size.private import Operator

from atrex_core import Inapplicable, Pack, Tensors, Workload
from atrex_core.referee.bench import first_wrong, judge_outputs

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

IDS = [[2, 0], [2, 4], [2, 0]]
"""Three tokens, two routes each; of five experts, 1 and 3 are empty."""


def shape(tokens: int, top_k: int, experts: int, block: int) -> Workload:
    return Workload(
        id="case",
        axes={
            "token_count": tokens,
            "top_k": top_k,
            "num_experts": experts,
            "block_size": block,
        },
        init={"block_size": block, "num_experts": experts},
    )


CASE = shape(3, 2, 5, 2)


def draw(workload: Workload, regime: str, seed: int = 0) -> Any:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")["topk_ids"]


def ids(rows: list[list[int]]) -> Tensors:
    return {"topk_ids": torch.tensor(rows, dtype=torch.int32)}


def answer(slots: list[int], experts: list[int], length: int) -> Tensors:
    named = {"sorted_token_ids": slots, "expert_ids": experts, "num_tokens_post_pad": [length]}
    return {name: torch.tensor(values, dtype=torch.int32) for name, values in named.items()}


def wrong(outputs: Tensors) -> str | None:
    """Return the first output of the written-out case that is not accepted."""
    found = first_wrong(judge_outputs(PROBLEM, CASE, ids(IDS), outputs))
    return found[0] if found else None


def test_the_written_out_layout() -> None:
    # Room for 6 + 5 slots, in whole blocks: 12. Padding is 6, the number of slots.
    for outputs in (PROBLEM.expected(CASE, ids(IDS)), PROBLEM.honest(CASE, ids(IDS))):
        assert outputs["num_tokens_post_pad"].tolist() == [8]
        assert outputs["sorted_token_ids"].shape == (12,)
        assert outputs["sorted_token_ids"][:8].tolist() == [1, 5, 0, 2, 4, 6, 3, 6]
        assert outputs["expert_ids"].shape == (6,)
        assert outputs["expert_ids"][:4].tolist() == [0, 2, 2, 4]


def test_any_order_within_an_expert_and_anything_beyond_the_last_block_will_do() -> None:
    slots = [5, 1, 4, 0, 2, 6, 3, 6, -9, 0, 77, 1]

    assert wrong(answer(slots, [0, 2, 2, 4, 99, -1], 8)) is None


@pytest.mark.parametrize(
    ("slots", "experts", "length", "name"),
    [
        ([1, 5, 0, 2, 2, 6, 3, 6], [0, 2, 2, 4], 8, "sorted_token_ids"),
        ([1, 5, 0, 2, 6, 6, 3, 6], [0, 2, 2, 4], 8, "sorted_token_ids"),
        ([1, 5, 0, 2, 6, 4, 3, 6], [0, 2, 2, 4], 8, "sorted_token_ids"),
        ([1, 0, 5, 2, 4, 6, 3, 6], [0, 2, 2, 4], 8, "sorted_token_ids"),
        ([1, 5, 0, 2, 4, 7, 3, 6], [0, 2, 2, 4], 8, "sorted_token_ids"),
        ([0, 2, 4, 6, 1, 5, 3, 6], [2, 2, 0, 4], 8, "sorted_token_ids"),
        ([1, 5, 0, 2, 4, 6, 3, 6], [0, 2, 4, 4], 8, "expert_ids"),
        ([1, 5, 0, 2, 4, 6, 3, 6], [0, 2, 2, 4], 6, "num_tokens_post_pad"),
    ],
    ids=[
        "twice",
        "missing",
        "padding first",
        "across experts",
        "other padding",
        "experts in another order",
        "another expert",
        "another length",
    ],
)
def test_wrong_layouts_stay_wrong(
    slots: list[int], experts: list[int], length: int, name: str
) -> None:
    assert wrong(answer([*slots, 6, 6, 6, 6], [*experts, 0, 0], length)) == name


@pytest.mark.parametrize(
    ("sizes", "slots", "blocks"),
    [
        ((1, 8, 128, 128), 1024, 8),  # fewer slots than experts: a block each at most
        ((2, 4, 8, 16), 128, 8),  # as many: 8 + 8 x 15
        ((37, 3, 7, 16), 224, 14),  # 111 + 7 x 15 = 216, in whole blocks
        ((520, 8, 128, 128), 20480, 160),  # 4160 + 128 x 127 = 20416, in whole blocks
    ],
)
def test_capacity_is_what_the_worst_case_needs(
    sizes: tuple[int, int, int, int], slots: int, blocks: int
) -> None:
    workload = shape(*sizes)
    specs = PROBLEM.outputs(workload)

    assert [spec.shape for spec in specs] == [(slots,), (blocks,), (1,)]
    for seed in range(20):
        inputs = {"topk_ids": draw(workload, "nominal", seed)}
        assert PROBLEM.expected(workload, inputs)["num_tokens_post_pad"] <= slots


@pytest.mark.parametrize("regime", ["nominal", "crowded", "sparse", "descending", "boundary"])
def test_truth_and_reference_agree_with_a_slow_loop(regime: str) -> None:
    workload = shape(23, 3, 6, 4)
    topk_ids = draw(workload, regime)
    slots, owners = [], []
    for expert in range(6):
        own = [i for i, e in enumerate(topk_ids.flatten().tolist()) if e == expert]
        own += [69] * (-len(own) % 4)
        slots += own
        owners += [expert] * (len(own) // 4)

    for run in (PROBLEM.expected, PROBLEM.honest):
        outputs = run(workload, {"topk_ids": topk_ids})
        assert outputs["sorted_token_ids"][: len(slots)].tolist() == slots
        assert outputs["expert_ids"][: len(owners)].tolist() == owners
        assert outputs["num_tokens_post_pad"].item() == len(slots)


def test_cost_writes_the_blocks_of_the_draw() -> None:
    cost = PROBLEM.cost(CASE, ids(IDS))

    # Six ids; eight places, four experts of blocks, one length.
    assert dict(cost.flops) == {}
    assert (cost.read_bytes, cost.write_bytes) == (24, 4 * (8 + 4 + 1))


@pytest.mark.parametrize(("tokens", "block"), [(1, 4), (6, 4), (50, 8)])
def test_cost_without_inputs_expects_equally_likely_experts(tokens: int, block: int) -> None:
    experts, slots = 5, 2 * tokens
    mean = sum(
        comb(slots, c) * 0.2**c * 0.8 ** (slots - c) * -(-c // block) for c in range(slots + 1)
    )
    cost = PROBLEM.cost(shape(tokens, 2, experts, block))

    assert cost.write_bytes == pytest.approx(4 * (experts * mean * (block + 1) + 1))


def test_each_regime_is_what_it_says() -> None:
    workload = shape(40, 3, 9, 16)
    flat = {regime: draw(workload, regime).flatten() for regime in PROBLEM.regimes(workload)}
    counts = flat["boundary"].bincount(minlength=9)

    assert len(flat["nominal"].unique()) == 9
    assert len(flat["crowded"].unique()) == 1
    assert len(flat["sparse"].unique()) == 3
    assert (flat["descending"].diff() <= 0).all()
    assert (flat["descending"][0], flat["descending"][-1]) == (8, 0)
    # 120 slots: seven blocks, and eight slots more for one expert.
    assert sorted((counts % 16).tolist()) == [0] * 8 + [8]
    assert ((counts > 0) & (counts % 16 == 0)).any()


def test_mutants_say_where_they_cannot_be_wrong() -> None:
    mutants, one = PROBLEM.mutants(), shape(1, 8, 128, 128)
    inputs = {"topk_ids": draw(one, "nominal")}

    with pytest.raises(Inapplicable, match="fill a block"):
        mutants["extra_block_at_boundary"](one, inputs)
    with pytest.raises(Inapplicable, match="same numbers"):
        mutants["routes_before_tokens"](one, inputs)
