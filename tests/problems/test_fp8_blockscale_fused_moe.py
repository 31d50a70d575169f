"""Gated experts in fp8: the definition by hand, the cost, and what the inputs contain."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from atrex_problems_production.fp8_blockscale_fused_moe.private import Operator

from atrex_core import ArithmeticPath, DType, Inapplicable, Pack, Tensors, Workload
from atrex_core.comparison import compare

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

STRICT = ("nominal", "skewed", "blocks", "ends", "light", "saturated", "tails", "cancelling")
LARGEST = {"fp8_e4m3fn": 448.0, "fp8_e4m3fnuz": 240.0}
KINDS = {"fp8_e4m3fn": torch.float8_e4m3fn, "fp8_e4m3fnuz": torch.float8_e4m3fnuz}


def shape(
    tokens: int,
    hidden: int,
    intermediate: int,
    experts: int,
    top_k: int,
    *,
    dtype: str = "fp8_e4m3fn",
    block: tuple[int, int] = (128, 128),
) -> Workload:
    blocks = dict(zip(("scale_block_n", "scale_block_k"), block, strict=True))
    init = {"num_experts": experts, "intermediate_size": intermediate, "top_k": top_k, **blocks}
    axes = {"token_count": tokens, "hidden_size": hidden, "dtype": dtype, **init}
    return Workload(id="case", axes=axes, init=init)


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def unscaled(values: Any, scales: Any, rows: int, columns: int) -> Any:
    """Multiply every value by the scale of its block, by index."""
    i, j = torch.arange(values.shape[-2]) // rows, torch.arange(values.shape[-1]) // columns
    return values.double() * scales.double()[..., i[:, None], j]


def slowly(workload: Workload, inputs: Tensors) -> Any:
    """Compute one token and one route at a time; clamp."""
    axes = workload.axes
    n, k, half = axes["scale_block_n"], axes["scale_block_k"], axes["intermediate_size"]
    x = unscaled(inputs["hidden_states"], inputs["a_scale"], 1, k)
    w1 = unscaled(inputs["w1"], inputs["fc1_scale"], n, k)
    w2 = unscaled(inputs["w2"], inputs["fc2_scale"], n, k)
    out = torch.zeros_like(x)
    for t in range(len(x)):
        for expert, weight in zip(inputs["topk_ids"][t], inputs["topk_weights"][t], strict=True):
            z = w1[expert] @ x[t]
            a = z[:half] / (1 + torch.exp(-z[:half])) * z[half:]
            out[t] += weight.double() * (w2[expert] @ a)
    return out.clamp(-LARGEST[axes["dtype"]], LARGEST[axes["dtype"]])


def test_a_written_out_case() -> None:
    workload = shape(1, 2, 1, 2, 1, block=(1, 1))
    fp8 = torch.float8_e4m3fn
    inputs = {
        "hidden_states": torch.tensor([[1.0, 2.0]]).to(fp8),
        "w1": torch.tensor([[[0.0, 0.0]] * 2, [[1.0, 0.5], [4.0, -1.0]]]).to(fp8),
        "w2": torch.tensor([[[0.0], [0.0]], [[3.0], [-8.0]]]).to(fp8),
        "topk_weights": torch.tensor([[2.0]]),
        "topk_ids": torch.tensor([[1]], dtype=torch.int32),
        "a_scale": torch.tensor([[0.5, 0.25]]),
        "fc1_scale": torch.tensor([[[1.0, 1.0]] * 2, [[2.0, 4.0], [10.0, 20.0]]]),
        "fc2_scale": torch.tensor([[[1.0], [1.0]], [[1.0], [100.0]]]),
    }
    # x = 0.5, 0.5; gate = 2 x 0.5 + 2 x 0.5 = 2, up = 40 x 0.5 - 20 x 0.5 = 10.
    a = 2 / (1 + math.exp(-2)) * 10

    expected = PROBLEM.expected(workload, inputs)["out"].dense()
    assert expected.tolist() == [[pytest.approx(2 * 3 * a), -448.0]]
    # 105.68 lies between the codes 104 and 112.
    assert PROBLEM.honest(workload, inputs)["out"].float().tolist() == [[104.0, -448.0]]


@pytest.mark.parametrize("dtype", ["fp8_e4m3fn", "fp8_e4m3fnuz"])
@pytest.mark.parametrize("regime", ["published", *STRICT])
def test_truth_and_reference_agree_with_a_slow_loop(regime: str, dtype: str) -> None:
    workload = shape(5, 32, 64, 4, 3, dtype=dtype, block=(16, 32))
    inputs = draw(workload, regime)
    slow = slowly(workload, inputs)
    expected = PROBLEM.expected(workload, inputs)["out"].dense()
    honest = PROBLEM.honest(workload, inputs)["out"]

    assert (expected - slow).abs().max() < 1e-12 * slow.abs().max()
    assert honest.dtype == KINDS[dtype]
    assert (honest.double() - slow).norm() < 0.035 * slow.norm()


def test_inputs_are_quantised_to_the_largest_value_of_each_block() -> None:
    workload = shape(4, 256, 128, 2, 1, dtype="fp8_e4m3fnuz")
    inputs = draw(workload, "published")
    tiles = inputs["w1"].float().view(2, 2, 128, 2, 128).abs().amax((2, 4))
    groups = inputs["hidden_states"].float().view(4, 2, 128).abs().amax(-1)

    assert (tiles == 240).all()
    assert (groups == 240).all()
    assert unscaled(inputs["w1"], inputs["fc1_scale"], 128, 128).std() == pytest.approx(1, rel=0.02)
    x = unscaled(inputs["hidden_states"], inputs["a_scale"], 1, 128)
    assert x.std() == pytest.approx(0.03, rel=0.1)


def test_cost_counts_the_experts_that_were_drawn() -> None:
    workload = shape(3, 256, 128, 5, 2)
    inputs = dict(draw(workload, "nominal"))
    inputs["topk_ids"] = torch.tensor([[0, 4], [4, 1], [1, 0]], dtype=torch.int32)
    cost = PROBLEM.cost(workload, inputs)

    assert cost.flops == {
        ArithmeticPath.FP8_MATRIX: 6 * 6 * 256 * 128,
        ArithmeticPath.FP32_VECTOR: 6 * 3 * 128 + (6 + 3) * 256,
    }
    # Rows, their scales, routes; three experts with 4 scales for w1 and 2 for w2.
    assert cost.read_bytes == 3 * 256 + 3 * 2 * 4 + 6 * 8 + 3 * (3 * 256 * 128 + 4 * (4 + 2))
    assert cost.write_bytes == 3 * 256


@pytest.mark.parametrize("regime", [r for r in STRICT if r != "saturated"])
def test_outputs_stay_in_range_and_well_above_its_lower_end(regime: str) -> None:
    for dtype, largest in LARGEST.items():
        for sizes in ((8, 512, 256, 5, 4), (8, 256, 384, 4, 1)):
            workload = shape(*sizes, dtype=dtype)
            out = PROBLEM.expected(workload, draw(workload, regime))["out"].dense()

            assert out.abs().max() < largest
            assert out.std() > largest / 200


@pytest.mark.parametrize("dtype", ["fp8_e4m3fn", "fp8_e4m3fnuz"])
def test_a_share_of_the_saturated_outputs_is_out_of_range(dtype: str) -> None:
    workload = shape(8, 512, 256, 5, 4, dtype=dtype)
    inputs = draw(workload, "saturated")
    out = PROBLEM.expected(workload, inputs)["out"].dense()
    gates = unscaled(inputs["w1"], inputs["fc1_scale"], 128, 128)[0, :256]
    z = unscaled(inputs["hidden_states"], inputs["a_scale"], 1, 128) @ gates.T

    assert 0.01 < (out.abs() == LARGEST[dtype]).double().mean() < 0.08
    assert z.max() > 89
    assert z.min() < -89


def test_blocks_hold_scales_that_differ_and_undo_each_other() -> None:
    workload = shape(4, 512, 512, 3, 2)
    inputs = draw(workload, "blocks")
    across = inputs["a_scale"].mean(0).log2()
    assert ((across[1:] - across[:-1]).abs() > 3).all()

    x = unscaled(inputs["hidden_states"], inputs["a_scale"], 1, 128)
    w1 = unscaled(inputs["w1"], inputs["fc1_scale"], 128, 128)
    groups = (x @ w1[0, 512:].T).view(4, 4, 128).abs().amax((0, 2)).log2()
    assert ((groups[1:] - groups[:-1]).abs() > 15).all()

    # Each block of hidden columns, and each group of activations, contributes as much as others.
    parts = [(x[:, c : c + 128] @ w1[0, :128, c : c + 128].T).std() for c in range(0, 512, 128)]
    assert max(parts) / min(parts) < 2
    out = PROBLEM.expected(workload, inputs)["out"].dense().view(4, 4, 128).std((0, 2))
    assert out.max() / out.min() > 1.5


def test_routing_is_distinct_and_as_each_regime_says() -> None:
    workload = shape(64, 256, 128, 16, 4)
    for regime in ("published", *STRICT):
        ids = draw(workload, regime)["topk_ids"].sort(-1).values
        assert (ids[:, 1:] > ids[:, :-1]).all()
    skewed, ends = draw(workload, "skewed"), draw(workload, "ends")
    counts = skewed["topk_ids"].flatten().bincount(minlength=16)

    assert (counts == 0).any()
    assert counts.sort(descending=True).values[:5].sum() > 0.9 * 256
    assert skewed["topk_weights"].sum(-1).min() > 1.4
    assert (ends["topk_ids"] == 0).any(-1).all()
    assert (ends["topk_ids"] == 15).any(-1).all()
    assert (ends["topk_weights"] == torch.tensor([16, 0.25, 0.25, 16])).all()
    light = draw(workload, "light")
    assert (light["topk_ids"] % 2 == torch.tensor([0, 1, 0, 1])).all()
    assert (light["topk_weights"][:, 1::2].amax(-1) < light["topk_weights"].amax(-1) / 1000).all()


def test_activations_may_be_e4m3_in_groups_but_not_narrower() -> None:
    workload = next(w for w in PROBLEM.workloads if w.id == "smoke-21x256x384-fn")
    (spec,) = PROBLEM.outputs(workload)
    rule = PROBLEM.tolerance(spec)
    inputs = draw(workload, "ends")
    expected, honest = (f(workload, inputs)["out"] for f in (PROBLEM.expected, PROBLEM.honest))

    def judge(out: Any) -> Any:
        return compare(spec, rule, actual=out, expected=expected, honest=honest)

    groups = PROBLEM.variants()["fp8_groups"](workload, inputs)["out"]
    narrower = PROBLEM.mutants()["e5m2_activations"](workload, inputs)["out"]
    assert judge(groups).passed
    assert not judge(narrower).passed
    assert judge(narrower).details["wrong"] == 0


@pytest.mark.parametrize("dtype", ["fp8_e4m3fn", "fp8_e4m3fnuz"])
def test_the_first_and_the_last_expert_cancel_where_there_are_others(dtype: str) -> None:
    workload = shape(6, 256, 256, 5, 3, dtype=dtype)
    inputs = draw(workload, "ends")
    others = inputs["topk_weights"].clone()
    others[:, [0, -1]] = 0
    whole, part = (
        PROBLEM.expected(workload, {**inputs, "topk_weights": weights})["out"].dense()
        for weights in (inputs["topk_weights"], others)
    )

    assert (whole - part).abs().max() < 1e-9 * part.abs().max()
    assert part.std() > LARGEST[dtype] / 200


def test_ends_of_the_first_sum_cancel_and_the_last_block_is_loud() -> None:
    workload = shape(5, 512, 512, 4, 3)
    inputs = draw(workload, "cancelling")
    x = unscaled(inputs["hidden_states"], inputs["a_scale"], 1, 128)
    w1 = unscaled(inputs["w1"], inputs["fc1_scale"], 128, 128)[1]
    z = x @ w1.T

    assert (z - x[:, 1:-1] @ w1[:, 1:-1].T).abs().max() < 1e-9
    assert (x[:, :1] @ w1[:512, :1].T).std() > 40 * z[:, :512].std()
    assert z[:, -128:].std() > 10 * z[:, 512:-128].std()
    assert (inputs["topk_weights"] < 0).any(-1).all()
    assert (inputs["topk_weights"] == 0).any(-1).all()


def test_tails_hold_gates_below_zero_in_rows_about_equally_loud() -> None:
    workload = shape(8, 512, 256, 4, 2)
    inputs = draw(workload, "tails")
    x = unscaled(inputs["hidden_states"], inputs["a_scale"], 1, 128)
    gates = x @ unscaled(inputs["w1"], inputs["fc1_scale"], 128, 128)[:, :256].mT
    rows = PROBLEM.expected(workload, inputs)["out"].dense().std(-1)

    assert gates.mean((0, 2)).tolist() == pytest.approx([-6, -4, -5, -3] * 2, rel=0.15)
    assert (gates > 0).double().mean() < 0.01
    assert rows.max() / rows.min() < 8
    assert (inputs["topk_weights"] < 0.05).all()


def test_mutants_say_where_they_cannot_be_wrong() -> None:
    workload = shape(1, 256, 128, 4, 2)

    for name in ("default_scale_block_n", "default_scale_block_k"):
        with pytest.raises(Inapplicable, match="default is right"):
            PROBLEM.mutants()[name](workload, draw(workload, "nominal"))
    with pytest.raises(Inapplicable, match="a sum of two"):
        PROBLEM.mutants()["routes_added_in_bf16"](workload, draw(workload, "nominal"))
    with pytest.raises(Inapplicable, match="no other token"):
        PROBLEM.mutants()["a_scale_of_next_token"](workload, draw(workload, "nominal"))


def test_the_published_type_is_the_default() -> None:
    published = next(w for w in PROBLEM.workloads if w.id == "0")

    assert PROBLEM.inputs(published)[0].dtype is DType.FP8_E4M3FNUZ
    assert PROBLEM.outputs(published)[0].dtype is DType.FP8_E4M3FNUZ


def test_its_name_is_not_released() -> None:
    assert PROBLEM.release_id == "op_b815"
