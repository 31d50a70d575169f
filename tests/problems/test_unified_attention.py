"""Causal attention over a paged cache: masks and tables by hand, its cost, and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from atrex_problems_production.unified_attention.private import Operator, attention

from atrex_core import ArithmeticPath, Pack, Scale, Tensors, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))
HARD = ("ragged", "flat", "peaked", "needle", "crowd")
RAGGED = ("ragged", "needle")

Check = Callable[..., None]


def shape(
    q_lens: list[int], k_lens: list[int] | None = None, heads: tuple[int, int] = (2, 1)
) -> Workload:
    axes = {
        "num_seqs": len(q_lens),
        "seq_lens": q_lens,
        "num_query_heads": heads[0],
        "num_kv_heads": heads[1],
        "head_size": 8,
        "block_size": 4,
    }
    return Workload(id="case", axes=axes | ({"kv_lens": k_lens} if k_lens else {}))


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def expected(workload: Workload, inputs: Tensors) -> Any:
    return PROBLEM.expected(workload, inputs)["out"].dense()


def slowly(inputs: Tensors) -> Any:
    """Attend in float64, one query and one head at a time, one token looked up after the other."""
    q, starts = inputs["q"].double(), inputs["cu_seqlens_q"].tolist()
    group, block = q.shape[1] // inputs["k_cache"].shape[2], inputs["k_cache"].shape[1]
    out = torch.full_like(q, torch.nan)
    for i, used in enumerate(inputs["seqused_k"].tolist()):
        count = starts[i + 1] - starts[i]
        where = [(int(inputs["block_table"][i, p // block]), p % block) for p in range(used)]
        for r in range(count):
            seen = where[: used - count + r + 1]
            for head in range(q.shape[1]):
                k, v = (
                    torch.stack([inputs[name][b, s, head // group].double() for b, s in seen])
                    for name in ("k_cache", "v_cache")
                )
                weights = ((k * q[starts[i] + r, head]).sum(-1) / q.shape[2] ** 0.5).softmax(0)
                out[starts[i] + r, head] = (weights[:, None] * v).sum(0)
    return out


def counting(workload: Workload) -> dict[str, Any]:
    """Return inputs of which `out` is the mean of the positions seen."""
    inputs = dict(draw(workload, "flat"))
    cache = torch.full_like(inputs["v_cache"], 999.0)
    for i, used in enumerate(inputs["seqused_k"].tolist()):
        for p in range(used):
            cache[inputs["block_table"][i, p // 4], p % 4] = p
    return {**inputs, "v_cache": cache}


@pytest.mark.parametrize(
    ("queries", "keys", "means"),
    [
        (3, 3, [0.0, 0.5, 1.0]),
        (1, 7, [3.0]),
        (3, 7, [2.0, 2.5, 3.0]),
        (1, 1, [0.0]),
    ],
    ids=["prefill", "decode", "chunk", "single"],
)
def test_the_last_query_sees_all_and_each_before_it_one_less(
    queries: int, keys: int, means: list[float]
) -> None:
    workload = shape([queries], [keys])
    inputs = counting(workload)
    table, block = inputs["block_table"][0].tolist(), inputs["v_cache"]
    inputs["seqused_k"] = torch.tensor([keys], dtype=torch.int32)
    for p in range(keys):
        block[table[p // 4], p % 4] = p

    assert expected(workload, inputs)[:, 0, 0].tolist() == pytest.approx(means)
    assert PROBLEM.honest(workload, inputs)["out"][:, 1, 5].tolist() == means


def test_published_shapes_keep_the_published_triangle() -> None:
    workload = shape([6])
    inputs = draw(workload, "published")
    k, v = (inputs[name].flatten(0, 1)[:6, 0].double() for name in ("k_cache", "v_cache"))
    scores = torch.einsum("qhd,kd->hqk", inputs["q"].double(), k) / 8**0.5
    scores = scores.masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf)

    out = torch.einsum("hqk,kd->qhd", scores.softmax(-1), v)

    assert inputs["block_table"].tolist() == [[0, 1, 0, 0]]
    assert (expected(workload, inputs) - out).abs().max() < 1e-12


@pytest.mark.parametrize("id_", [w.id for w in PROBLEM.select(Scale.SMOKE)])
def test_truth_and_reference_agree_with_a_slow_loop(id_: str, assert_as_slow: Check) -> None:
    assert_as_slow(PROBLEM, id_, ("nominal", "ragged", "needle"), slowly)


def test_nothing_depends_on_how_much_fits(assert_same_in_pieces: Check) -> None:
    assert_same_in_pieces(PROBLEM, shape([9, 1, 0, 14, 1], [30, 17, 5, 14, 1], (4, 2)), attention)


def test_the_reference_does_not_depend_on_how_much_fits(
    assert_reference_same_in_pieces: Check,
) -> None:
    assert_reference_same_in_pieces(PROBLEM, shape([9, 1, 0, 14, 1], [30, 17, 5, 14, 1], (4, 2)))


def test_the_cost_counts_what_queries_see() -> None:
    workload = shape([3, 0, 1], [5, 9, 4])

    cost = PROBLEM.cost(workload)

    # Of 5 keys, 3 queries see 3 + 4 + 5; one query sees 4. 9 keys that no query sees; 2 + 1 pages.
    assert cost.flops == {
        ArithmeticPath.BF16_MATRIX: 4 * 2 * 8 * 16,
        ArithmeticPath.FP32_VECTOR: 2 * (2 * 16 + 4 * 8),
    }
    assert cost.read_bytes == 2 * 8 * (4 * 2 + 2 * 9) + 4 * (4 + 3 + 3)
    assert cost.write_bytes == 2 * 2 * 8 * 4


def test_the_cost_follows_the_lengths_drawn() -> None:
    workload = shape([4, 4])
    inputs = dict(draw(workload, "nominal"))
    inputs["cu_seqlens_q"] = torch.tensor([0, 1, 8], dtype=torch.int32)
    inputs["seqused_k"] = torch.tensor([6, 7], dtype=torch.int32)

    assert PROBLEM.cost(workload).flops[ArithmeticPath.BF16_MATRIX] == 4 * 2 * 8 * 20
    assert PROBLEM.cost(workload, inputs).flops[ArithmeticPath.BF16_MATRIX] == 4 * 2 * 8 * 34


@pytest.mark.parametrize("regime", RAGGED)
def test_lengths_are_ragged_and_blocks_are_scattered(regime: str) -> None:
    workload = shape([10] * 40, [40] * 40)
    inputs = draw(workload, regime)
    queries, keys = inputs["cu_seqlens_q"].diff(), inputs["seqused_k"]
    table = inputs["block_table"].flatten()

    assert queries.sum() == 400
    assert len(queries.unique()) > 5
    assert (keys >= queries).all()
    assert (keys == queries).sum() >= 10
    assert (keys > queries).sum() >= 25
    assert keys.max() <= 4 * inputs["block_table"].shape[1]
    assert (keys[keys > queries] % 4 != 0).float().mean() > 0.9
    assert len(table.unique()) == len(table)
    assert not (table == torch.arange(len(table))).any()


@pytest.mark.parametrize("regime", ["nominal", "flat", "peaked", "crowd"])
def test_elsewhere_lengths_are_as_given_and_blocks_are_scattered(regime: str) -> None:
    inputs = draw(shape([3, 1, 9], [9, 30, 9]), regime)
    table = inputs["block_table"]
    used = torch.arange(table.shape[1]) * 4 < inputs["seqused_k"][:, None]
    found = table[used]

    assert inputs["cu_seqlens_q"].tolist() == [0, 3, 4, 13]
    assert inputs["seqused_k"].tolist() == [9, 30, 9]
    assert len(found.unique()) == len(found) == 3 + 8 + 3
    assert not (table == torch.arange(table.numel()).view_as(table))[used].any()
    if regime == "nominal":
        assert (table[~used] == 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_every_query_sees_the_key_that_leads_the_crowd(seed: int) -> None:
    workload = shape([3, 1, 9], [9, 30, 9])
    call = attention(workload, draw(workload, "crowd", seed))
    for sequence, (queries, keys) in enumerate([(3, 9), (1, 30), (9, 9)]):
        k, _ = call.fetch(torch.tensor([sequence]), keys)
        leading = k[0, :, 0].float().norm(dim=-1).argmax()
        assert leading <= keys - queries


def test_large_parts_of_flat_values_cancel_before_the_last_third() -> None:
    workload = shape([1], [90])
    _, v = attention(workload, draw(workload, "flat")).fetch(torch.tensor([0]), 90)
    sums = v[0, :, 0].double().cumsum(0).abs()

    assert sums[29].min() > 30 * 20
    assert sums[59:].max() < 60


@pytest.mark.parametrize("regime", RAGGED)
def test_decode_stays_decode_with_contexts_of_any_length(regime: str) -> None:
    inputs = draw(shape([1] * 30, [64] * 30), regime)

    assert inputs["cu_seqlens_q"].tolist() == list(range(31))
    assert len(inputs["seqused_k"].unique()) > 10
    assert inputs["seqused_k"].min() == 1


@pytest.mark.parametrize("regime", RAGGED)
def test_one_prompt_has_tokens_before_it(regime: str) -> None:
    for seed in range(20):
        inputs = draw(shape([7]), regime, seed)

        assert inputs["cu_seqlens_q"].tolist() == [0, 7]
        assert 7 < inputs["seqused_k"].item() <= 16
        assert inputs["seqused_k"].item() % 4 != 0


def test_only_live_slots_are_not_loud() -> None:
    inputs = draw(shape([5, 9, 1], [9, 9, 2]), "ragged")
    quiet = (inputs["k_cache"] != 10_000).flatten(2).any(2)

    assert quiet.sum() == inputs["seqused_k"].sum()
    assert torch.equal(quiet, (inputs["v_cache"] != 10_000).flatten(2).any(2))


def test_capacity_is_used_but_never_exceeded() -> None:
    # 8 tokens in 2 blocks, and 2 spare ones: room for 16.
    longest = 0
    for seed in range(60):
        inputs = draw(shape([8] * 12), "ragged", seed)
        longest = max(longest, int(inputs["seqused_k"].max()))

    assert longest in (15, 16)


def test_grouped_heads_share_keys_in_order() -> None:
    workload = shape([4], heads=(4, 2))
    inputs = dict(draw(workload, "nominal"))
    inputs["v_cache"] = torch.zeros_like(inputs["v_cache"])
    inputs["v_cache"][:, :, 1] = 1

    assert expected(workload, inputs)[0, :, 0].tolist() == pytest.approx([0, 0, 1, 1])
