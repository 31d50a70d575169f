"""Quantising rows to fp8: by hand, code by code, tiny rows, either type, and the inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from atrex_problems_production.fp8_dynamic_per_token_quant.private import Operator

from atrex_core import ArithmeticPath, DType, Pack, Tensors, Workload, dense, torch_dtype
from atrex_core.comparison import compare

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

FN, FNUZ = "fp8_e4m3fn", "fp8_e4m3fnuz"

LIMITS = {FN: 448.0, FNUZ: 240.0}

BOTH = pytest.mark.parametrize("dtype", [FN, FNUZ])


def shape(tokens: int, hidden: int, dtype: str | None = None) -> Workload:
    axes = {"token_count": tokens, "hidden_size": hidden}
    return Workload(id="case", axes=axes, init={} if dtype is None else {"dtype": dtype})


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def quantised(rows: list[list[float]], dtype: str | None) -> dict[str, tuple[Any, Any]]:
    """Return what every honest implementation makes of `rows`: codes as numbers, and scales."""
    workload = shape(len(rows), len(rows[0]), dtype)
    inputs = {"x": torch.tensor(rows).bfloat16()}
    runs = {"honest": PROBLEM.honest, **PROBLEM.variants(), "expected": PROBLEM.expected}
    answers = {name: run(workload, inputs) for name, run in runs.items()}
    return {
        name: (dense(answer["quantized"]).float(), dense(answer["scales"]))
        for name, answer in answers.items()
    }


@pytest.mark.parametrize(("dtype", "limit"), [(None, 240.0), (FNUZ, 240.0), (FN, 448.0)])
def test_a_written_out_case(dtype: str | None, limit: float) -> None:
    for codes, scales in quantised([[1.0, -2.0, 4.0, 0.0], [-8.0, 4.0, 2.0, 1.0]], dtype).values():
        assert codes.tolist() == [
            [limit / 4, -limit / 2, limit, 0.0],
            [-limit, limit / 2, limit / 4, limit / 8],
        ]
        assert scales.tolist() == pytest.approx([4 / limit, 8 / limit], rel=1e-6)


@BOTH
def test_rows_below_the_least_magnitude_share_its_scale(dtype: str) -> None:
    rows = [[0.0, 0.0], [2.0**-42, -(2.0**-43)], [2.0**-39, 0.0]]  # 2^-40 is 0.91e-12

    for codes, scales in quantised(rows, dtype).values():
        limit = LIMITS[dtype]
        assert scales.tolist() == pytest.approx(
            [1e-12 / limit, 1e-12 / limit, 2.0**-39 / limit], rel=1e-6
        )
        assert codes[0].tolist() == [0.0, 0.0]
        assert codes[1].tolist() == pytest.approx([0.2274 * limit, -0.1137 * limit], rel=0.04)
        assert codes[2].tolist() == [limit, 0.0]


@BOTH
def test_every_code_is_the_nearest_of_all(dtype: str) -> None:
    kind = torch_dtype(DType(dtype))
    table = torch.arange(256, dtype=torch.uint8).view(kind).double()
    table = table[table.isfinite()]
    workload = shape(5, 300, dtype)

    for regime in ("nominal", "tiny", "outliers"):
        inputs = draw(workload, regime)
        codes = PROBLEM.honest(workload, inputs)["quantized"].double()
        for row, found in zip(inputs["x"].double(), codes, strict=True):
            wanted = row / (max(float(row.abs().max()), 1e-12) / LIMITS[dtype])
            distance = (wanted[:, None] - table).abs().amin(1)

            assert ((wanted - found).abs() <= distance + 1e-6 * wanted.abs()).all()


def test_a_long_row_is_quantised_as_a_short_one() -> None:
    workload = shape(3, 1 << 23, FN)  # more than one chunk of rows
    x = draw(shape(3, 512, FN), "rows")["x"].repeat(1, 1 << 14)

    found = PROBLEM.honest(workload, {"x": x})
    short = PROBLEM.honest(shape(3, 512, FN), {"x": x[:, :512].contiguous()})

    assert found["scales"].equal(short["scales"])
    assert found["quantized"][:, -512:].float().equal(short["quantized"].float())


@BOTH
@pytest.mark.parametrize("output", ["quantized", "scales"])
def test_ten_bits_of_a_scale_are_too_few(dtype: str, output: str) -> None:
    workload = shape(64, 2048, dtype)
    inputs = draw(workload, "nominal")
    expected, honest = PROBLEM.expected(workload, inputs), PROBLEM.honest(workload, inputs)
    mantissa, exponent = torch.frexp(honest["scales"])
    scales = torch.ldexp((mantissa * 1024).round() / 1024, exponent)
    quotients = (inputs["x"].float() / scales[:, None]).clamp(-LIMITS[dtype], LIMITS[dtype])
    wrong = {"quantized": quotients.to(torch_dtype(DType(dtype))), "scales": scales}

    spec = next(spec for spec in PROBLEM.outputs(workload) if spec.name == output)
    rule = PROBLEM.tolerance(spec)
    verdicts = [
        compare(spec, rule, answer[output], expected[output], honest[output])
        for answer in (honest, wrong)
    ]

    assert [verdict.passed for verdict in verdicts] == [True, False]


def test_the_outputs_are_of_the_type_asked_for() -> None:
    found = {
        dtype: [(spec.name, spec.dtype, spec.shape) for spec in PROBLEM.outputs(shape(3, 8, dtype))]
        for dtype in (None, FN)
    }

    assert found == {
        None: [("quantized", DType.FP8_E4M3FNUZ, (3, 8)), ("scales", DType.FP32, (3,))],
        FN: [("quantized", DType.FP8_E4M3FN, (3, 8)), ("scales", DType.FP32, (3,))],
    }


def test_the_cost_of_a_shape() -> None:
    cost = PROBLEM.cost(shape(608, 2048))

    assert cost.flops == {ArithmeticPath.FP32_VECTOR: 608 * 2049}
    assert (cost.read_bytes, cost.write_bytes) == (608 * 2048 * 2, 608 * 2048 + 608 * 4)


@pytest.mark.parametrize("tokens", [1, 6])
def test_regimes_are_what_they_say(tokens: int) -> None:
    workload = shape(tokens, 1000)
    for seed in range(10):
        x = {
            regime: draw(workload, regime, seed)["x"].float()
            for regime in PROBLEM.regimes(workload)
        }
        published = draw(workload, "published", seed)["x"].float()
        zeros = {regime: int((rows == 0).all(1).sum()) for regime, rows in x.items()}
        largest = {regime: rows.abs().amax(1) for regime, rows in x.items()}

        assert published.abs().max() < 8
        assert (x["nominal"] == 12.0).sum() == 1
        assert (x["negative"].amin(1) == -143 / 16).all()
        assert (x["negative"].amax(1) < 8).all()
        assert (largest["tiny"][::2] < 1e-12).all()
        assert ((largest["tiny"][1::2] > 1e-12) | (largest["tiny"][1::2] == 0)).all()
        assert zeros == {**dict.fromkeys(x, 0), "tiny": tokens > 1, "rows": tokens > 1}
        assert (x["outliers"].abs()[::2, -1] >= 256).all()
        assert (x["outliers"].abs().median(1).values < 1).all()
