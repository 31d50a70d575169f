"""Layer normalisation: by hand, any number of axes, one-pass variances, cost, and the inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from atrex_problems_production.layer_norm.private import Operator

from atrex_core import ArithmeticPath, DType, Inapplicable, Pack, Tensors, Workload
from atrex_core.referee.bench import judge_outputs
from atrex_core.tensors import dense

PROBLEM = Operator(Pack(name="test", version="1", digest=""))


def shape(*axes: int, parameters: str = "bf16") -> Workload:
    return Workload(id="case", axes={"shape": list(axes), "parameter_dtype": parameters})


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def truth(workload: Workload, inputs: Tensors) -> Any:
    return dense(PROBLEM.expected(workload, inputs)["out"])


def test_a_written_out_case() -> None:
    # Mean 5 and variance 9, of which the sample's would be 18; then mean 3 and no variance.
    inputs = {
        "x": torch.tensor([[2, 8], [3, 3]]).bfloat16(),
        "weight": torch.tensor([10, 20]).bfloat16(),
        "bias": torch.tensor([1, -1]).bfloat16(),
    }

    assert truth(shape(2, 2), inputs).flatten().tolist() == pytest.approx([-9, 19, 1, -1])
    assert PROBLEM.honest(shape(2, 2), inputs)["out"].flatten().tolist() == [-9, 19, 1, -1]


def test_epsilon_is_added_to_the_variance() -> None:
    inputs = {
        "x": torch.tensor([[-(2.0**-8), 2.0**-8]]).bfloat16(),
        "weight": torch.ones(2).bfloat16(),
        "bias": torch.zeros(2).bfloat16(),
    }
    right = 2.0**-8 / (2.0**-16 + 1e-5) ** 0.5

    assert truth(shape(1, 2), inputs)[0].tolist() == pytest.approx([-right, right])


@pytest.mark.parametrize(
    "axes", [(6,), (1, 6), (1, 1, 6), (3, 1, 6), (2, 3, 6), (2, 1, 2, 6)], ids=str
)
def test_only_the_last_axis_is_normalised(axes: tuple[int, ...]) -> None:
    workload = shape(*axes)
    inputs = draw(workload, "offset")
    rows = inputs["x"].reshape(-1, 6)
    flat = {**inputs, "x": rows}
    right = truth(shape(len(rows), 6), flat).view(axes)

    assert truth(workload, inputs).equal(right)
    assert judge_outputs(PROBLEM, workload, inputs, PROBLEM.honest(workload, inputs))["out"].passed
    for variant in PROBLEM.variants().values():
        assert judge_outputs(PROBLEM, workload, inputs, variant(workload, inputs))["out"].passed


def test_a_shape_without_axes_is_one_element_which_becomes_the_bias() -> None:
    workload = shape()
    inputs = draw(workload, "nominal")

    assert [spec.shape for spec in PROBLEM.inputs(workload)] == [(1,), (1,), (1,)]
    assert truth(workload, inputs).tolist() == inputs["bias"].tolist()
    assert PROBLEM.honest(workload, inputs)["out"].equal(inputs["bias"])


def test_a_scalar_is_returned_as_a_copy() -> None:
    x, one = torch.tensor(3.0).bfloat16(), torch.ones(1).bfloat16()
    out = PROBLEM._public("reference").Model()(x, one, one)

    assert out.item() == 3
    assert out.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("parameters", ["bf16", "fp32"])
def test_parameters_have_a_dtype_of_their_own(parameters: str) -> None:
    workload = shape(2, 8, parameters=parameters)
    specs = PROBLEM.inputs(workload)

    assert [spec.dtype for spec in specs] == [DType.BF16, DType(parameters), DType(parameters)]
    assert PROBLEM.outputs(workload)[0].dtype is DType.BF16
    assert PROBLEM.honest(workload, draw(workload, "nominal"))["out"].dtype == torch.bfloat16


@pytest.mark.parametrize("regime", PROBLEM.regimes(shape(1, 1)))
@pytest.mark.parametrize("width", [96, 1152], ids=str)
def test_one_pass_one_addition_after_the_other_is_good_enough_in_fp32(
    width: int, regime: str
) -> None:
    workload = shape(12, width)
    inputs = draw(workload, regime)
    x = inputs["x"].float()
    total, squares = torch.zeros(12), torch.zeros(12)
    for column in x.unbind(-1):
        total += column
        squares += column * column
    mean = (total / width)[:, None]
    variance = (squares / width)[:, None] - mean * mean
    out = (x - mean) * (variance + 1e-5).rsqrt() * inputs["weight"].float()
    answer = {"out": (out + inputs["bias"].float()).bfloat16()}

    assert judge_outputs(PROBLEM, workload, inputs, answer)["out"].passed


def test_sums_in_bf16_are_not() -> None:
    for workload in (shape(1, 1152), shape(7, 129)):
        inputs = draw(workload, "offset")
        answer = PROBLEM.mutants()["sums_in_bf16"](workload, inputs)

        assert not judge_outputs(PROBLEM, workload, inputs, answer)["out"].passed


def test_the_cost_is_seven_an_element_and_one_a_row() -> None:
    cost = PROBLEM.cost(shape(7, 3, 96, parameters="fp32"))

    assert cost.flops == {ArithmeticPath.FP32_VECTOR: 7 * 7 * 3 * 96 + 7 * 3}
    assert cost.read_bytes == 2 * 7 * 3 * 96 + 4 * 2 * 96
    assert cost.write_bytes == 2 * 7 * 3 * 96


@pytest.mark.parametrize("name", ["mean_of_next_row", "spread_of_next_row"])
def test_another_row_cannot_be_confused_where_there_is_one(name: str) -> None:
    workload = shape(1, 8)

    with pytest.raises(Inapplicable, match="one row"):
        PROBLEM.mutants()[name](workload, draw(workload, "nominal"))


def test_each_regime_does_what_it_says() -> None:
    workload = shape(30, 2, 256)

    def drawn(regime: str, name: str = "x") -> Any:
        values = draw(workload, regime)[name].double()
        return values.view(-1, 256) if name == "x" else values

    offset = drawn("offset")
    ratio = offset.mean(-1) / offset.std(-1)
    assert 4 < ratio.abs().min() < ratio.abs().max() < 9
    assert set(ratio.sign().tolist()) == {-1, 1}
    assert (offset[:, 128:].mean(-1) - offset[:, :128].mean(-1)).min() > 0.5
    variance = drawn("tiny").var(-1, correction=0)
    assert variance.max() < 1e-4
    assert 0 < variance[variance > 0].min() < 1e-6
    assert (variance == 0).sum() == 1
    assert drawn("biased", "bias").std() > 10 * drawn("biased", "weight").std()
    peaked = drawn("outliers")
    share = peaked.abs().amax(-1).square() / peaked.square().sum(-1)
    assert share.min() > 0.25
    assert share.std() > 0.1
    assert peaked.square().mean(-1).max() / peaked.square().mean(-1).min() > 1e5
    assert (drawn("nominal") == 16).sum() == 1
    assert drawn("published").std().item() == pytest.approx(1, rel=0.05)
    assert drawn("published", "bias").std().item() == pytest.approx(1, rel=0.2)
