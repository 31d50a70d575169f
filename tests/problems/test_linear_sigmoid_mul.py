"""A gate of a linear layer: what the inputs contain."""

from __future__ import annotations

from atrex_problems_production.linear_sigmoid_mul.private import Operator

from atrex_core import Pack, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))


def test_the_ends_of_the_sum_are_loud_and_cancel() -> None:
    axes = {"token_count": 6, "hidden_size": 64, "out_features": 48}
    inputs = PROBLEM.draw(Workload(id="case", axes=axes), regime="wide", seed=0, device="cpu")
    x, w = inputs["hidden_states"].double(), inputs["weight"].double()
    z = x @ w.T

    assert (z - x[:, 1:-1] @ w[:, 1:-1].T).abs().max() < 1e-9
    assert (x[:, :1] @ w[:, :1].T).std() > 20 * z.std()
    assert 2 < z.std() < 4


def test_gates_far_below_zero_are_as_loud_as_others() -> None:
    workload = Workload(id="case", axes={"token_count": 9, "hidden_size": 64, "out_features": 400})
    inputs = PROBLEM.draw(workload, regime="deep", seed=0, device="cpu")
    out = PROBLEM.expected(workload, inputs)["out"].dense().abs().log2().mean(0)
    deep = inputs["bias"] < -20

    assert inputs["bias"].max() < -9
    assert 0.4 < deep.double().mean() < 0.6
    assert (out[deep].mean() - out[~deep].mean()).abs() < 1
