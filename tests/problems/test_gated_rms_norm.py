"""Gated normalisation: by hand in each order and with each gate, cost, and the inputs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from atrex_problems_production.gated_rms_norm.private import Operator

from atrex_core import ArithmeticPath, Inapplicable, Pack, Tensors, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

KINDS = [(first, name) for first in (True, False) for name in ("silu", "swish", "sigmoid")]


def shape(
    rows: int, hidden: int, *, first: bool = True, activation: str = "silu", eps: float = 1e-6
) -> Workload:
    return Workload(
        id="case",
        axes={"rows": rows, "hidden_size": hidden},
        init={"eps": eps, "norm_before_gate": first, "activation": activation},
    )


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def by_loops(workload: Workload, inputs: Tensors) -> list[list[float]]:
    """Compute element by element."""
    first, name = workload.init["norm_before_gate"], workload.init["activation"]
    weight = inputs["weight"].tolist()
    answer = []
    for x, z in zip(inputs["x"].tolist(), inputs["z"].tolist(), strict=True):
        gate = [1 / (1 + math.exp(-v)) * (1 if name == "sigmoid" else v) for v in z]
        row = x if first else [a * g for a, g in zip(x, gate, strict=True)]
        root = math.sqrt(sum(v * v for v in row) / len(row) + workload.init["eps"])
        normed = [v / root * w for v, w in zip(row, weight, strict=True)]
        answer.append([v * g for v, g in zip(normed, gate, strict=True)] if first else normed)
    return answer


def test_a_written_out_case() -> None:
    # The root mean square of (1, 7) is 5; SiLU of 0 is 0, and of 40 in fp32 is 40.
    inputs = {
        "x": torch.tensor([[1, 7]]).bfloat16(),
        "weight": torch.tensor([10, 5]).bfloat16(),
        "z": torch.tensor([[40, 0]]).bfloat16(),
    }
    after = PROBLEM.expected(shape(1, 2), inputs)["out"].dense()
    # Gated first: (40, 0), whose root mean square is 40 / sqrt(2).
    before = PROBLEM.expected(shape(1, 2, first=False), inputs)["out"].dense()

    assert after.tolist() == [[pytest.approx(80), 0]]
    assert before.tolist() == [[pytest.approx(10 * math.sqrt(2)), 0]]


@pytest.mark.parametrize(("first", "activation"), KINDS)
@pytest.mark.parametrize("regime", ["tiny", "gates", "rows"])
def test_the_truth_is_what_loops_compute(first: bool, activation: str, regime: str) -> None:
    workload = shape(3, 5, first=first, activation=activation)
    inputs = draw(workload, regime)
    wanted = torch.tensor(by_loops(workload, inputs), dtype=torch.float64)

    torch.testing.assert_close(
        PROBLEM.expected(workload, inputs)["out"].dense(), wanted, rtol=1e-12, atol=0
    )
    torch.testing.assert_close(
        PROBLEM.honest(workload, inputs)["out"], wanted.bfloat16(), rtol=2**-7, atol=0
    )


def test_an_unknown_activation_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown activation 'relu'"):
        PROBLEM.run_reference(
            shape(1, 4), draw(shape(1, 4), "nominal"), **shape(1, 4, activation="relu").init
        )


@pytest.mark.parametrize(
    ("activation", "per_element"), [("silu", 7), ("swish", 7), ("sigmoid", 6)], ids=str
)
def test_the_cost_depends_on_the_gate_but_not_on_its_place(
    activation: str, per_element: int
) -> None:
    for first in (True, False):
        cost = PROBLEM.cost(shape(17, 96, first=first, activation=activation))

        assert cost.flops == {ArithmeticPath.FP32_VECTOR: 17 * (per_element * 96 + 1)}
        assert cost.read_bytes == 2 * (17 * 96 + 96 + 17 * 96)
        assert cost.write_bytes == 2 * 17 * 96


def test_a_row_of_zeros_gives_zeros() -> None:
    for first in (True, False):
        workload = shape(2, 8, first=first)
        inputs = {**draw(workload, "nominal"), "x": torch.zeros(2, 8).bfloat16()}

        assert not PROBLEM.honest(workload, inputs)["out"].any()


def test_a_wrong_row_cannot_be_told_where_there_is_one() -> None:
    workload = shape(1, 8)

    with pytest.raises(Inapplicable, match="one row"):
        PROBLEM.mutants()["gate_of_next_row"](workload, draw(workload, "nominal"))


def test_each_regime_does_what_it_says() -> None:
    workload = shape(60, 128)

    def drawn(regime: str, name: str) -> Any:
        return draw(workload, regime)[name].double()

    size = drawn("tiny", "x").square().mean(-1)
    assert size.max() < 1e-5
    assert size.min() < 1e-7
    centres = drawn("gates", "z").mean(-1).round()
    assert set(centres.tolist()) == {-12.0, -6.0, -3.0, 2.0, 6.0, 30.0}
    x, weight = drawn("rows", "x"), drawn("rows", "weight")
    assert (x.mean(-1).abs() / x.std(-1)).min() > 1
    assert {-1.0, 1.0} == set(x.mean(-1).sign().tolist())
    assert x.square().mean(-1).max() / x.square().mean(-1).min() > 1e6
    assert weight.min() < -1
    x, z = drawn("outliers", "x"), drawn("outliers", "z")
    loud = x[::2].abs().amax(-1)
    assert loud.min() >= 0.69 * x.shape[-1] ** 0.5
    assert loud.max() > 2 * loud.min()
    assert x[::4, -1].abs().min() >= loud.min()
    assert z[1::2].amax(-1).min() == 40
    assert x[1::2].abs().max() < 10
    assert z[::2].abs().max() < 10
    assert (drawn("nominal", "x") == 1).sum() == 1
    assert (drawn("nominal", "z") == 8).sum() == 1
    assert drawn("published", "x").std().item() == pytest.approx(0.02, rel=0.05)
    assert drawn("published", "weight").mean().item() == pytest.approx(1, abs=0.01)
