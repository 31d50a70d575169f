"""Gated experts in bf16: the definition by hand, the cost, and what the inputs contain."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from atrex_problems_production._moe import Sizes
from atrex_problems_production.fused_moe.private import Operator

from atrex_core import ArithmeticPath, Inapplicable, Pack, Tensors, Workload
from atrex_core.comparison import compare

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

STRICT = ("nominal", "skewed", "scales", "ends", "light", "gates", "tails", "cancelling")


def shape(tokens: int, hidden: int, intermediate: int, experts: int, top_k: int) -> Workload:
    init = {"num_experts": experts, "intermediate_size": intermediate, "top_k": top_k}
    return Workload(
        id="case", axes={"token_count": tokens, "hidden_size": hidden, **init}, init=init
    )


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def slowly(workload: Workload, inputs: Tensors) -> Any:
    """Compute one token, one route, one sum at a time."""
    half = workload.axes["intermediate_size"]
    out = torch.zeros(inputs["hidden_states"].shape, dtype=torch.float64)
    for t, x in enumerate(inputs["hidden_states"].double()):
        routes = zip(inputs["topk_ids"][t], inputs["topk_weights"][t], strict=True)
        for expert, weight in routes:
            z = [float((row * x).sum()) for row in inputs["w1"][expert].double()]
            a = [z[i] / (1 + math.exp(-z[i])) * z[i + half] for i in range(half)]
            for h, row in enumerate(inputs["w2"][expert].double()):
                out[t, h] += float(weight) * float(
                    (row * torch.tensor(a, dtype=torch.float64)).sum()
                )
    return out


def test_a_written_out_case() -> None:
    workload = shape(2, 1, 1, 3, 2)
    inputs = {
        "hidden_states": torch.tensor([[2.0], [-1.0]]).bfloat16(),
        "w1": torch.tensor([[[1.0], [3.0]], [[0.5], [1.0]], [[7.0], [7.0]]]).bfloat16(),
        "w2": torch.tensor([[[0.5]], [[4.0]], [[7.0]]]).bfloat16(),
        "topk_weights": torch.tensor([[0.25, 0.5], [2.0, 1.0]]),
        "topk_ids": torch.tensor([[0, 1], [1, 0]], dtype=torch.int32),
    }

    def silu(x: float) -> float:
        return x / (1 + math.exp(-x))

    # x = 2: gate 2, up 6 in expert 0; gate 1, up 2 in expert 1. x = -1: -1, -3; -0.5, -1.
    right = [
        [0.25 * silu(2) * 6 * 0.5 + 0.5 * silu(1) * 2 * 4],
        [2 * silu(-0.5) * -1 * 4 + 1 * silu(-1) * -3 * 0.5],
    ]
    assert PROBLEM.expected(workload, inputs)["out"].dense().tolist() == [
        pytest.approx(row) for row in right
    ]
    honest = PROBLEM.honest(workload, inputs)["out"]
    assert honest.dtype == torch.float32
    assert honest.tolist() == [pytest.approx(row, rel=1e-6) for row in right]


@pytest.mark.parametrize("regime", ["published", *STRICT])
def test_truth_and_reference_agree_with_a_slow_loop(regime: str) -> None:
    workload = shape(5, 8, 6, 4, 3)
    inputs = draw(workload, regime)
    slow = slowly(workload, inputs)
    scale = slow.abs().max()

    assert (PROBLEM.expected(workload, inputs)["out"].dense() - slow).abs().max() < 1e-12 * scale
    assert (PROBLEM.honest(workload, inputs)["out"] - slow).abs().max() < 1e-5 * scale


def test_truth_in_blocks_of_tokens_is_the_truth() -> None:
    workload = shape(7, 8, 6, 4, 2)
    lazy = PROBLEM.expected(workload, draw(workload, "skewed"))["out"]
    whole = lazy.dense()
    lazy.step = 3

    assert (lazy.dense() - whole).abs().max() < 1e-12


def test_experts_are_repeated_in_the_published_draw_and_with_gates_alone() -> None:
    workload = shape(64, 8, 4, 8, 4)
    for regime in STRICT:
        ids = draw(workload, regime)["topk_ids"].sort(-1).values
        repeated = ids[:, 1:] == ids[:, :-1]
        assert repeated[:, 0::2].all() if regime == "gates" else not repeated.any()
    ids = draw(workload, "published")["topk_ids"].sort(-1).values

    assert (ids[:, 1:] == ids[:, :-1]).any()


def test_light_routes_are_as_loud_as_others() -> None:
    workload = shape(64, 32, 32, 6, 3)
    inputs = draw(workload, "light")
    weights = inputs["topk_weights"]
    light = {**inputs, "topk_weights": weights.where(weights < 1e-3, 0)}
    heavy = {**inputs, "topk_weights": weights.where(weights > 1e-3, 0)}
    parts = [PROBLEM.expected(workload, i)["out"].dense().std() for i in (light, heavy)]

    assert (weights[:, 1] < 0.001 * weights.amax(-1)).all()
    assert (inputs["topk_ids"] % 2 == torch.tensor([0, 1, 0])).all()
    assert 0.3 < parts[0] / parts[1] < 3


def test_a_repeated_expert_takes_both_routes_and_costs_one() -> None:
    workload = shape(1, 4, 2, 3, 2)
    inputs = dict(draw(workload, "skewed"))
    inputs["topk_ids"] = torch.tensor([[2, 2]], dtype=torch.int32)
    inputs["topk_weights"] = torch.tensor([[0.75, 0.5]])
    once = {**inputs, "topk_weights": torch.tensor([[1.25, 0.0]])}
    twice, single = (PROBLEM.expected(workload, i)["out"].dense() for i in (inputs, once))

    assert (twice - single).abs().max() < 1e-12
    assert PROBLEM.cost(workload, inputs).flops == {
        ArithmeticPath.BF16_MATRIX: 6 * 4 * 2,
        ArithmeticPath.FP32_VECTOR: 3 * 2 + 4,
    }


def test_cost_counts_the_experts_that_were_drawn() -> None:
    workload = shape(3, 4, 2, 5, 2)
    inputs = dict(draw(workload, "nominal"))
    inputs["topk_ids"] = torch.tensor([[0, 4], [4, 1], [1, 0]], dtype=torch.int32)
    cost = PROBLEM.cost(workload, inputs)

    # Six routes: 48 for the products of each, 3 x 2 for its values; 8 to weigh and add, but for
    # the first route of a token, which is added to nothing.
    assert cost.flops == {ArithmeticPath.BF16_MATRIX: 288, ArithmeticPath.FP32_VECTOR: 36 + 36}
    # Rows 24, routes 6 x 8, and three experts of 24 values.
    assert cost.read_bytes == 24 + 48 + 3 * 48
    assert cost.write_bytes == 48


def test_cost_without_inputs_expects_distinct_experts() -> None:
    one = Sizes(tokens=1, hidden=8, intermediate=8, experts=128, top_k=8)
    two = Sizes(tokens=2, hidden=8, intermediate=8, experts=128, top_k=8)

    assert one.occupied == pytest.approx(8)
    # The second token brings eight experts, of which 8 / 128 are there already.
    assert two.occupied == pytest.approx(15.5)
    assert (one.published_occupied, two.published_occupied) == (8, 16)


def test_nominal_values_are_as_published_but_for_a_few() -> None:
    workload = next(w for w in PROBLEM.workloads if w.id == "smoke-37x96x80")
    inputs = draw(workload, "nominal")
    loud = inputs["hidden_states"] == 4.0

    assert 1 <= loud.sum() <= 1 + loud.numel() // 65536
    assert inputs["hidden_states"][~loud].float().std().item() == pytest.approx(0.1, rel=0.05)
    assert inputs["w1"].float().std().item() == pytest.approx(96**-0.5, rel=0.05)
    assert inputs["w2"].float().std().item() == pytest.approx(80**-0.5, rel=0.05)
    assert (inputs["topk_weights"].sum(-1) - 1).abs().max() < 1e-6


def test_skewed_routing_overloads_some_experts_and_spares_one() -> None:
    inputs = draw(shape(400, 8, 4, 16, 4), "skewed")
    counts = inputs["topk_ids"].flatten().bincount(minlength=16)

    assert (counts == 0).sum() >= 1
    assert counts.sort(descending=True).values[:5].sum() > 0.9 * 1600
    assert inputs["topk_weights"].sum(-1).min() > 1.4


def test_scales_differ_between_experts_and_between_routes() -> None:
    inputs = draw(shape(64, 32, 16, 32, 4), "scales")
    sizes = inputs["w2"].float().std((1, 2))

    assert sizes.max() / sizes.min() > 20
    assert inputs["topk_weights"].max() / inputs["topk_weights"].min() > 300


@pytest.mark.parametrize("top_k", [1, 3])
def test_ends_choose_the_first_and_the_last_expert(top_k: int) -> None:
    inputs = draw(shape(6, 8, 4, 9, top_k), "ends")
    ids = inputs["topk_ids"]

    assert ((ids == 0) | (ids == 8)).any(-1).all()
    assert (ids == 0).any()
    assert (ids == 8).any()
    loud = (ids == 0) | (ids == 8) if top_k > 2 else torch.zeros_like(ids, dtype=torch.bool)
    assert (inputs["topk_weights"][~loud] == torch.tensor(1 / top_k)).all()


def test_the_first_and_the_last_expert_cancel_where_there_are_others() -> None:
    workload = shape(6, 64, 48, 9, 4)
    inputs = draw(workload, "ends")
    others = inputs["topk_weights"].clone()
    others[:, [0, -1]] = 0

    assert (inputs["topk_ids"][:, 0] == 0).all()
    assert (inputs["topk_ids"][:, -1] == 8).all()
    whole, part = (
        PROBLEM.expected(workload, {**inputs, "topk_weights": weights})["out"].dense()
        for weights in (inputs["topk_weights"], others)
    )
    assert (whole - part).abs().max() < 1e-12 * part.abs().max()
    one_end = others.clone()
    one_end[:, 0] = inputs["topk_weights"][:, 0]
    loud = PROBLEM.expected(workload, {**inputs, "topk_weights": one_end})["out"].dense()
    assert loud.std() > 10 * part.std()


def test_gates_overflow_exponentials_and_outputs_stay_finite() -> None:
    workload = shape(16, 64, 32, 4, 2)
    inputs = draw(workload, "gates")
    z = inputs["hidden_states"].float() @ inputs["w1"][0, :32].float().T

    assert z.max() > 89
    assert z.min() < -89
    assert PROBLEM.honest(workload, inputs)["out"].isfinite().all()


def test_tails_hold_gates_below_zero_that_bf16_holds() -> None:
    workload = shape(8, 64, 48, 4, 2)
    inputs = draw(workload, "tails")
    gates = inputs["hidden_states"].double() @ inputs["w1"][:, :48].double().mT
    rows = PROBLEM.expected(workload, inputs)["out"].dense().std(-1)

    assert -8 <= gates.min() < -7
    assert -2 < gates.max() < -1
    assert (gates[:, 0].max() < -4).all()
    assert (gates == gates.bfloat16()).all()
    assert rows.max() / rows.min() < 8
    assert (inputs["topk_weights"] < 0.05).all()
    ratio = inputs["topk_weights"].bfloat16().float() / inputs["topk_weights"]
    assert (ratio < 0.9967).all()


def test_ends_of_both_sums_cancel() -> None:
    workload = shape(5, 64, 48, 4, 3)
    inputs = draw(workload, "cancelling")
    x, w1, w2 = (inputs[name].double() for name in ("hidden_states", "w1", "w2"))
    z = x @ w1[1].T
    a = z[:, :48].sigmoid() * z[:, :48] * z[:, 48:]

    assert (z - x[:, 1:-1] @ w1[1, :, 1:-1].T).abs().max() < 1e-9
    assert (x[:, :1] @ w1[1, :, :1].T).std() > 20 * z.std()
    out, middle = a @ w2[1].T, a[:, 12:36] @ w2[1, :, 12:36].T
    assert (out - middle).abs().max() < 1e-9
    assert (a[:, :12] @ w2[1, :, :12].T).std() > 8 * out.std()
    assert (inputs["topk_weights"] < 0).any(-1).all()
    assert (inputs["topk_weights"] == 0).any(-1).all()


def test_mutants_say_where_they_cannot_be_wrong() -> None:
    mutants = PROBLEM.mutants()
    single, alone = shape(6, 8, 4, 9, 1), shape(1, 8, 4, 9, 2)

    with pytest.raises(Inapplicable, match="one route only"):
        mutants["lightest_route_dropped"](single, draw(single, "nominal"))
    with pytest.raises(Inapplicable, match="one route only"):
        mutants["repeated_expert_counted_once"](single, draw(single, "nominal"))
    with pytest.raises(Inapplicable, match="a sum of two"):
        mutants["routes_added_in_bf16"](alone, draw(alone, "nominal"))
    with pytest.raises(Inapplicable, match="few rows"):
        mutants["weights_in_bf16"](alone, draw(alone, "nominal"))
    with pytest.raises(Inapplicable, match="more than its capacity"):
        mutants["over_capacity_dropped"](alone, draw(alone, "nominal"))


def test_an_activation_of_its_own_kernel_is_honest_and_fp8_is_not() -> None:
    workload = shape(40, 128, 96, 4, 2)
    (spec,) = PROBLEM.outputs(workload)
    inputs = draw(workload, "tails")
    expected, honest = (f(workload, inputs)["out"] for f in (PROBLEM.expected, PROBLEM.honest))

    def passes(out: Any) -> bool:
        return compare(spec, PROBLEM.tolerance(spec), out, expected, honest).passed

    assert passes(PROBLEM.variants()["rounded_silu"](workload, inputs)["out"])
    assert not passes(PROBLEM.mutants()["fp8_activations"](workload, inputs)["out"])


def test_its_name_is_not_released() -> None:
    assert PROBLEM.release_id == "op_7d3c"
