"""Attention within packed sequences: its definition by hand, its cost, and its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from atrex_problems_production.attention_forward.private import Operator, attention

from atrex_core import ArithmeticPath, Inapplicable, Pack, Scale, Tensors, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))
HARD = ("ragged", "flat", "peaked", "needle", "crowd")
RAGGED = ("ragged", "needle")

Check = Callable[..., None]


def shape(q_lens: list[int], k_lens: list[int] | None = None, heads: int = 2, size: int = 8) -> Any:
    axes: dict[str, Any] = {"seq_lens": q_lens, "num_heads": heads, "head_dim": size}
    if k_lens:
        axes["kv_lens"] = k_lens
    return Workload(id="case", axes=axes)


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def expected(workload: Workload, inputs: Tensors) -> Any:
    return PROBLEM.expected(workload, inputs)["out"].dense()


def slowly(inputs: Tensors) -> Any:
    """Attend in float64, one query and one head at a time."""
    q, k, v = (inputs[name].double() for name in "qkv")
    out = torch.full_like(q, torch.nan)
    q_starts, k_starts = inputs["cu_seqlens_q"].tolist(), inputs["cu_seqlens_k"].tolist()
    for i in range(len(q_starts) - 1):
        own = slice(k_starts[i], k_starts[i + 1])
        for row in range(q_starts[i], q_starts[i + 1]):
            for head in range(q.shape[1]):
                scores = (k[own, head] * q[row, head]).sum(-1) / q.shape[2] ** 0.5
                out[row, head] = (scores.softmax(0)[:, None] * v[own, head]).sum(0)
    return out


def lengths(inputs: Tensors, side: str) -> list[int]:
    found: list[int] = inputs[f"cu_seqlens_{side}"].diff().tolist()
    return found


def test_a_written_out_case() -> None:
    q = torch.tensor([[[2.0, 0, 0, 0]], [[0.0, 0, 0, 0]], [[5.0, 0, 0, 0]]]).bfloat16()
    k = torch.tensor([[[1.0, 0, 0, 0]], [[0.0, 0, 0, 0]], [[9.0, 0, 0, 0]]]).bfloat16()
    v = torch.tensor([[[4.0, 1, 0, 0]], [[8.0, 1, 0, 0]], [[3.0, 7, 0, 0]]]).bfloat16()
    starts = torch.tensor([0, 2, 3], dtype=torch.int32)
    inputs = {"q": q, "k": k, "v": v, "cu_seqlens_q": starts, "cu_seqlens_k": starts}
    workload = shape([2, 1], heads=1, size=4)

    # Query 0 scores 2 / sqrt(4) = 1 and 0: weights e / (e + 1) and 1 / (e + 1).
    assert expected(workload, inputs)[:, 0, :2].tolist() == [
        pytest.approx([5.075765685, 1.0]),
        pytest.approx([6.0, 1.0]),
        pytest.approx([3.0, 7.0]),
    ]
    assert PROBLEM.honest(workload, inputs)["out"][:, 0, 0].tolist() == [5.0625, 6.0, 3.0]


@pytest.mark.parametrize("id_", [w.id for w in PROBLEM.select(Scale.SMOKE)])
def test_truth_and_reference_agree_with_a_slow_loop(id_: str, assert_as_slow: Check) -> None:
    assert_as_slow(PROBLEM, id_, ("nominal", *HARD), slowly)


def test_nothing_depends_on_how_much_fits(assert_same_in_pieces: Check) -> None:
    assert_same_in_pieces(PROBLEM, shape([7, 0, 12, 3, 1], [10, 4, 1, 21, 6]), attention)


def test_the_reference_does_not_depend_on_how_much_fits(
    assert_reference_same_in_pieces: Check,
) -> None:
    assert_reference_same_in_pieces(PROBLEM, shape([7, 0, 12, 3, 1], [10, 4, 1, 21, 6]))


def test_the_cost_counts_keys_that_some_query_sees() -> None:
    workload = shape([2, 0, 1], [3, 5, 1], size=4)

    cost = PROBLEM.cost(workload)

    # 2 * 3 + 1 * 1 pairs, 3 queries, 4 keys, 2 heads of 4.
    assert cost.flops == {
        ArithmeticPath.BF16_MATRIX: 4 * 2 * 4 * 7,
        ArithmeticPath.FP32_VECTOR: 2 * (2 * 7 + 3 * 4),
    }
    assert cost.read_bytes == 2 * 2 * 4 * (3 + 2 * 4) + 4 * (4 + 4)
    assert cost.write_bytes == 2 * 2 * 4 * 3


def test_the_cost_follows_the_lengths_drawn() -> None:
    workload = shape([4, 4])
    inputs = dict(draw(workload, "nominal"))
    inputs["cu_seqlens_q"] = inputs["cu_seqlens_k"] = torch.tensor([0, 1, 8], dtype=torch.int32)

    assert PROBLEM.cost(workload).flops[ArithmeticPath.BF16_MATRIX] == 4 * 2 * 8 * 32
    assert PROBLEM.cost(workload, inputs).flops[ArithmeticPath.BF16_MATRIX] == 4 * 2 * 8 * 50


@pytest.mark.parametrize("regime", RAGGED)
def test_lengths_change_and_their_sums_do_not(regime: str) -> None:
    own, cross = [9] * 20, [30] * 20
    drawn = draw(shape(own), regime)
    crossed = draw(shape(own, cross), regime)

    assert lengths(drawn, "q") == lengths(drawn, "k") != own
    assert sum(lengths(drawn, "q")) == 180
    assert lengths(drawn, "q").count(0) == 1
    assert sum(lengths(crossed, "q")) == 180
    assert sum(lengths(crossed, "k")) == 600
    assert min(lengths(crossed, "k")) > 0
    assert lengths(crossed, "k") not in (cross, lengths(crossed, "q"))


def test_one_sequence_keeps_its_length() -> None:
    assert [lengths(draw(shape([5]), regime), "q") for regime in HARD] == [[5]] * 5


def test_a_needle_decides_and_is_the_last_key_or_the_first() -> None:
    inputs = draw(shape([20, 20, 20, 20], size=64), "needle")
    starts = inputs["cu_seqlens_q"].tolist()
    for i, length in enumerate(lengths(inputs, "q")):
        own = slice(starts[i], starts[i + 1])
        scores = torch.einsum("qhd,khd->hqk", inputs["q"][own].float(), inputs["k"][own].float())
        if length:
            best = (scores / 8).argmax(-1)
            place = 0 if i % 2 else length - 1
            assert (best == place).float().mean() > 0.9


def test_scores_of_the_peaked_regime_overflow_and_vanish() -> None:
    inputs = draw(shape([40], size=64), "peaked")
    scores = torch.einsum("qhd,khd->hqk", inputs["q"].float(), inputs["k"].float()) / 8

    assert scores[0].min() > 89
    assert scores[1].max() < -104
    assert scores[0, :, 20:].min() - scores[0, :, :20].max() > 89


@pytest.mark.parametrize("length", [1, 2, 37, 64, 1012])
def test_flat_keys_count_as_a_power_of_two_or_not_at_all(length: int) -> None:
    inputs = draw(shape([length], size=64), "flat")
    weights = (inputs["q"][0, 0].double() @ inputs["k"][:, 0].double().T / 8).softmax(0)
    counting = weights > 1e-80
    most = 1 << (length.bit_length() - 1)

    assert counting.sum() == most
    assert weights[counting].tolist() == pytest.approx([1 / most] * most, abs=1e-15)
    assert counting[-1]
    if length > 30:
        values = inputs["v"][counting, 0].double()
        assert values.mean(0).abs().max() < 6 / most**0.5
        assert values[: most // 2].mean(0).abs().min() > 200 / most**0.5


@pytest.mark.parametrize("length", [2, 37, 700, 5000])
def test_a_crowd_of_light_keys_counts_as_much_as_the_leading_one(length: int) -> None:
    inputs = draw(shape([length], heads=4, size=64), "crowd")
    scores = torch.einsum("qhd,khd->hqk", inputs["q"].double(), inputs["k"].double()) / 8
    weights = scores.softmax(-1)
    leading = weights.sum((0, 1)).argmax()
    crowd = weights.index_fill(-1, leading, 0)
    share = torch.einsum("hqk,khd->hqd", crowd, inputs["v"].double()).square().mean().sqrt()

    assert (crowd.amax(-1) / weights[..., leading] < 5e-3).float().mean() > 0.98
    assert 0.2 < share < 2
    assert 0.6 < expected(shape([length], heads=4, size=64), inputs).std() < 3


def test_nominal_inputs_are_as_published_but_for_few_loud_keys() -> None:
    workload = shape([900], heads=4, size=64)
    published, nominal = draw(workload, "published"), draw(workload, "nominal")
    other = draw(workload, "nominal", seed=1)
    loud = (published["k"] != nominal["k"]).flatten(1).any(1).nonzero().flatten().tolist()
    else_where = (other["v"].float().abs() > 8).flatten(1).any(1).nonzero().flatten().tolist()

    assert published["q"].equal(nominal["q"])
    assert 100 <= len(loud) <= 113
    assert loud != else_where


def test_mutants_of_a_single_key_say_what_cannot_matter() -> None:
    workload = shape([1])
    inputs = draw(workload, "nominal")
    for name in ("unscaled", "coarse_weights", "causal", "one_sequence", "keys_where_queries_are"):
        with pytest.raises(Inapplicable):
            PROBLEM.mutants()[name](workload, inputs)
