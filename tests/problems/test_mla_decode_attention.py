"""Latent attention: its definition by hand, its cost, and its inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from atrex_problems_production._attention import exact
from atrex_problems_production.mla_decode_attention.private import Operator, attention
from attrs import evolve

from atrex_core import ArithmeticPath, Pack, Scale, Tensors, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))
HARD = ("ragged", "flat", "peaked", "needle", "crowd")
RAGGED = ("ragged", "needle")


def shape(batch: int, tokens: int, heads: int = 2, latent: int = 12, rope: int = 4) -> Workload:
    init = {"nhead": heads, "kv_lora_rank": latent, "qk_rope_head_dim": rope}
    return Workload(id="case", init=init, axes={"batch_size": batch, "ctx_len": tokens, **init})


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def expected(workload: Workload, inputs: Tensors) -> Any:
    return PROBLEM.expected(workload, inputs)["out"].dense()


def slowly(inputs: Tensors, latent: int) -> Any:
    """Attend in float64, one sequence and one head at a time."""
    q, rows = inputs["q"].double(), inputs["kv_cache"][:, 0].double()
    out = torch.full((*q.shape[:2], latent), torch.nan, dtype=torch.float64)
    start = 0
    for i, length in enumerate(inputs["seq_lens"].tolist()):
        own = rows[start : start + length]
        for head in range(q.shape[1]):
            scores = (own * q[i, head]).sum(-1) / q.shape[2] ** 0.5
            out[i, head] = (scores.softmax(0)[:, None] * own[:, :latent]).sum(0)
        start += length
    return out


def test_a_written_out_case() -> None:
    workload = shape(2, 2, heads=1, latent=3, rope=1)
    inputs = {
        "q": torch.tensor([[[0.0, 0, 0, 2]], [[1.0, 1, 1, 1]]]).bfloat16(),
        "kv_cache": torch.tensor(
            [[[4.0, 1, 0, 1]], [[8.0, 1, 0, 0]], [[5.0, 6, 7, 8]], [[1e4, 1e4, 1e4, 1e4]]]
        ).bfloat16(),
        "seq_lens": torch.tensor([2, 1], dtype=torch.int32),
    }

    # The last element decides, 2 / sqrt(4) = 1 against 0, and is no part of the value.
    assert expected(workload, inputs)[:, 0].tolist() == [
        pytest.approx([5.075765685, 1.0, 0.0]),
        pytest.approx([5.0, 6.0, 7.0]),
    ]
    assert PROBLEM.honest(workload, inputs)["out"][:, 0, 0].tolist() == [5.0625, 5.0]


@pytest.mark.parametrize("id_", [w.id for w in PROBLEM.select(Scale.SMOKE)])
def test_truth_and_reference_agree_with_a_slow_loop(id_: str) -> None:
    workload = next(w for w in PROBLEM.workloads if w.id == id_)
    for regime in ("nominal", *HARD):
        inputs = draw(workload, regime, seed=3)
        slow = slowly(inputs, workload.axes["kv_lora_rank"])

        assert (expected(workload, inputs) - slow).abs().max() < 1e-11
        honest = PROBLEM.honest(workload, inputs)["out"].double()
        assert ((honest - slow).abs() <= 2.0**-8 * slow.abs() + 1e-4).all()


def test_nothing_depends_on_how_much_fits() -> None:
    workload = shape(6, 11, heads=4)
    inputs = draw(workload, "ragged", seed=1)
    whole = expected(workload, inputs)

    for fetched in (1, 200, 1000):
        small = evolve(attention(workload, inputs), fetched=fetched, scores=60, packed=100)
        assert (small.by(exact).dense() - whole).abs().max() < 1e-12


def test_each_live_row_is_read_once() -> None:
    workload = shape(3, 5)
    inputs = {"seq_lens": torch.tensor([4, 1, 2], dtype=torch.int32)}

    full, cost = PROBLEM.cost(workload), PROBLEM.cost(workload, inputs)

    # 2 heads; rows of 16 as keys and of 12 as values.
    assert full.flops[ArithmeticPath.BF16_MATRIX] == 2 * 2 * 15 * (16 + 12)
    assert cost.flops == {
        ArithmeticPath.BF16_MATRIX: 2 * 2 * 7 * (16 + 12),
        ArithmeticPath.FP32_VECTOR: 2 * (2 * 7 + 3 * 12),
    }
    assert cost.read_bytes == 2 * 16 * (3 * 2 + 7) + 4 * 3
    assert cost.write_bytes == 2 * 3 * 2 * 12


def test_the_published_work_has_a_quarter_more() -> None:
    workload = next(w for w in PROBLEM.workloads if w.id == "0")

    published = PROBLEM.published_cost(workload).flops[ArithmeticPath.BF16_MATRIX]

    assert published == 180_649_984
    assert published / PROBLEM.cost(workload).flops[ArithmeticPath.BF16_MATRIX] == pytest.approx(
        1.2666, rel=1e-3
    )


def test_large_parts_of_flat_rows_cancel() -> None:
    inputs = draw(shape(3, 20), "flat")
    sums = inputs["kv_cache"][:48, 0].double().unflatten(0, (3, 16)).cumsum(1).abs()

    assert inputs["seq_lens"].tolist() == [16, 16, 16]
    assert sums[:, 7].min() > 8 * 40
    assert sums[:, 15].max() < 40


@pytest.mark.parametrize("regime", RAGGED)
def test_lengths_are_ragged_and_what_is_left_over_is_loud(regime: str) -> None:
    inputs = draw(shape(30, 20), regime)
    lengths, total = inputs["seq_lens"], int(inputs["seq_lens"].sum())

    assert lengths.min() >= 1
    assert lengths.max() > 20
    assert len(lengths.unique()) > 10
    assert total < 600
    assert (inputs["kv_cache"][total:].abs() == torch.tensor(10_000).bfloat16()).all()
    scores = inputs["q"][-1].float() @ inputs["kv_cache"][total:, 0].float().T
    assert (scores.amax(0) > 10_000).all()
    assert (inputs["kv_cache"][:total].abs() < 100).all()


def test_one_sequence_is_shorter_than_its_share() -> None:
    for regime in RAGGED:
        assert 1 <= draw(shape(1, 9), regime)["seq_lens"].item() < 9
    for regime in ("nominal", "peaked", "crowd"):
        assert draw(shape(1, 9), regime)["seq_lens"].item() == 9
    assert draw(shape(1, 9), "flat")["seq_lens"].item() == 8
    assert draw(shape(1, 1), "ragged")["seq_lens"].item() == 1


def test_no_value_holds_the_offset_of_the_peaked_regime() -> None:
    inputs = draw(shape(3, 8), "peaked")

    assert inputs["kv_cache"][:, 0, -1].tolist() == ([32] * 4 + [64] * 4) * 3
    assert inputs["kv_cache"][:, 0, :12].abs().max() < 8
    assert inputs["q"][0, :, -1].tolist() == [16, -16]


def test_the_latent_scale_is_another() -> None:
    workload = shape(4, 10)
    inputs = draw(workload, "nominal")

    right = expected(workload, inputs)
    wrong = PROBLEM.mutants()["scale_of_latent"](workload, inputs)["out"].double()

    assert (right - wrong).norm() > 0.02 * right.norm()
