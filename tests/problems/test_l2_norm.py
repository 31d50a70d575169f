"""Euclidean normalisation: by hand, where epsilon stands, cost, and the inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from atrex_problems_production.l2_norm.private import Operator

from atrex_core import ArithmeticPath, DType, Inapplicable, Pack, Tensors, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))


def shape(tokens: int, hidden: int, dtype: str | None = None, eps: float | None = None) -> Workload:
    axes: dict[str, Any] = {"num_tokens": tokens, "hidden_size": hidden}
    init: dict[str, Any] = {"hidden_size": hidden}
    if dtype is not None:
        axes["dtype"] = dtype
    if eps is not None:
        init["eps"] = eps
    return Workload(id="case", axes=axes, init=init)


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def test_a_written_out_case() -> None:
    inputs = {"x": torch.tensor([[3, -4], [0, 0], [8, 15]]).bfloat16()}
    expected = PROBLEM.expected(shape(3, 2), inputs)["out"].dense()

    assert expected.flatten().tolist() == pytest.approx([0.6, -0.8, 0, 0, 8 / 17, 15 / 17])
    assert PROBLEM.honest(shape(3, 2), inputs)["out"].flatten().tolist() == pytest.approx(
        [0.6, -0.8, 0, 0, 8 / 17, 15 / 17], rel=2**-8
    )


def test_epsilon_is_added_to_the_sum_inside_the_root() -> None:
    # Four elements of 2**-10: the sum of squares is 2**-18, about four times epsilon.
    inputs = {"x": torch.full((1, 4), 2.0**-10).bfloat16()}

    for eps in (None, 1e-4):
        got = PROBLEM.expected(shape(1, 4, eps=eps), inputs)["out"].dense()[0, 0].item()

        assert got == pytest.approx(2.0**-10 / (2.0**-18 + (eps or 1e-6)) ** 0.5)


@pytest.mark.parametrize(
    ("dtype", "stated"),
    [(None, DType.BF16), ("bfloat16", DType.BF16), ("float16", DType.FP16)],
    ids=str,
)
def test_the_dtype_is_an_axis(dtype: str | None, stated: DType) -> None:
    workload = shape(2, 8, dtype)

    assert PROBLEM.inputs(workload)[0].dtype is stated
    assert PROBLEM.tolerance(PROBLEM.outputs(workload)[0]).dtype is stated
    assert PROBLEM.honest(workload, draw(workload, "nominal"))["out"].dtype == (
        torch.float16 if dtype == "float16" else torch.bfloat16
    )


def test_the_cost_is_three_an_element() -> None:
    cost = PROBLEM.cost(shape(17, 128))

    assert cost.flops == {ArithmeticPath.FP32_VECTOR: 3 * 17 * 128}
    assert (cost.read_bytes, cost.write_bytes) == (2 * 17 * 128, 2 * 17 * 128)


@pytest.mark.parametrize("name", ["scale_of_next_row", "one_scale_for_all_rows"])
def test_another_row_cannot_be_confused_where_there_is_one(name: str) -> None:
    workload = shape(1, 8)

    with pytest.raises(Inapplicable, match="one row"):
        PROBLEM.mutants()[name](workload, draw(workload, "nominal"))


@pytest.mark.parametrize("hidden", [64, 4096], ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_each_regime_does_what_it_says(hidden: int, dtype: str) -> None:
    workload = shape(40, hidden, dtype)

    def drawn(regime: str) -> Any:
        return draw(workload, regime)["x"].double()

    total = drawn("tiny").square().sum(-1)
    assert total.max() < 1e-5
    assert total.min() < 1e-7
    assert drawn("shifted").mean(-1).min() > 1
    size = drawn("rows").square().mean(-1)
    assert (size == 0).sum() == 1
    assert size.max() / size[size > 0].min() > 1e6
    peaked = drawn("outliers")
    share = peaked.abs().amax(-1).square() / peaked.square().sum(-1)
    assert (share > 0.5).double().mean() > 0.6
    assert (drawn("nominal") == 32).sum() >= 1
    assert drawn("published").std().item() == pytest.approx(1, rel=0.05)
