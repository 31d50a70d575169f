"""Bias, split and rotary embedding: by hand, partners, the bias, the bound, and the inputs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from atrex_problems_production.fused_qkv_rope.private import Operator

from atrex_core import ArithmeticPath, DType, Pack, Tensors, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

REGIMES = ("nominal", "far", "packed", "wide", "sparse")


def shape(
    tokens: int,
    heads: tuple[int, int] = (1, 1),
    head_dim: int = 4,
    rope_dim: int = 4,
    base: float = 10000.0,
    bias: bool = False,
    dtype: str = "bf16",
) -> Workload:
    sizes = {"num_heads": heads[0], "num_kv_heads": heads[1], "head_dim": head_dim}
    return Workload(
        id="case",
        axes={"total_tokens": tokens, **sizes, "with_bias": bias, "dtype": dtype},
        init={**sizes, "rope_dim": rope_dim, "rope_base": base},
    )


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def given(rows: list[list[float]], positions: list[int], bias: list[float] | None = None) -> Any:
    inputs = {
        "qkv": torch.tensor(rows).bfloat16(),
        "positions": torch.tensor(positions, dtype=torch.int32),
    }
    return inputs if bias is None else {**inputs, "qkv_bias": torch.tensor(bias).bfloat16()}


def test_a_written_out_head_turns_by_its_position_and_its_frequencies() -> None:
    # With base 100 and four dimensions the frequencies are 1 and 1/10.
    workload = shape(1, base=100.0)
    q, k, v = [1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 0.0, 0.0], [5.0, 6.0, 7.0, 8.0]
    expected = PROBLEM.expected(workload, given([q + k + v], [2]))

    c, s, d, t = math.cos(2), math.sin(2), math.cos(0.2), math.sin(0.2)
    assert expected["q"].dense()[0, 0].tolist() == pytest.approx(
        [c - 3 * s, 2 * d - 4 * t, 3 * c + s, 4 * d + 2 * t]
    )
    assert expected["k"].dense()[0, 0].tolist() == pytest.approx([0.0, d, 0.0, t])
    assert expected["v"].dense()[0, 0].tolist() == v


def test_a_slow_loop_agrees() -> None:
    workload = shape(5, (3, 2), 10, 6, 1000.0, bias=True)
    inputs = draw(workload, "wide")
    expected, honest = PROBLEM.expected(workload, inputs), PROBLEM.honest(workload, inputs)
    x = (inputs["qkv"] + inputs["qkv_bias"]).double().view(5, 7, 10)
    slow = x.clone()
    for token, position in enumerate(inputs["positions"].tolist()):
        for head in range(5):
            for j in range(3):
                theta = position * 1000.0 ** (-j / 3)
                a, b = x[token, head, j], x[token, head, j + 3]
                slow[token, head, j] = a * math.cos(theta) - b * math.sin(theta)
                slow[token, head, j + 3] = b * math.cos(theta) + a * math.sin(theta)

    for name, heads in (("q", slice(0, 3)), ("k", slice(3, 5)), ("v", slice(5, 7))):
        torch.testing.assert_close(expected[name].dense(), slow[:, heads])
        torch.testing.assert_close(honest[name].double(), slow[:, heads], rtol=1e-2, atol=0.2)


def test_position_zero_leaves_everything_as_it_is() -> None:
    workload = shape(1, (2, 1), 8, 8)
    inputs = draw(workload, "published")
    honest = PROBLEM.honest(workload, inputs)

    assert inputs["positions"].tolist() == [0]
    assert torch.cat([honest[name].flatten() for name in "qkv"]).equal(inputs["qkv"][0])


def test_the_bias_is_rounded_with_the_sum_before_the_rotation() -> None:
    # 256 + 1 is 256 in bf16: nothing of the bias reaches q, k or v.
    workload = shape(1, bias=True)
    inputs = given([[256.0] * 12], [0], [1.0] * 12)

    assert set(PROBLEM.expected(workload, inputs)["q"].dense().flatten().tolist()) == {256.0}
    assert set(PROBLEM.honest(workload, inputs)["v"].flatten().tolist()) == {256.0}


def test_outputs_share_no_memory_with_inputs() -> None:
    workload = shape(1)
    inputs = draw(workload, "nominal")

    for output in PROBLEM.honest(workload, inputs).values():
        assert output.untyped_storage().data_ptr() != inputs["qkv"].untyped_storage().data_ptr()
        assert output.is_contiguous()


def test_the_bias_is_an_input_only_where_there_is_one() -> None:
    names = [spec.name for spec in PROBLEM.inputs(shape(2, bias=True, dtype="fp16"))]

    assert names == ["qkv", "positions", "qkv_bias"]
    assert [spec.name for spec in PROBLEM.inputs(shape(2))] == ["qkv", "positions"]
    assert {s.dtype for s in PROBLEM.outputs(shape(2, dtype="fp16"))} == {DType.FP16}


def test_the_bound_counts_pairs_angles_and_biased_values() -> None:
    bare, biased = (PROBLEM.cost(shape(5, (3, 2), 10, 6, bias=b)) for b in (False, True))

    # 5 tokens, 3 frequencies, 5 heads that turn, 7 heads of 10 in all.
    assert bare.flops == {ArithmeticPath.FP32_VECTOR: 5 * 3 * (6 * 5 + 1)}
    assert biased.flops == {ArithmeticPath.FP32_VECTOR: 5 * 3 * (6 * 5 + 1) + 5 * 70}
    assert (bare.read_bytes, bare.write_bytes) == (2 * 5 * 70 + 4 * 5, 2 * 5 * 70)
    assert biased.read_bytes == bare.read_bytes + 2 * 70


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_positions_stay_where_fp32_angles_are_as_good_as_exact(regime: str, dtype: str) -> None:
    workload = shape(4000, (1, 1), 64, 64, dtype=dtype)
    p = draw(workload, regime)["positions"].double()[:, None]
    j = torch.arange(32)
    exact = p * 10000.0 ** (-j.double() / 32)
    rounded = (p.float() * 10000.0 ** (-j.float() / 32)).double()

    assert (exact - rounded).abs().max() < DType(dtype).epsilon


@pytest.mark.parametrize("rope_dim", [32, 64])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_remote_positions_turn_slow_pairs_alone(rope_dim: int, dtype: str) -> None:
    workload = shape(4000, (1, 1), 64, rope_dim, dtype=dtype)
    inputs = draw(workload, "remote")
    p, half = inputs["positions"].double()[:, None], rope_dim // 2
    some = (inputs["qkv"][:, :rope_dim] != 0).any(0).view(2, half).any(0)
    j = torch.arange(half)[some]
    exact = p * 10000.0 ** (-j.double() / half)
    rounded = (p.float() * 10000.0 ** (-j.float() / half)).double()

    assert p.min() > 2**17
    assert set((p % 2).flatten().tolist()) == {1}
    assert 0 < len(j) < half / 2
    assert (exact - rounded).abs().max() < DType(dtype).epsilon


def test_regimes_hold_what_they_are_for() -> None:
    workload = shape(64, (2, 1), 16, 16, bias=True)
    drawn = {regime: draw(workload, regime) for regime in REGIMES}
    positions = {regime: drawn[regime]["positions"] for regime in REGIMES}

    assert drawn["nominal"]["qkv"].max() == 8
    assert set(positions["nominal"].diff().tolist()) == {1}
    assert positions["nominal"][0] > 0
    assert positions["far"].min() > 2**13
    assert set((positions["far"] % 2).tolist()) == {1}
    assert (positions["far"].diff() < 0).any()
    starts = (positions["packed"].diff() != 1).nonzero().flatten() + 1
    assert positions["packed"][0] == 0
    assert len(starts) > 1
    assert positions["packed"][starts].max() > 0
    loud = drawn["wide"]["qkv"].view(64, 4, 16).float().abs().mean((0, 2))
    assert loud.max() > 4 * loud.min()
    assert (drawn["sparse"]["qkv"].view(-1, 16) != 0).sum(-1).tolist() == [1] * 256
    for regime in ("far", "packed", "wide", "sparse"):
        assert drawn[regime]["qkv_bias"].float().std() > 0.5 * loud.min()


def test_a_single_token_is_rotated_in_the_timed_regime() -> None:
    for seed in range(20):
        assert draw(shape(1), "nominal", seed)["positions"].item() > 0


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_values_without_a_bias_keep_their_denormals(dtype: str) -> None:
    workload = shape(40, (2, 1), 16, 16, dtype=dtype)
    inputs = draw(workload, "sparse")
    truth = PROBLEM.expected(workload, inputs)["v"].dense()
    least = torch.finfo(inputs["qkv"].dtype).tiny

    assert (truth != 0).sum() == 40
    assert truth.abs().max() < least
    assert (truth > 0).any()
    assert (truth < 0).any()
    answers = [PROBLEM.honest(workload, inputs)["v"]]
    answers += [run(workload, inputs)["v"] for run in PROBLEM.variants().values()]
    assert all(answer.double().equal(truth) for answer in answers)
    assert inputs["qkv"][:, :48].abs().max() > 0.5
