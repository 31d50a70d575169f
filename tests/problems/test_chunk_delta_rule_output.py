"""The chunked delta rule's output: its definition by hand, its cost, and its inputs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from atrex_problems_production.chunk_delta_rule_output.private import Operator

from atrex_core import ArithmeticPath, Pack, Tensors, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))


def shape(tokens: int, *, batch: int = 1, heads: int = 4, size: int = 16, **init: Any) -> Workload:
    axes = {
        "batch_size": batch,
        "token_count": tokens,
        "num_q_heads": heads // 2,
        "num_v_heads": heads,
        "key_dim": 8,
        "value_dim": 4,
        "chunk_size": size,
    }
    return Workload(id="case", axes=axes, init={"chunk_size": size, **init})


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def single(gates: list[float]) -> Tensors:
    """Return one head of one-by-one states, in chunks of two tokens."""

    def column(*values: float) -> Any:
        return torch.tensor(values).view(1, -1, 1, 1).bfloat16()

    return {
        "q": column(1, 2, 1),
        "k": column(1, 0.5, 2),
        "v": column(2, 4, 8),
        "h": column(3, 5)[..., None],
        "g": torch.tensor(gates).log().view(1, -1, 1),
    }


SINGLE = Workload(
    id="single",
    axes={
        "batch_size": 1,
        "token_count": 3,
        "num_q_heads": 1,
        "num_v_heads": 1,
        "key_dim": 1,
        "value_dim": 1,
        "chunk_size": 2,
    },
    init={"chunk_size": 2, "scale": 2.0},
)


@pytest.mark.parametrize(
    ("gates", "second"),
    [
        # 2 * (0.25 * 2 * 3 + 2 * 1 * (0.25 / 0.5) * 2 + 2 * 0.5 * 4)
        ([0.5, 0.25, 0.5], 15.0),
        # Equal gates: 2 * (0.5 * 2 * 3 + 2 * 1 * 2 + 2 * 0.5 * 4)
        ([0.5, 0.5, 0.5], 22.0),
        # Rising: 2 * (1 * 2 * 3 + 2 * 0.5 * 4), without the first token
        ([0.5, 1.0, 0.5], 20.0),
    ],
    ids=["falling", "equal", "rising"],
)
def test_a_written_out_case(gates: list[float], second: float) -> None:
    inputs = single(gates)
    expected = PROBLEM.expected(SINGLE, inputs)["out"].flatten().tolist()
    honest = PROBLEM.honest(SINGLE, inputs)["out"].flatten().tolist()

    # 2 * (0.5 * 1 * 3 + 1 * 1 * 2) and, in the next chunk, 2 * (0.5 * 1 * 5 + 1 * 2 * 8)
    assert expected == pytest.approx([7.0, second, 37.0])
    assert honest == pytest.approx([7.0, second, 37.0], rel=2**-8)


@pytest.mark.parametrize("regime", ["nominal", "falling", "stepped", "rising", "steep"])
def test_truth_is_what_a_loop_over_rows_gives(regime: str) -> None:
    workload = shape(21, batch=2, size=8)
    inputs = draw(workload, regime)
    q, k, v, h, g = (inputs[name].double() for name in "qkvhg")
    wanted = torch.zeros(v.shape, dtype=torch.float64)
    for b in range(2):
        for n in range(4):
            for i in range(21):
                first = i // 8 * 8
                row = g[b, i, n].exp() * (q[b, i, n // 2] @ h[b, i // 8, n])
                for j in range(first, i + 1):
                    if g[b, i, n] <= g[b, j, n]:
                        fall = (g[b, i, n] - g[b, j, n]).exp()
                        row = row + fall * (q[b, i, n // 2] @ k[b, j, n // 2]) * v[b, j, n]
                wanted[b, i, n] = row * 8**-0.5
    expected = PROBLEM.expected(workload, inputs)["out"].double()

    assert (expected - wanted).abs().max() < 1e-6 * wanted.abs().max()


def test_cost_counts_the_pairs_that_count_and_each_byte_once() -> None:
    workload = shape(3, heads=2, size=2)
    inputs = dict(draw(workload, "nominal"))
    # Head 0 falls and head 1 rises in the first chunk; a pair within it counts in head 0 alone.
    inputs["g"] = torch.tensor([[[-1.0, -1.0], [-2.0, -0.5], [0.0, 0.0]]])
    cost = PROBLEM.cost(workload, inputs)

    assert cost.flops == {
        ArithmeticPath.BF16_MATRIX: 2 * 6 * 8 * 4 + 2 * 7 * (8 + 4),
        ArithmeticPath.FP32_VECTOR: 2 * 6 * 4 + 2 * 1,
    }
    assert cost.read_bytes == 2 * (2 * 3 * 8 + 3 * 2 * 4 + 2 * 2 * 8 * 4) + 4 * 3 * 2
    assert cost.write_bytes == 2 * 3 * 2 * 4


def test_the_average_cost_is_that_of_independent_gates() -> None:
    workload = shape(1000, heads=16)
    drawn = PROBLEM.cost(workload, draw(workload, "published"))
    average = PROBLEM.cost(workload)

    for path in (ArithmeticPath.BF16_MATRIX, ArithmeticPath.FP32_VECTOR):
        assert drawn.flops[path] == pytest.approx(average.flops[path], rel=0.01)


def test_gates_do_what_their_regimes_say() -> None:
    workload = shape(64)
    g = {
        regime: draw(workload, regime)["g"].view(4, 16, 4)
        for regime in ("published", "falling", "stepped", "rising", "steep")
    }

    assert -1 < g["published"].min() < g["published"].max() <= 0
    assert (g["falling"].diff(dim=1) < 0).all()
    assert g["falling"].min() > -1.6
    assert (g["rising"].diff(dim=1) > 0).all()
    assert len(g["stepped"].unique()) == 8
    assert (g["stepped"].diff(dim=1) > 0).any()
    assert (g["stepped"].diff(dim=1) == 0).any()
    assert (g["steep"][:, -1] < -math.log(torch.finfo(torch.float32).max)).all()


def test_loud_values_are_few_and_the_seed_places_them() -> None:
    workload = shape(200)
    first, second = (draw(workload, "nominal", seed) for seed in (0, 1))

    for name in ("q", "v", "h"):
        assert (first[name] == 1.0).sum() == 1
        assert not torch.equal(first[name] == 1.0, second[name] == 1.0)


def test_the_default_scale_is_that_of_the_key_dimension() -> None:
    inputs = draw(shape(5), "falling")
    workloads = shape(5), shape(5, scale=8**-0.5)
    plain, scaled = (PROBLEM.expected(workload, inputs)["out"] for workload in workloads)

    assert torch.equal(plain, scaled)
