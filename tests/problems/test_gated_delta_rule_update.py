"""The gated delta rule: steps by hand, chunks against steps, its pool, cost and inputs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from atrex_problems_production.gated_delta_rule_update.private import Operator

from atrex_core import ArithmeticPath, Pack, Tensors, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

REGIMES = ("nominal", "carried", "repeated", "gated", "uneven")


def shape(tokens: int, *, batch: int = 1, states: int = 4, **init: Any) -> Workload:
    axes = {
        "batch_size": batch,
        "token_count": tokens,
        "num_q_heads": 2,
        "num_v_heads": 4,
        "key_dim": 8,
        "value_dim": 4,
        "state_count": states,
        "qk_l2norm": init.get("use_qk_l2norm", True),
    }
    return Workload(id="case", axes=axes, init=init)


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def steps(workload: Workload, inputs: Tensors) -> tuple[Any, Any]:
    """Take one token after another in float64, as the definition has it."""
    x = {name: t.double() if t.is_floating_point() else t for name, t in inputs.items()}
    init, heads = workload.init, x["v"].shape[2]
    beta, threshold = init.get("softplus_beta", 1.0), init.get("softplus_threshold", 20.0)
    scale = init.get("scale", x["q"].shape[-1] ** -0.5)
    q, k = (x[name].repeat_interleave(heads // x[name].shape[2], 2) for name in "qk")
    if init.get("use_qk_l2norm", True):
        q, k = (y / y.norm(dim=-1, keepdim=True).clamp(min=1e-6) for y in (q, k))
    pool = x["initial_state"].clone()
    m = pool[x["initial_state_indices"].long()]
    out = torch.zeros_like(x["v"])
    for t in range(out.shape[1]):
        z = x["a"][:, t] + x["dt_bias"]
        step = torch.where(beta * z > threshold, z, (1 + (beta * z).exp()).log() / beta)
        m = m * (-x["A_log"].exp() * step).exp()[..., None, None]
        delta = x["v"][:, t] - (k[:, t, :, :, None] * m).sum(2)
        delta = delta * x["b"][:, t].sigmoid()[..., None]
        m = m + k[:, t, :, :, None] * delta[:, :, None]
        out[:, t] = scale * (q[:, t, :, :, None] * m).sum(2)
    pool[x["initial_state_indices"].long()] = m
    return out, pool


def test_a_written_out_token() -> None:
    workload = Workload(
        id="single",
        axes={
            "batch_size": 1,
            "token_count": 1,
            "num_q_heads": 1,
            "num_v_heads": 1,
            "key_dim": 2,
            "value_dim": 1,
            "state_count": 2,
        },
        init={"scale": 2.0},
    )
    inputs = {
        "A_log": torch.tensor([0.0]),
        "a": torch.zeros(1, 1, 1).bfloat16(),
        "dt_bias": torch.zeros(1).bfloat16(),
        "q": torch.tensor([0.0, 9.0]).view(1, 1, 1, 2).bfloat16(),
        "k": torch.tensor([3.0, 4.0]).view(1, 1, 1, 2).bfloat16(),
        "v": torch.tensor([12.0]).view(1, 1, 1, 1).bfloat16(),
        "b": torch.zeros(1, 1, 1).bfloat16(),
        "initial_state": torch.tensor([1.0, 1.0, 4.0, 2.0]).view(2, 1, 2, 1),
        "initial_state_indices": torch.tensor([1], dtype=torch.int32),
    }
    expected, honest = PROBLEM.expected(workload, inputs), PROBLEM.honest(workload, inputs)

    # The gate is 1 / 2, M is (2, 1), k is (0.6, 0.8), delta is (12 - 2) / 2, M is (5, 5).
    for found in (expected, honest):
        assert found["out"].flatten().tolist() == pytest.approx([10.0], rel=1e-6)
    assert expected["final_state"].dense().flatten().tolist() == pytest.approx([1, 1, 5, 5])
    assert honest["final_state"].flatten().tolist() == pytest.approx([1, 1, 5, 5])


@pytest.mark.parametrize(
    ("regime", "tokens"),
    [*((regime, tokens) for regime in REGIMES for tokens in (1, 2, 67)), ("carried", 1000)],
)
def test_truth_is_what_steps_give(regime: str, tokens: int) -> None:
    workload = shape(tokens, batch=2)
    inputs = draw(workload, regime)
    out, pool = steps(workload, inputs)
    expected = PROBLEM.expected(workload, inputs)

    assert (expected["out"].double() - out).abs().max() < 1e-6 * out.abs().max()
    assert (expected["final_state"].dense() - pool).abs().max() < 1e-11 * pool.abs().max()


def test_every_option_is_heeded() -> None:
    workload = shape(
        9, batch=2, softplus_beta=2.0, softplus_threshold=1.0, scale=0.5, use_qk_l2norm=False
    )
    inputs = draw(workload, "gated")
    out, pool = steps(workload, inputs)
    expected, honest = PROBLEM.expected(workload, inputs), PROBLEM.honest(workload, inputs)

    for found, bound in ((expected, 1e-6), (honest, 2**-8)):
        assert (found["out"].double() - out).abs().max() < bound * out.abs().max()
    assert (expected["final_state"].dense() - pool).abs().max() < 1e-11 * pool.abs().max()
    assert (honest["final_state"].double() - pool).abs().max() < 1e-5 * pool.abs().max()


def test_a_zero_key_only_lets_the_state_decay_and_a_zero_query_reads_nothing() -> None:
    workload = shape(1)
    inputs = dict(draw(workload, "nominal"))
    inputs["k"], inputs["q"] = inputs["k"] * 0, inputs["q"] * 0
    expected, honest = PROBLEM.expected(workload, inputs), PROBLEM.honest(workload, inputs)
    before = inputs["initial_state"][:1].double()

    for found in (expected, honest):
        assert not found["out"].any()
    after = expected["final_state"].dense()[:1]
    gates = after / before
    assert (gates - gates[..., :1, :1]).abs().max() < 1e-12
    assert 0.4 < gates.min() < gates.max() < 0.6


def test_other_rows_of_the_pool_stay_and_inputs_too() -> None:
    workload = shape(5, batch=2, states=5)
    inputs = draw(workload, "repeated")
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    expected, honest = PROBLEM.expected(workload, inputs), PROBLEM.honest(workload, inputs)
    used = inputs["initial_state_indices"].long()
    others = [row for row in range(5) if row not in used.tolist()]

    for final in (expected["final_state"].dense().float(), honest["final_state"]):
        assert torch.equal(final[others], before["initial_state"][others])
        assert (final[used] != before["initial_state"][used]).any()
    assert all(torch.equal(inputs[name], before[name]) for name in before)


@pytest.mark.parametrize("regime", REGIMES[1:])
def test_rows_of_the_pool_are_distinct_and_out_of_order(regime: str) -> None:
    for seed in range(20):
        rows = draw(shape(1, batch=3, states=4), regime, seed)["initial_state_indices"]

        assert len(rows.unique()) == 3
        assert not (rows == torch.arange(3)).any()
    assert draw(shape(1, batch=3), "nominal")["initial_state_indices"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("tokens", [1, 500])
def test_what_came_first_still_counts_at_the_end(tokens: int) -> None:
    workload = shape(tokens)
    inputs = draw(workload, "carried")
    blank = {**inputs, "initial_state": inputs["initial_state"] * 0}
    used = inputs["initial_state_indices"].long()
    carried, fresh = (
        PROBLEM.expected(workload, i)["final_state"].dense()[used] for i in (inputs, blank)
    )

    assert fresh.norm() < 0.5 * carried.norm()
    assert carried.norm() > 0.01 * inputs["initial_state"][used].norm()


def test_one_kind_of_head_overflows_where_the_gate_does_not() -> None:
    inputs = draw(shape(50), "gated")
    z = inputs["a"].float() + inputs["dt_bias"].float()
    far = z[0].mean(0) > 50
    gates = -inputs["A_log"].exp() * torch.nn.functional.softplus(z)

    assert far.sum() == 2
    assert z[..., far].exp().isinf().all()
    assert (gates[..., far] > -5).all()
    assert -20 < z[..., ~far].min() < -1
    assert 1 < z[..., ~far].max() < 20


def test_gates_and_betas_are_made_of_large_terms() -> None:
    inputs = draw(shape(50, batch=2), "gated")
    b = inputs["b"].float()[..., None]
    written = (b.sigmoid() * inputs["v"].float()).abs().mean(-1)

    assert inputs["a"].abs().min() > 20
    assert inputs["dt_bias"].abs().min() > 20
    assert all((part.sum() / b.numel()) > 0.3 for part in (b > 13, b < -13, b.abs() < 13))
    assert written[b[..., 0] < -13].mean() > 0.5


def test_few_directions_of_keys_repeat() -> None:
    k = draw(shape(40), "repeated")["k"][0, :, 0].float()
    k = k / k.norm(dim=-1, keepdim=True)
    likeness = (k @ k.T).tril(-1)

    assert (likeness > 0.8).sum() > 60
    assert (likeness < 0.5).sum() > 200


def test_some_queries_and_keys_are_zero() -> None:
    for seed in range(10):
        inputs = draw(shape(1, batch=1), "uneven", seed)

        assert all((inputs[name].float().norm(dim=-1) == 0).sum() == 1 for name in "qk")


def test_cost_counts_products_and_rows_of_the_pool_in_use() -> None:
    cost = PROBLEM.cost(shape(3, batch=2, states=9))
    state = 2 * 4 * 8 * 4

    assert cost.flops == {
        ArithmeticPath.BF16_MATRIX: 6 * 6 * 4 * 8 * 4,
        ArithmeticPath.FP32_VECTOR: 6 * (4 * (4 + 5) + 6 * 2 * 8) + state,
    }
    assert cost.read_bytes == 4 * 4 + 2 * 4 + 2 * 6 * (4 + 4 + 16 + 16 + 16) + 4 * state + 8
    assert cost.write_bytes == 2 * 6 * 16 + 4 * state
    assert math.isclose(
        PROBLEM.cost(shape(3, batch=2, use_qk_l2norm=False)).flops[ArithmeticPath.FP32_VECTOR],
        6 * 4 * (4 + 5) + state,
    )
