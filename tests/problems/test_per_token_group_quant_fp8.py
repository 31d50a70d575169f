"""Quantising groups of columns to fp8: by hand, code by code, the floor, the inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from atrex_problems_production.per_token_group_quant_fp8.private import Operator

from atrex_core import ArithmeticPath, DType, Pack, Tensors, Workload, dense, torch_dtype
from atrex_core.referee.bench import judge_outputs

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

FN, FNUZ = "fp8_e4m3fn", "fp8_e4m3fnuz"

LIMITS = {FN: 448.0, FNUZ: 224.0}

BOTH = pytest.mark.parametrize("dtype", [FN, FNUZ])


def shape(tokens: int, hidden: int, size: int, dtype: str | None = None) -> Workload:
    init = {"group_size": size, **({} if dtype is None else {"dtype": dtype})}
    axes = {"token_count": tokens, "hidden_size": hidden, "group_size": size}
    return Workload(id="case", axes=axes, init=init)


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def quantised(
    rows: list[list[float]], size: int, dtype: str | None
) -> dict[str, tuple[list[list[float]], list[list[float]]]]:
    """Return what every honest implementation makes of `rows`: codes as numbers, and scales."""
    workload = shape(len(rows), len(rows[0]), size, dtype)
    kind = torch_dtype(DType(dtype or FN))
    inputs = {"x": torch.tensor(rows).bfloat16()}
    runs = {"honest": PROBLEM.honest, **PROBLEM.variants(), "expected": PROBLEM.expected}
    answers = {name: run(workload, inputs) for name, run in runs.items()}
    return {
        name: (
            dense(answer["quantized"]).float().to(kind).float().tolist(),
            dense(answer["scales"]).tolist(),
        )
        for name, answer in answers.items()
    }


@pytest.mark.parametrize(("dtype", "limit"), [(None, 448.0), (FN, 448.0), (FNUZ, 224.0)])
def test_a_written_out_case(dtype: str | None, limit: float) -> None:
    rows = [[1.0, -2.0, 0.0, 0.5], [-8.0, 4.0, 16.0, 16.0]]

    for codes, scales in quantised(rows, 2, dtype).values():
        assert codes == [[limit / 2, -limit, 0.0, limit], [-limit, limit / 2, limit, limit]]
        assert scales[0] == pytest.approx([2 / limit, 0.5 / limit], rel=1e-6)
        assert scales[1] == pytest.approx([8 / limit, 16 / limit], rel=1e-6)


@BOTH
def test_no_scale_is_below_its_least(dtype: str) -> None:
    rows = [[2.0**-40, 0.0, 0.0, 0.0]]  # 2^-40 is 0.009095 * 1e-10

    for codes, scales in quantised(rows, 2, dtype).values():
        assert scales == [pytest.approx([1e-10, 1e-10], rel=1e-6)]
        # 4.66 denormals of e4m3fn, 9.31 of e4m3fnuz: the latter is a normal number of 9.
        assert codes == [[5 * 2.0**-9 if dtype == FN else 9 * 2.0**-10, 0.0, 0.0, 0.0]]


@BOTH
def test_every_code_is_the_nearest_of_all(dtype: str) -> None:
    table = torch.arange(256, dtype=torch.uint8).view(torch_dtype(DType(dtype))).double()
    table = table[table.isfinite()]
    workload = shape(3, 96, 32, dtype)

    for regime in PROBLEM.regimes(workload):
        inputs = draw(workload, regime)
        codes = PROBLEM.honest(workload, inputs)["quantized"].double().view(-1, 32)
        groups = inputs["x"].double().view(-1, 32)
        for group, found in zip(groups, codes, strict=True):
            wanted = group / max(float(group.abs().max()) / LIMITS[dtype], 1e-10)
            distance = (wanted[:, None] - table).abs().amin(1)

            assert ((wanted - found).abs() <= distance + 1e-6 * wanted.abs()).all()


def test_one_group_by_the_wrong_limit_among_many_is_refused() -> None:
    workload = shape(20, 7168, 128, FNUZ)
    inputs = draw(workload, "nominal")
    right = PROBLEM.honest(workload, inputs)
    group = inputs["x"][17, 640:768].float()
    codes = right["quantized"].clone()
    codes[17, 640:768] = (group / (group.abs().max() / 240)).to(codes.dtype)

    found = judge_outputs(PROBLEM, workload, inputs, {**right, "quantized": codes})

    assert found["scales"].passed
    assert not found["quantized"].passed
    assert found["quantized"].details["rows_wrong"] == 1


def test_more_rows_than_a_chunk_are_quantised_as_by_themselves() -> None:
    workload = shape(3, 1 << 23, 128)
    x = draw(shape(3, 512, 128), "groups")["x"].repeat(1, 1 << 14)

    found = PROBLEM.honest(workload, {"x": x})
    short = PROBLEM.honest(shape(3, 512, 128), {"x": x[:, :512].contiguous()})

    assert found["scales"][:, -4:].equal(short["scales"])
    assert found["quantized"][:, -512:].float().equal(short["quantized"].float())


def test_scales_lie_beside_their_tokens() -> None:
    found = {spec.name: (spec.dtype, spec.shape) for spec in PROBLEM.outputs(shape(3, 8, 2, FNUZ))}

    assert found == {"quantized": (DType.FP8_E4M3FNUZ, (3, 8)), "scales": (DType.FP32, (3, 4))}


def test_the_cost_of_a_shape() -> None:
    cost = PROBLEM.cost(shape(726, 7168, 128))

    assert cost.flops == {ArithmeticPath.FP32_VECTOR: 726 * (7168 + 56)}
    assert (cost.read_bytes, cost.write_bytes) == (726 * 7168 * 2, 726 * (7168 + 4 * 56))


@pytest.mark.parametrize("tokens", [1, 5])
@BOTH
def test_regimes_are_what_they_say(tokens: int, dtype: str) -> None:
    workload = shape(tokens, 320, 64, dtype)

    def groups(regime: str, seed: int) -> Any:
        return draw(workload, regime, seed)["x"].float().view(-1, 64)

    for seed in range(10):
        x = {regime: groups(regime, seed) for regime in PROBLEM.regimes(workload)}
        zeros = {regime: int((rows == 0).all(1).sum()) for regime, rows in x.items()}
        tiny = x["tiny"].abs().amax(1) / LIMITS[dtype]

        assert groups("published", seed).abs().max() < 8
        assert (x["nominal"] == 12.0).sum() == 1
        assert (x["negative"].amin(1) == -143 / 16).all()
        assert (x["negative"].amax(1) < 8).all()
        assert (tiny[::2] < 0.9e-10).all()
        assert ((tiny[1::2] > 1e-10) | (tiny[1::2] == 0)).all()
        assert zeros == {**dict.fromkeys(x, 0), "tiny": 1, "groups": 1}
        assert (x["outliers"].abs()[::2, -1] >= 256).all()
        assert (x["outliers"].abs().median(1).values < 2).all()
