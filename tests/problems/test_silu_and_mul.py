"""A gated activation: what the inputs contain."""

from __future__ import annotations

from atrex_problems_production.silu_and_mul.private import Operator

from atrex_core import Pack, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))


def test_gates_of_every_size_are_equally_loud() -> None:
    workload = Workload(id="case", axes={"shape": [20, 2000]})
    inputs = PROBLEM.draw(workload, regime="loud", seed=0, device="cpu")
    gate = inputs["x"].chunk(2, dim=-1)[0].double()
    out = PROBLEM.expected(workload, inputs)["out"].dense().abs()
    large = gate > 2.0**60

    assert set(gate.log2().floor().flatten().tolist()) >= set(range(121))
    assert gate.isfinite().all()
    assert 0.7 < out[large].mean() / out[~large].mean() < 1.4
    assert out.max() < 64
