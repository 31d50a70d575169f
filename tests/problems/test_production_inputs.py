"""What the harder inputs contain, and which freedoms of the router are settled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from atrex_problems_production import atrex_problems

from atrex_core import Tensors, Workload, dense

PROBLEMS = {problem.name: problem for problem in atrex_problems()}
PAGED = PROBLEMS["paged_attention_decode"]
ROUTER = PROBLEMS["moe_topk_gating_softmax"]


def workload(name: str, id_: str) -> Workload:
    return next(w for w in PROBLEMS[name].workloads if w.id == id_)


def live_slots(inputs: Tensors) -> Any:
    """Return which slots of the cache hold tokens: bool [blocks, slots]."""
    blocks, _, _, slots = inputs["v_cache"].shape
    live = torch.zeros(blocks, slots, dtype=torch.bool)
    for table, length in zip(inputs["block_tables"], inputs["seq_lens"].tolist(), strict=True):
        for token in range(length):
            live[table[token // slots], token % slots] = True
    return live


def test_nominal_attention_is_as_published() -> None:
    shape = workload("paged_attention_decode", "3")
    inputs = PAGED.draw(shape, regime="nominal", seed=0, device="cpu")

    assert inputs["seq_lens"].tolist() == [128, 128, 128, 128]
    tables = inputs["block_tables"].flatten()
    assert len(tables.unique()) == 32
    assert not (tables == torch.arange(32)).any()
    assert inputs["k_cache"].shape == (48, 4, 16, 16, 8)
    assert inputs["v_cache"].shape == (48, 4, 128, 16)
    assert inputs["k_cache"].float().std().item() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("regime", ["ragged", "flat", "peaked", "needle", "crowd"])
def test_what_must_not_be_read_is_loud_and_finite(regime: str) -> None:
    for id_ in ("smoke-1x5", "smoke-3x37", "smoke-2x32", "smoke-4x19", "5"):
        shape = workload("paged_attention_decode", id_)
        for seed in range(5):
            inputs = PAGED.draw(shape, regime=regime, seed=seed, device="cpu")
            live = live_slots(inputs)
            loud = torch.tensor(10_000.0).to(inputs["v_cache"].dtype)

            assert (inputs["v_cache"].permute(0, 3, 1, 2)[~live] == loud).all()
            assert (inputs["k_cache"].permute(0, 3, 1, 2, 4)[~live] == loud).all()
            assert inputs["v_cache"].permute(0, 3, 1, 2)[live].abs().max() < 5000
            assert live.sum() == inputs["seq_lens"].sum()


@pytest.mark.parametrize("regime", ["ragged", "needle"])
def test_tables_are_scattered_and_lengths_are_ragged(regime: str) -> None:
    shape = workload("paged_attention_decode", "0")
    inputs = PAGED.draw(shape, regime=regime, seed=1, device="cpu")
    tables, lengths = inputs["block_tables"].flatten(), inputs["seq_lens"]

    assert len(tables.unique()) == len(tables)
    assert not (tables == torch.arange(len(tables))).any()
    assert {0, 1, 64} <= set(lengths.tolist())
    assert (lengths % 16 != 0).float().mean() > 0.9
    assert lengths.max() == 64


def test_a_single_sequence_is_shorter_in_two_regimes() -> None:
    shape = workload("paged_attention_decode", "5")
    lengths = {
        regime: PAGED.draw(shape, regime=regime, seed=2, device="cpu")["seq_lens"].item()
        for regime in PAGED.regimes(shape)
    }

    assert [lengths[name] for name in ("nominal", "flat", "peaked", "crowd")] == [128] * 4
    assert 1 < lengths["ragged"] < 128
    assert 1 < lengths["needle"] < 128


def test_a_sequence_without_tokens_gives_zeros() -> None:
    shape = workload("paged_attention_decode", "smoke-3x37")
    inputs = PAGED.draw(shape, regime="ragged", seed=0, device="cpu")
    empty = inputs["seq_lens"] == 0

    assert empty.sum() == 1
    assert (dense(PAGED.expected(shape, inputs)["out"])[empty] == 0).all()
    assert (PAGED.honest(shape, inputs)["out"][empty] == 0).all()


def test_attention_of_a_written_out_case() -> None:
    shape = workload("paged_attention_decode", "smoke-1x5")
    inputs = dict(PAGED.draw(shape, regime="flat", seed=0, device="cpu"))
    inputs["seq_lens"] = torch.tensor([3], dtype=torch.int32)
    block = int(inputs["block_tables"][0, 0])
    inputs["v_cache"][block, 0, :, :3] = torch.tensor([1.0, 2.0, 6.0]).bfloat16()

    # The query is zero, so the three live values count the same.
    assert (dense(PAGED.expected(shape, inputs)["out"]) - 3.0).abs().max() < 1e-12


def test_tiny_inputs_make_epsilon_matter() -> None:
    for name in ("rms_norm", "fused_add_rms_norm"):
        shape = workload(name, "smoke-16x96")
        inputs = PROBLEMS[name].draw(shape, regime="tiny", seed=0, device="cpu")
        rows = inputs["x"].double() + inputs.get("residual", torch.zeros(())).double()

        assert rows.square().mean(-1).max() < 2e-5


def test_nominal_values_are_as_published() -> None:
    shape = workload("rms_norm", "7")
    inputs = PROBLEMS["rms_norm"].draw(shape, regime="nominal", seed=0, device="cpu")

    loud = inputs["x"] == 1.0
    assert 1 <= loud.sum() <= 1 + inputs["x"].numel() // 65536
    assert inputs["x"][~loud].float().std().item() == pytest.approx(0.02, rel=0.02)
    assert inputs["weight"].float().mean().item() == pytest.approx(1.0, abs=0.01)


def route(logits: list[float], top_k: int) -> tuple[Workload, Tensors]:
    shape = Workload(
        id="case", axes={"token_count": 1, "num_experts": len(logits)}, init={"top_k": top_k}
    )
    return shape, {"gating_output": torch.tensor([logits])}


def settled(shape: Workload, inputs: Tensors, ids: list[int]) -> list[int]:
    outputs = {"topk_ids": torch.tensor([ids], dtype=torch.int32)}
    result: list[int] = ROUTER.canonical(shape, inputs, outputs, ROUTER.expected(shape, inputs))[
        "topk_ids"
    ][0].tolist()
    return result


def test_equal_experts_may_come_in_any_order_and_any_choice() -> None:
    shape, inputs = route([1.0, 3.0, 2.0, 2.0, 0.0, 2.0], 3)

    assert dense(ROUTER.expected(shape, inputs)["topk_ids"]).tolist() == [[1, 2, 3]]
    assert settled(shape, inputs, [1, 2, 3]) == [1, 2, 3]
    assert settled(shape, inputs, [1, 3, 2]) == [1, 2, 3]
    assert settled(shape, inputs, [1, 5, 3]) == [1, 2, 3]


@pytest.mark.parametrize(
    "ids",
    [[1, 2, 2], [2, 1, 3], [1, 2, 0], [1, 2, 4], [1, 2, 6], [1, 2, -1], [0, 0, 0]],
    ids=["repeated", "misordered", "worse", "worst", "beyond", "negative", "zeros"],
)
def test_wrong_experts_stay_wrong(ids: list[int]) -> None:
    shape, inputs = route([1.0, 3.0, 2.0, 2.0, 0.0, 2.0], 3)

    assert settled(shape, inputs, ids) == ids


def test_experts_that_fp32_tells_apart_are_not_equal() -> None:
    near, far = 2.0 + 2.0**-22, 2.0 + 2.0**-14
    close, inputs_close = route([0.0, 2.0, near], 2)
    apart, inputs_apart = route([0.0, 2.0, far], 2)

    assert settled(close, inputs_close, [1, 2]) == [2, 1]
    assert settled(apart, inputs_apart, [1, 2]) == [1, 2]
    assert ROUTER.expected(apart, inputs_apart)["topk_ids"].tolist() == [[2, 1]]


def test_groups_limit_the_choice_in_reference_and_truth_alike() -> None:
    shape = Workload(
        id="case",
        axes={"token_count": 1, "num_experts": 6},
        init={"top_k": 3, "num_expert_groups": 3, "topk_group": 1},
    )
    inputs = {"gating_output": torch.tensor([[2.0, 0.0, 3.0, 1.0, 2.5, 2.5]])}
    total = sum(torch.tensor([2.0, 0.0, 3.0, 1.0, 2.5, 2.5], dtype=torch.float64).exp().tolist())

    expected, honest = ROUTER.expected(shape, inputs), ROUTER.honest(shape, inputs)

    # Group 1 holds the largest; the third place goes to any expert outside, at zero.
    assert expected["topk_ids"].tolist() == [[2, 3, 0]]
    assert honest["topk_ids"].tolist() == [[2, 3, 0]]
    assert dense(expected["topk_weights"])[0].tolist() == pytest.approx(
        [20.085536923187668 / total, 2.718281828459045 / total, 0.0]
    )
    assert settled(shape, inputs, [2, 3, 5]) == [2, 3, 0]
    assert settled(shape, inputs, [2, 4, 5]) == [2, 4, 5]
