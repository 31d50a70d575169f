"""Decode attention over a packed paged cache: its layout by hand, and its inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from atrex_problems_production._attention import exact
from atrex_problems_production.paged_attention_decode.private import Operator, attention
from attrs import evolve

from atrex_core import ArithmeticPath, DType, Pack, Scale, Tensors, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))
HARD = ("ragged", "flat", "peaked", "needle", "crowd")


def shape(seqs: int, tokens: int, dtype: str = "bf16") -> Workload:
    axes = {
        "num_seqs": seqs,
        "ctx_len": tokens,
        "num_query_heads": 4,
        "num_kv_heads": 2,
        "head_size": 16,
        "block_size": 4,
        "dtype": dtype,
    }
    return Workload(id="case", axes=axes)


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def expected(workload: Workload, inputs: Tensors) -> Any:
    return PROBLEM.expected(workload, inputs)["out"].dense()


def slowly(inputs: Tensors) -> Any:
    """Attend in float64, one sequence and one head at a time, one element looked up at a time."""
    query, k_cache, v_cache = (inputs[n].double() for n in ("query", "k_cache", "v_cache"))
    heads, size, block = v_cache.shape[1:]
    group, pack = query.shape[1] // heads, k_cache.shape[4]
    out = torch.zeros_like(query)
    for i, length in enumerate(inputs["seq_lens"].tolist()):
        where = [(int(inputs["block_tables"][i, p // block]), p % block) for p in range(length)]
        for h in range(query.shape[1] if length else 0):
            k = torch.stack([k_cache[b, h // group, :, s].flatten() for b, s in where])
            v = torch.stack([v_cache[b, h // group, :, s] for b, s in where])
            scores = (k * query[i, h]).sum(-1) / size**0.5
            out[i, h] = (scores.softmax(0)[:, None] * v).sum(0)
    assert pack == 8
    return out


@pytest.mark.parametrize("id_", [w.id for w in PROBLEM.select(Scale.SMOKE)])
def test_truth_and_reference_agree_with_a_slow_loop(id_: str) -> None:
    workload = next(w for w in PROBLEM.workloads if w.id == id_)
    for regime in ("nominal", "ragged", "needle"):
        inputs = draw(workload, regime, seed=3)
        slow = slowly(inputs)

        assert (expected(workload, inputs) - slow).abs().max() < 1e-11
        honest = PROBLEM.honest(workload, inputs)["out"].double()
        assert ((honest - slow).abs() <= 2.0**-8 * slow.abs() + 1e-4).all()


def test_element_d_of_a_key_is_in_pack_d_over_8_at_d_mod_8() -> None:
    workload = shape(1, 2)
    inputs = dict(draw(workload, "published"))
    inputs["query"] = torch.zeros(1, 4, 16).bfloat16()
    inputs["query"][:, :, 11] = 4
    inputs["k_cache"] = torch.zeros_like(inputs["k_cache"])
    inputs["k_cache"][0, :, 1, 1, 3] = 1  # token 1 scores 4 / sqrt(16) = 1
    inputs["v_cache"] = torch.zeros_like(inputs["v_cache"])
    inputs["v_cache"][0, 1, 5, :2] = torch.tensor([8.0, 4.0]).bfloat16()

    out = expected(workload, inputs)

    # e / (e + 1) of 4 and the rest of 8, in element 5 of the heads that share key head 1.
    assert out[0, :, 5].tolist() == pytest.approx([0, 0, 5.075765685, 5.075765685])
    assert out.sum() == pytest.approx(2 * 5.075765685)


def test_nothing_depends_on_how_much_fits() -> None:
    workload = shape(7, 21)
    inputs = draw(workload, "ragged", seed=1)
    whole = expected(workload, inputs)

    for fetched in (1, 3000, 9000):
        small = evolve(attention(workload, inputs), fetched=fetched, scores=60, packed=200)
        assert (small.by(exact).dense() - whole).abs().max() < 1e-12


def test_work_on_fp16_is_fp16_work() -> None:
    half, brain = (PROBLEM.cost(shape(3, 5, dtype)).flops for dtype in ("fp16", "bf16"))

    assert half[ArithmeticPath.FP16_MATRIX] == brain[ArithmeticPath.BF16_MATRIX] == 4 * 4 * 16 * 15
    assert PROBLEM.outputs(shape(3, 5, "fp16"))[0].dtype is DType.FP16


@pytest.mark.parametrize("regime", HARD)
def test_only_live_slots_are_not_loud(regime: str) -> None:
    inputs = draw(shape(9, 13), regime)
    quiet = (inputs["v_cache"] != 10_000).any(1).any(1)

    assert quiet.sum() == inputs["seq_lens"].sum()
    assert torch.equal(quiet, (inputs["k_cache"] != 10_000).any(1).any(1).any(-1))


@pytest.mark.parametrize("tokens", [1, 5, 13, 16])
def test_flat_lengths_are_powers_of_two_and_large_parts_cancel(tokens: int) -> None:
    workload = shape(3, tokens)
    inputs = draw(workload, "flat")
    length = 1 << (tokens.bit_length() - 1)
    _, v = attention(workload, inputs).fetch(torch.tensor([0, 1, 2]), length)

    assert inputs["seq_lens"].tolist() == [length] * 3
    assert v.double().sum(1).abs().max() < 30
    if length > 1:
        assert v[:, : length // 2].double().sum(1).abs().min() > 150


def test_a_needle_decides_for_every_head() -> None:
    inputs = draw(shape(40, 50), "needle")
    call = attention(shape(40, 50), inputs)
    sequences = torch.tensor([i for i in range(0, 40, 2) if call.key_lens[i] > 1])
    k, _ = call.fetch(sequences, 50)
    q = inputs["query"][sequences].unflatten(1, (2, 2)).float()
    scores = torch.einsum("nhgd,nthd->nhgt", q, k.float())
    lengths = inputs["seq_lens"][sequences].long()
    dead = torch.arange(50) >= lengths[:, None]
    best = scores.masked_fill(dead[:, None, None], -torch.inf).argmax(-1)

    assert (best == lengths[:, None, None] - 1).float().mean() > 0.8


def test_scores_of_the_peaked_regime_have_either_sign() -> None:
    inputs = draw(shape(1, 8), "peaked")
    k, _ = attention(shape(1, 8), inputs).fetch(torch.tensor([0]), 8)
    scores = torch.einsum("hd,td->ht", inputs["query"][0, :2].float(), k[0, :, 0].float()) / 4

    assert scores[0].min() > 89
    assert scores[1].max() < -104
