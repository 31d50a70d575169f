"""Addition, normalisation and fp8: by hand, step by step, zero rows, roundings, and the inputs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from atrex_problems_production.fused_rmsnorm_quant.private import Operator

from atrex_core import ArithmeticPath, DType, Pack, Tensors, Workload, dense, torch_dtype
from atrex_core.comparison import Comparison
from atrex_core.referee.bench import judge_outputs

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

FN, FNUZ = "fp8_e4m3fn", "fp8_e4m3fnuz"


def shape(tokens: int, hidden: int, **init: Any) -> Workload:
    axes = {"token_count": tokens, "hidden_size": hidden}
    return Workload(id="case", axes=axes, init=init)


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def narrow(*rows: list[float]) -> Any:
    return torch.tensor(rows).bfloat16()


def answers(workload: Workload, inputs: Tensors, *names: str) -> list[dict[str, Any]]:
    """Return what the truth, the reference and some variants say, as fp32 or fp64."""
    runs = [PROBLEM.expected, PROBLEM.honest, *(PROBLEM.variants()[name] for name in names)]
    return [
        {
            name: value.double() if value.element_size() == 1 else value
            for name, value in (
                (name, dense(value)) for name, value in run(workload, inputs).items()
            )
        }
        for run in runs
    ]


def nearest(values: Any, dtype: str) -> list[list[float]]:
    rounded: list[list[float]] = values.float().to(torch_dtype(DType(dtype))).float().tolist()
    return rounded


def test_a_written_out_case() -> None:
    inputs = {
        "x": narrow([3.0, -1.0, 0.5, -2.0]),
        "residual": narrow([-2.0, 0.0, 0.5, 1.0]),
        "weight": narrow([1.0, 2.0, 3.0, 4.0])[0],
    }

    # The sum is 1, -1, 1, -1, its mean square 1, and 240 / 4 the factor of 1, -2, 3, -4.
    for found in answers(shape(1, 4, eps=0.0), inputs, "tree", "unrounded", "rounded_twice"):
        assert nearest(found["quantized"], FNUZ) == [[60.0, -120.0, 176.0, -240.0]]
        assert found["scales"].tolist() == [[pytest.approx(4 / 240)]]
        assert found["residual"].tolist() == [[1.0, -1.0, 1.0, -1.0]]


def test_every_step_rounds_where_it_is_said_to() -> None:
    workload = shape(4, 50, dtype=FN)
    inputs = draw(workload, "nominal")
    eps = 1e-5
    weight = inputs["weight"].tolist()

    expected, honest = answers(workload, inputs)

    for i, (x, residual) in enumerate(zip(inputs["x"], inputs["residual"], strict=True)):
        total = narrow([a + b for a, b in zip(x.tolist(), residual.tolist(), strict=True)])[0]
        r = total.tolist()
        root = math.sqrt(sum(value * value for value in r) / 50 + eps)
        normed = narrow([a / root * w for a, w in zip(r, weight, strict=True)])[0].tolist()
        scale = max(abs(value) for value in normed) / 448

        assert expected["quantized"][i].tolist() == pytest.approx([n / scale for n in normed])
        assert expected["scales"][i].item() == pytest.approx(scale)
        assert expected["residual"][i].tolist() == r
        assert honest["scales"][i].item() == pytest.approx(scale, rel=1e-6)
        assert honest["residual"][i].tolist() == r


def test_the_rounded_sum_is_normalised() -> None:
    # 256 + 1 is 256 in bf16, so the row is constant and each code the largest.
    ones = {"residual": narrow([1.0, 0.0]), "weight": narrow([1.0, 1.0])[0]}
    inputs = {"x": narrow([256.0, 256.0]), **ones}

    for found in answers(shape(1, 2), inputs, "tree", "rounded_twice"):
        assert found["residual"].tolist() == [[256.0, 256.0]]
        assert nearest(found["quantized"], FNUZ) == [[240.0, 240.0]]


def test_a_row_of_zeros_has_scale_one() -> None:
    inputs = {
        "x": narrow([1.0, -2.0], [1.0, 1.0]),
        "residual": narrow([-1.0, 2.0], [1.0, 1.0]),
        "weight": narrow([1.0, 1.0])[0],
    }

    for found in answers(shape(2, 2), inputs, "tree", "wide_rows", "unrounded", "rounded_twice"):
        assert found["quantized"][0].tolist() == [0.0, 0.0]
        assert found["scales"][0].tolist() == [1.0]
        assert found["scales"][1].tolist() == [pytest.approx(1 / 240, rel=0.01)]


def test_epsilon_decides_what_is_tiny() -> None:
    workload = shape(1, 4, eps=1e-5)
    inputs = {
        "x": narrow([2.0**-9, 2.0**-9, -(2.0**-9), 2.0**-9]),
        "residual": narrow([0.0, 0.0, 0.0, 0.0]),
        "weight": narrow([1.0, 1.0, 1.0, 1.0])[0],
    }
    normed = 2.0**-9 / math.sqrt(2.0**-18 + 1e-5)  # 0.526

    for found in answers(workload, inputs, "tree"):
        assert found["scales"].item() == pytest.approx(normed / 240, rel=0.004)


def verdicts(workload: Workload, inputs: Tensors, answer: Tensors) -> dict[str, Comparison]:
    return judge_outputs(PROBLEM, workload, inputs, answer)


@pytest.mark.parametrize("dtype", [FN, FNUZ])
def test_what_the_roundings_left_out_cost(dtype: str) -> None:
    workload = shape(60, 512, dtype=dtype)
    for regime in PROBLEM.regimes(workload):
        inputs = draw(workload, regime)
        flipped = {}
        for name in ("tree", "wide_rows", "unrounded"):
            found = verdicts(workload, inputs, PROBLEM.variants()[name](workload, inputs))
            flipped[name] = found["quantized"].details["flipped_share"]

            assert all(verdict.passed for verdict in found.values())
        assert flipped["tree"] < 1e-3
        assert 0.01 < flipped["wide_rows"] < 0.025
        assert 0.015 < flipped["unrounded"] < 0.04


def test_a_normalised_row_of_six_bits_is_refused() -> None:
    workload = shape(60, 512)
    inputs = draw(workload, "nominal")
    total = (inputs["x"] + inputs["residual"]).float()
    normed = (
        total * (total.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * inputs["weight"].float()
    )
    mantissa, exponent = torch.frexp(normed)
    normed = torch.ldexp((mantissa * 64).round() / 64, exponent)
    scales = normed.abs().amax(-1, keepdim=True) / 240
    codes = (normed / scales).to(torch.float8_e4m3fnuz)

    found = verdicts(
        workload,
        inputs,
        {"quantized": codes, "scales": scales, "residual": inputs["x"] + inputs["residual"]},
    )

    assert {name: verdict.passed for name, verdict in found.items()} == {
        "quantized": False,
        "scales": False,
        "residual": True,
    }


def test_the_cost_of_a_shape() -> None:
    cost = PROBLEM.cost(shape(117, 2048))

    assert cost.flops == {ArithmeticPath.FP32_VECTOR: 117 * (5 * 2048 + 5)}
    assert cost.read_bytes == 2 * (2 * 117 * 2048 + 2048)
    assert cost.write_bytes == 117 * 2048 + 117 * 4 + 117 * 2048 * 2


@pytest.mark.parametrize("tokens", [1, 7])
def test_regimes_are_what_they_say(tokens: int) -> None:
    workload = shape(tokens, 500)
    for seed in range(10):
        drawn = {regime: draw(workload, regime, seed) for regime in PROBLEM.regimes(workload)}
        total = {name: (t["x"] + t["residual"]).float() for name, t in drawn.items()}
        normed = {name: total[name] * t["weight"].float() for name, t in drawn.items()}
        squares = {name: rows.square().mean(1) for name, rows in total.items()}

        assert (drawn["nominal"]["x"] == 32.0).sum() == 1
        assert (draw(workload, "published", seed)["x"].abs() < 8).all()
        assert (squares["tiny"] < 2e-5).all()
        assert (total["shifted"].mean(1) > 2.5).all()
        assert (-normed["shifted"].amin(1) > 2 * normed["shifted"].amax(1)).all()
        assert (squares["rows"] == 0).sum() == 1
        loud = normed["outliers"].abs()
        assert (loud.argmax(1)[::2] == 499).all()
        assert (loud.amax(1) > 20 * loud.median(1).values)[::2].all()
