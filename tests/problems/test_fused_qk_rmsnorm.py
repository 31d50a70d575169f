"""Normalised query and key heads: by hand, rounding, copied values, cost, and the inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from atrex_problems_production.fused_qk_rmsnorm.private import Operator

from atrex_core import ArithmeticPath, Pack, Tensors, Workload
from atrex_core.referee.bench import judge_outputs

PROBLEM = Operator(Pack(name="test", version="1", digest=""))


def shape(tokens: int, queries: int, keys: int, size: int, dtype: str = "fp16") -> Workload:
    sizes = {"head_num": queries, "kv_head_num": keys, "size_per_head": size}
    return Workload(
        id="case", axes={"num_tokens": tokens, "dtype": dtype, **sizes}, init=dict(sizes)
    )


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def heads(workload: Workload, flat: Any) -> Any:
    return flat.double().view(len(flat), -1, workload.axes["size_per_head"])


def test_a_written_out_case() -> None:
    # Root mean squares 5, 1 and 13: of (1, 7), (-1, 1) and (13, 13). The value is copied.
    workload = shape(1, 2, 1, 2)
    inputs = {
        "hidden_states": torch.tensor([[1, 7, -1, 1, 13, 13, 40, -3]]).half(),
        "q_weight": torch.tensor([2, 10]).half(),
        "k_weight": torch.tensor([-1, 4]).half(),
    }
    expected = PROBLEM.expected(workload, inputs)["out"].dense()

    assert expected.flatten().tolist() == pytest.approx(
        [0.4, 14, -2, 10, -1, 4, 40, -3], rel=2**-10
    )
    assert PROBLEM.honest(workload, inputs)["out"].flatten().tolist() == pytest.approx(
        expected.flatten().tolist(), rel=2**-10
    )


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_the_normalised_head_is_rounded_before_the_weight(dtype: str) -> None:
    workload = shape(3, 4, 2, 16, dtype)
    inputs = draw(workload, "shifted")
    out = heads(workload, PROBLEM.expected(workload, inputs)["out"].dense())

    quotient = out[:, :4] / inputs["q_weight"].double()
    assert torch.equal(
        quotient.to(inputs["q_weight"].dtype).double() * inputs["q_weight"], out[:, :4]
    )


def test_a_kernel_may_skip_the_first_rounding_but_not_be_coarse() -> None:
    workload = shape(5, 4, 2, 32, "bf16")
    inputs = draw(workload, "shifted")
    unrounded = PROBLEM.variants()["by_division"](workload, inputs)
    coarse = PROBLEM.mutants()["coarse_middle"](workload, inputs)

    assert judge_outputs(PROBLEM, workload, inputs, unrounded)["out"].passed
    assert not judge_outputs(PROBLEM, workload, inputs, coarse)["out"].passed


def test_values_are_copied_to_the_last_bit() -> None:
    workload = shape(2, 3, 2, 8)
    inputs = draw(workload, "outliers")
    honest = PROBLEM.honest(workload, inputs)
    moved = honest["out"].clone()
    first_value = 5 * 8
    moved[1, first_value] = torch.nextafter(moved[1, first_value], torch.tensor(torch.inf).half())
    found = judge_outputs(PROBLEM, workload, inputs, {"out": moved})["out"]

    assert judge_outputs(PROBLEM, workload, inputs, honest)["out"].passed
    assert found.details["wrong"] == 1
    assert found.details["first_wrong"]["index"] == [1, first_value]


def test_the_last_bit_of_a_key_may_differ() -> None:
    workload = shape(2, 3, 2, 8)
    inputs = draw(workload, "shifted")
    moved = PROBLEM.honest(workload, inputs)["out"].clone()
    moved[1, 5 * 8 - 1] = torch.nextafter(moved[1, 5 * 8 - 1], torch.tensor(torch.inf).half())

    assert judge_outputs(PROBLEM, workload, inputs, {"out": moved})["out"].passed


def test_judging_leaves_the_answer_as_it_was() -> None:
    workload = shape(2, 3, 2, 8)
    inputs = draw(workload, "nominal")
    out = PROBLEM.honest(workload, inputs)["out"] * 2
    before = out.clone()
    judge_outputs(PROBLEM, workload, inputs, {"out": out})

    assert out.equal(before)


def test_the_cost_counts_normalised_heads_and_every_byte_once() -> None:
    cost = PROBLEM.cost(shape(7, 6, 2, 64))

    assert cost.flops == {ArithmeticPath.FP32_VECTOR: 7 * (6 + 2) * (4 * 64 + 1)}
    assert cost.read_bytes == 2 * (7 * (6 + 2 + 2) * 64 + 64 + 64)
    assert cost.write_bytes == 2 * 7 * (6 + 2 + 2) * 64


def test_epsilon_is_given_or_one_millionth() -> None:
    workload = shape(1, 1, 1, 2)
    inputs = {
        "hidden_states": torch.full((1, 6), 2.0**-10).half(),
        "q_weight": torch.ones(2).half(),
        "k_weight": torch.ones(2).half(),
    }
    larger = Workload(id="case", axes=workload.axes, init={**workload.init, "eps": 1e-2})
    given = 2.0**-10 / (2.0**-20 + 1e-2) ** 0.5

    assert PROBLEM.expected(workload, inputs)["out"].dense()[0, 0].item() == pytest.approx(
        2.0**-10 / (2.0**-20 + 1e-6) ** 0.5, rel=1e-3
    )
    assert PROBLEM.expected(larger, inputs)["out"].dense()[0, 0].item() == pytest.approx(
        given, rel=1e-3
    )


def test_each_regime_does_what_it_says() -> None:
    workload = shape(20, 6, 2, 64)

    def drawn(regime: str) -> Any:
        return heads(workload, draw(workload, regime)["hidden_states"])

    tiny, scaled, peaked = drawn("tiny"), drawn("heads"), drawn("outliers")
    size = tiny.square().mean(-1)
    assert size[:, :8].max() < 1e-5
    assert size[:, :8].min() < 1e-7
    assert size[:, 8:].min() > 0.1
    size = scaled.square().mean(-1)[:, :8]
    assert (size == 0).sum() == 1
    assert size.max() / size[size > 0].min() > 1e6
    assert drawn("shifted").mean(-1).min() > 1
    share = peaked.abs().amax(-1).square() / peaked.square().sum(-1)
    assert (share > 0.25).double().mean() > 0.8
    assert share.std() > 0.1
    published, nominal = drawn("published"), drawn("nominal")
    assert ((published != nominal).sum(), nominal.max()) == (1, 16)


def test_weights_of_queries_and_keys_differ() -> None:
    inputs = draw(shape(1, 2, 1, 128), "shifted")

    assert inputs["q_weight"].mean().item() == pytest.approx(1, abs=0.1)
    assert inputs["k_weight"].mean().item() == pytest.approx(3, abs=0.1)
