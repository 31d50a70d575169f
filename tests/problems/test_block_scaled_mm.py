"""The fp8 product with scales by blocks: by hand, in loops, as a matrix unit adds, the inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from atrex_problems_production.block_scaled_mm.private import Operator

from atrex_core import ArithmeticPath, DType, Pack, Tensors, Workload, torch_dtype
from atrex_core.comparison import Comparison
from atrex_core.referee.bench import judge_outputs

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

FN, FNUZ = "fp8_e4m3fn", "fp8_e4m3fnuz"

LIMITS = {FN: 448.0, FNUZ: 224.0}

BOTH = pytest.mark.parametrize("dtype", [FN, FNUZ])

REGIMES = ("nominal", "balanced", "scales", "positive", "codes")


def shape(m: int, n: int, k: int, group_n: int, group_k: int, dtype: str = FN) -> Workload:
    init = {"group_n": group_n, "group_k": group_k}
    axes = {"m": m, "n": n, "k": k, **init, "dtype": dtype}
    return Workload(id="case", axes=axes, init=init)


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def verdict(workload: Workload, inputs: Tensors, out: Any) -> Comparison:
    return judge_outputs(PROBLEM, workload, inputs, {"out": out})["out"]


def results(workload: Workload, inputs: Tensors) -> list[Any]:
    """Return what the truth and every honest implementation say."""
    runs = [PROBLEM.honest, *PROBLEM.variants().values()]
    return [
        PROBLEM.expected(workload, inputs)["out"].dense(),
        *(run(workload, inputs)["out"] for run in runs),
    ]


@BOTH
def test_a_written_out_case(dtype: str) -> None:
    kind = torch_dtype(DType(dtype))
    inputs = {
        "a": torch.tensor([[1.0, 2.0, 3.0, 4.0]]).to(kind),
        "b": torch.tensor([[1.0, 1.0, 1.0, 1.0], [2.0, 0.0, -1.0, 1.0]]).to(kind),
        "a_scales": torch.tensor([[0.5, 2.0]]),
        "b_scales": torch.tensor([[1.0, 10.0], [4.0, 0.25]]),
    }

    # 3 * 0.5 * 1 + 7 * 2 * 10, and 2 * 0.5 * 4 + 1 * 2 * 0.25.
    for out in results(shape(1, 2, 4, 1, 2, dtype), inputs):
        assert out.tolist() == [[141.5, 4.5]]


@BOTH
def test_parts_of_blocks_are_scaled_as_blocks(dtype: str) -> None:
    workload = shape(2, 5, 7, 2, 3, dtype)
    for regime in REGIMES:
        inputs = draw(workload, regime)
        a, b = inputs["a"].double().tolist(), inputs["b"].double().tolist()
        sa, sb = inputs["a_scales"].tolist(), inputs["b_scales"].tolist()
        wanted = [
            [
                sum(a[i][t] * sa[i][t // 3] * b[j][t] * sb[j // 2][t // 3] for t in range(7))
                for j in range(5)
            ]
            for i in range(2)
        ]

        for out in results(workload, inputs):
            assert [len(row) for row in sb] == [3, 3, 3]
            assert verdict(workload, inputs, out.float()).passed
            size = torch.tensor(wanted, dtype=torch.float64).square().mean(1, keepdim=True).sqrt()
            error = (out - torch.tensor(wanted, dtype=torch.float64)).abs()
            assert (error <= 1e-3 * size).all()


def test_more_rows_than_a_chunk_are_multiplied_as_by_themselves() -> None:
    short, workload = shape(5, 1, 512, 1, 512), shape(5, 1, 1 << 23, 1, 512)
    inputs = draw(short, "balanced")

    def at_the_end(narrow: Any, width: int) -> Any:
        wide = torch.zeros(len(narrow), width).to(narrow.dtype)
        wide[:, -narrow.shape[1] :] = narrow
        return wide

    wide = {
        name: at_the_end(tensor, 1 << 23 if name in ("a", "b") else 1 << 14)
        for name, tensor in inputs.items()
    }

    found, once = PROBLEM.honest(workload, wide)["out"], PROBLEM.honest(short, inputs)["out"]

    assert torch.allclose(found, once, rtol=1e-5)


def matrix_unit(workload: Workload, inputs: Tensors, *, columns: int) -> Any:
    """Multiply as a unit does that aligns 32 products and its accumulator, and keeps 13 bits.

    What lies 2^-13 below the largest of them is cut off; so is what an accumulator of 13 bits
    cannot hold. Accumulators are scaled and added in fp32 after so many columns.
    """

    def cut(values: Any, largest: Any) -> Any:
        exponent = torch.frexp(largest).exponent
        unit = torch.ldexp(torch.ones_like(largest), exponent - 14)
        return torch.trunc(values / unit) * unit

    a, b = inputs["a"].double(), inputs["b"].double()
    by_row = inputs["b_scales"].repeat_interleave(workload.init["group_n"], 0)[: len(b)]
    out = torch.zeros(len(a), len(b))
    for start in range(0, a.shape[1], columns):
        total = torch.zeros(len(a), len(b), 1, dtype=torch.float64)
        for first in range(start, start + columns, 32):
            products = a[:, None, first : first + 32] * b[None, :, first : first + 32]
            together = torch.cat([products, total], -1)
            aligned = cut(together, together.abs().amax(-1, keepdim=True))
            total = aligned.sum(-1, keepdim=True)
            total = cut(total, total.abs())
        group = start // workload.init["group_k"]
        scale = inputs["a_scales"][:, group, None] * by_row[None, :, group]
        out += total[:, :, 0].float() * scale
    return out


@pytest.mark.parametrize("regime", REGIMES)
def test_a_matrix_unit_of_13_bits_will_do_for_128_columns(regime: str) -> None:
    workload = shape(4, 140, 512, 128, 128)
    inputs = draw(workload, regime)

    found = verdict(workload, inputs, matrix_unit(workload, inputs, columns=128))

    assert found.passed
    assert found.details["max_error_over_allowed"] < 0.5
    assert 2e-5 < found.details["relative_l2"] < 7e-4


def test_a_matrix_unit_of_13_bits_will_not_do_for_512_columns() -> None:
    workload = shape(4, 140, 512, 128, 128)
    inputs = draw(workload, "positive")
    ones = {name: torch.ones_like(inputs[name]) for name in ("a_scales", "b_scales")}
    inputs = {**inputs, **ones}

    found = [
        verdict(workload, inputs, matrix_unit(workload, inputs, columns=c)) for c in (128, 512)
    ]

    assert [comparison.passed for comparison in found] == [True, False]


@pytest.mark.parametrize("regime", REGIMES)
def test_a_result_rounded_to_bf16_is_refused_in_every_regime(regime: str) -> None:
    workload = shape(4, 140, 512, 128, 128)
    inputs = draw(workload, regime)
    right = PROBLEM.honest(workload, inputs)["out"]

    assert verdict(workload, inputs, right).passed
    assert not verdict(workload, inputs, right.bfloat16().float()).passed


def test_operands_that_scaling_leaves_exact_in_bf16_will_do() -> None:
    workload = shape(4, 140, 512, 128, 128)
    inputs = draw(workload, "nominal")
    powers = {name: 2.0 ** inputs[name].log2().round() for name in ("a_scales", "b_scales")}
    inputs = {**inputs, **powers}
    wide = [
        inputs["a"].float() * inputs["a_scales"].repeat_interleave(128, 1),
        inputs["b"].float()
        * inputs["b_scales"].repeat_interleave(128, 0)[:140].repeat_interleave(128, 1),
    ]
    left, right = (operand.bfloat16().float() for operand in wide)

    assert left.equal(wide[0])
    assert right.equal(wide[1])
    assert verdict(workload, inputs, left @ right.t()).passed


def test_the_cost_of_a_shape() -> None:
    cost = PROBLEM.cost(shape(64, 2112, 7168, 128, 128))

    # 56 groups of columns; 16 blocks of rows and a half.
    assert cost.flops == {
        ArithmeticPath.FP8_MATRIX: 2 * 64 * 2112 * 7168,
        ArithmeticPath.FP32_VECTOR: 64 * 2112 * 111 + 64 * 17 * 56,
    }
    assert cost.read_bytes == 64 * 7168 + 2112 * 7168 + 4 * (64 * 56 + 17 * 56)
    assert cost.write_bytes == 4 * 64 * 2112


@BOTH
def test_scales_of_b_follow_the_largest_signed_value_where_published(dtype: str) -> None:
    workload = shape(4, 256, 512, 128, 128, dtype)
    limit = LIMITS[dtype]

    for regime in ("published", "nominal", "balanced", "positive"):
        inputs = draw(workload, regime)
        tiles = inputs["b"].float().view(2, 128, 4, 128).transpose(1, 2).reshape(8, -1)
        upper, lower = (tiles == limit).sum(1), (tiles == -limit).sum(1)
        rows = inputs["a"].float().view(4, 4, 128).abs()

        assert (rows.amax(-1) == limit).all()
        if regime in ("published", "nominal"):
            assert (upper >= 1).all()
            assert lower.max() > 1
        else:
            assert (upper + lower >= 1).all()
            assert ((tiles.abs() == limit).sum(1) < 20).all()
        assert (tiles.amin() >= 0) == (regime == "positive")


@BOTH
def test_regimes_are_what_they_say(dtype: str) -> None:
    workload = shape(7, 100, 192, 32, 64, dtype)
    least = torch.finfo(torch_dtype(DType(dtype))).tiny
    for seed in range(4):
        drawn = {regime: draw(workload, regime, seed) for regime in REGIMES}
        a = {regime: inputs["a"].float() for regime, inputs in drawn.items()}
        b = {regime: inputs["b"].float() for regime, inputs in drawn.items()}
        out = {regime: PROBLEM.honest(workload, inputs)["out"] for regime, inputs in drawn.items()}

        spread = drawn["nominal"]["a_scales"] * LIMITS[dtype]
        assert (spread > 11.9).sum() == 1
        assert drawn["balanced"]["b_scales"].amax() > 2 * drawn["balanced"]["b_scales"].amin()
        assert (a["scales"] == 0).all(1).sum() == 1
        assert (b["scales"].view(100, 3, 64) == 0).all(2).sum() in (32, 4)
        assert out["scales"].abs().max() > 65504
        assert (out["positive"] > 0).all()
        assert (a["codes"][::3].abs() < least).all()
        assert (a["codes"][1::3].abs() < 16 * least).all()
        assert (a["codes"][2::3].abs() > 16 * least).any()
        assert (b["codes"][32:64].abs() < least).all()
        assert len(b["codes"].unique()) > 240
        assert all(result.square().mean(1).sqrt().max() > 0.1 for result in out.values())
