"""The causal convolution: its definition by hand, its cost, and what its inputs contain."""

from __future__ import annotations

import math

import pytest
import torch
from atrex_problems_production.causal_conv1d.private import Operator

from atrex_core import ArithmeticPath, Pack, Tensors, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

REGIMES = ("nominal", "unit", "state", "level", "tails")


def shape(tokens: int, channels: int, width: int = 4, activation: str | None = "silu") -> Workload:
    axes = {"token_count": tokens, "dim": channels, "width": width}
    return Workload(id="case", axes=axes, init={"activation": activation})


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def written_out() -> Tensors:
    return {
        "x": torch.tensor([[1.0, 2.0, 3.0], [1.0, -1.0, 0.5]]).bfloat16(),
        "weight": torch.tensor([[1.0, 10.0, 100.0], [0.5, 0.0, -2.0]]).bfloat16(),
        "bias": torch.tensor([0.5, -1.0]).bfloat16(),
        "initial_state": torch.tensor([[[8.0, 4.0], [2.0, 6.0]]]).bfloat16(),
    }


def test_a_written_out_case_without_activation() -> None:
    workload = shape(3, 2, 3, None)
    expected = PROBLEM.expected(workload, written_out())["out"].dense()
    honest = PROBLEM.honest(workload, written_out())["out"]

    # 0.5 + 8 + 40 + 100, 0.5 + 4 + 10 + 200, 0.5 + 1 + 20 + 300; -1 + 1 - 2, -1 + 3 + 2, ...
    assert expected.tolist() == [[148.5, 214.5, 321.5], [-2.0, 4.0, -1.5]]
    assert honest.tolist() == [[148.0, 214.0, 322.0], [-2.0, 4.0, -1.5]]


@pytest.mark.parametrize("activation", ["silu", "swish"])
def test_both_names_of_the_activation_mean_silu(activation: str) -> None:
    workload = shape(3, 2, 3, activation)
    row = PROBLEM.expected(workload, written_out())["out"].dense()[1].tolist()

    assert row == pytest.approx([y / (1 + math.exp(-y)) for y in (-2.0, 4.0, -1.5)])


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown activation 'gelu'"):
        PROBLEM.honest(shape(3, 2, 3, "gelu"), written_out())


def test_no_output_depends_on_a_later_sample_and_the_first_ones_depend_on_the_state() -> None:
    workload = shape(9, 3)
    inputs = dict(draw(workload, "unit"))
    before = PROBLEM.expected(workload, inputs)["out"].dense()
    inputs["x"] = inputs["x"].clone()
    inputs["x"][:, 4] += 1
    after = PROBLEM.expected(workload, inputs)["out"].dense()
    inputs["initial_state"] = inputs["initial_state"] * 0
    stateless = PROBLEM.expected(workload, inputs)["out"].dense()

    assert (before != after).any(0).tolist() == [False] * 4 + [True] * 4 + [False]
    assert (after != stateless).any(0).tolist() == [True] * 3 + [False] * 6


def test_cost_counts_taps_activation_and_each_byte_once() -> None:
    with_silu, without = (PROBLEM.cost(shape(5, 3, 4, name)) for name in ("silu", None))

    assert with_silu.flops == {ArithmeticPath.FP32_VECTOR: 15 * 10}
    assert without.flops == {ArithmeticPath.FP32_VECTOR: 15 * 8}
    assert with_silu.read_bytes == 2 * (15 + 12 + 3 + 9)
    assert with_silu.write_bytes == 2 * 15


def test_loud_samples_are_few_and_the_seed_places_them() -> None:
    workload = shape(500, 40)
    first, second = (draw(workload, "nominal", seed)["x"] == 4.0 for seed in (0, 1))

    assert 1 <= first.sum() <= 2
    assert not torch.equal(first, second)
    assert draw(workload, "published")["x"].abs().max() < 0.2


def test_the_state_decides_the_first_outputs() -> None:
    workload = shape(1, 512)
    inputs = draw(workload, "state")
    stateless = {**inputs, "initial_state": inputs["initial_state"] * 0}
    with_state, without = (
        PROBLEM.expected(workload, i)["out"].dense() for i in (inputs, stateless)
    )

    assert (with_state - without).norm() > 0.9 * with_state.norm()


def test_taps_almost_cancel_a_level() -> None:
    workload = shape(20, 64, activation=None)
    inputs = draw(workload, "level")
    terms = inputs["weight"].float().abs().sum(1) * inputs["x"].float().abs().mean(1)
    out = PROBLEM.expected(workload, inputs)["out"].dense()

    assert inputs["x"].float().abs().mean() > 8
    assert terms.mean() > 10 * out.abs().mean()


@pytest.mark.parametrize("regime", REGIMES)
def test_outputs_stay_where_silu_can_be_told_in_bf16(regime: str) -> None:
    workload = shape(1, 8192, activation=None)
    lowest = min(
        PROBLEM.expected(workload, draw(workload, regime, seed))["out"].dense().min().item()
        for seed in range(5)
    )

    assert lowest > -14


def test_tails_reach_both_ends_of_silu() -> None:
    workload = shape(7, 60, activation=None)
    y = PROBLEM.expected(workload, draw(workload, "tails"))["out"].dense()

    assert y.min() < -3
    assert y.max() > 15
