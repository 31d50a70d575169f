"""Writing into a block cache: by hand, skipped tokens, the bound, and the inputs."""

from __future__ import annotations

import pytest
import torch
from atrex_problems_production.reshape_and_cache.private import Operator

from atrex_core import Pack, Tensors, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

FULL = ("nominal", "scattered", "skipped", "ends")


def shape(tokens: int, block_size: int = 4, num_blocks: int | None = None) -> Workload:
    axes = {"shape": [tokens, 2, 3], "block_size": block_size}
    if num_blocks is not None:
        axes["num_blocks"] = num_blocks
    return Workload(id="case", axes=axes)


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def one_wide(tokens: list[float], cache: list[float], slots: list[int]) -> tuple[Workload, Tensors]:
    """Return a case of one head of one element in blocks of two; values are negated keys."""
    blocks = len(cache) // 2
    workload = Workload(
        id="case", axes={"shape": [len(tokens), 1, 1], "block_size": 2, "num_blocks": blocks}
    )
    key, held = torch.tensor(tokens).bfloat16(), torch.tensor(cache).bfloat16()
    return workload, {
        "key": key.view(-1, 1, 1),
        "value": -key.view(-1, 1, 1),
        "key_cache": held.view(blocks, 2, 1, 1),
        "value_cache": -held.view(blocks, 2, 1, 1),
        "slot_mapping": torch.tensor(slots),
    }


def test_a_written_out_case() -> None:
    workload, inputs = one_wide([1, 2, 3], [10, 11, 12, 13, 14, 15], [5, -1, 2])
    expected, honest = PROBLEM.expected(workload, inputs), PROBLEM.honest(workload, inputs)

    assert expected["key_cache"].dense().flatten().tolist() == [10, 11, 3, 13, 14, 1]
    assert expected["value_cache"].dense().flatten().tolist() == [-10, -11, -3, -13, -14, -1]
    assert honest["key_cache"].flatten().tolist() == [10, 11, 3, 13, 14, 1]
    assert honest["value_cache"].flatten().tolist() == [-10, -11, -3, -13, -14, -1]
    assert inputs["key_cache"].flatten().tolist() == [10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize("slot", [-1, -2, -6], ids=str)
def test_any_negative_slot_is_skipped(slot: int) -> None:
    workload, inputs = one_wide([7], [1, 2, 3, 4, 5, 6], [slot])
    answers = [PROBLEM.honest(workload, inputs)["key_cache"]]
    answers += [run(workload, inputs)["key_cache"] for run in PROBLEM.variants().values()]
    answers += [PROBLEM.expected(workload, inputs)["key_cache"].dense()]

    assert [a.flatten().tolist() for a in answers] == [[1, 2, 3, 4, 5, 6]] * 5


def test_the_reference_updates_the_caches_it_is_given() -> None:
    _, inputs = one_wide([7], [1, 2], [1])
    model = PROBLEM._public("reference").Model()
    returned = model(**inputs)

    assert returned["key_cache"] is inputs["key_cache"]
    assert returned["value_cache"] is inputs["value_cache"]
    assert inputs["key_cache"].flatten().tolist() == [1, 7]
    assert dict(PROBLEM.in_place) == {name: name for name in returned}


def test_a_slow_loop_agrees() -> None:
    workload = shape(11, 4, 5)
    for regime in FULL:
        inputs = draw(workload, regime)
        expected = PROBLEM.expected(workload, inputs)
        for new, name in (("key", "key_cache"), ("value", "value_cache")):
            slow = inputs[name].clone()
            for token, slot in enumerate(inputs["slot_mapping"].tolist()):
                if slot >= 0:
                    slow[slot // 4, slot % 4] = inputs[new][token]
            assert expected[name].dense().equal(slow.double())


def test_the_bound_counts_tokens_that_are_written_and_no_other_slot() -> None:
    workload = shape(11, 4, 1000)
    skipped = {
        **draw(workload, "scattered"),
        "slot_mapping": torch.tensor([-1, 5, 9, -7] + [-1] * 7),
    }

    # A token is 2 heads of 3 elements of bf16, as key and as value; a slot is 8 bytes.
    assert PROBLEM.cost(workload).read_bytes == 2 * 11 * 12 + 11 * 8
    assert PROBLEM.cost(workload).write_bytes == 2 * 11 * 12
    assert PROBLEM.cost(workload, skipped).read_bytes == 2 * 2 * 12 + 11 * 8
    assert PROBLEM.cost(workload, skipped).write_bytes == 2 * 2 * 12
    assert PROBLEM.cost(workload).flops == {}


@pytest.mark.parametrize("tokens", [1, 11, 20], ids=str)
@pytest.mark.parametrize("regime", ["published", *FULL])
def test_no_two_tokens_share_a_slot_and_all_slots_exist(regime: str, tokens: int) -> None:
    for seed in range(5):
        slots = draw(shape(tokens, 4, 5), regime, seed)["slot_mapping"].tolist()
        live = [slot for slot in slots if slot >= 0]

        assert len(set(live)) == len(live)
        assert all(slot < 20 for slot in live)
        assert len(live) == tokens or regime == "skipped"


def test_regimes_hold_what_they_are_for() -> None:
    workload = shape(22, 4, 9)
    drawn = {regime: draw(workload, regime) for regime in ("published", *FULL)}
    slots = {regime: inputs["slot_mapping"] for regime, inputs in drawn.items()}
    token = torch.arange(22)

    assert slots["published"].equal(token)
    assert not drawn["published"]["key_cache"].any()
    assert not drawn["published"]["value_cache"].any()
    assert drawn["nominal"]["key"].max() == 100
    for regime in FULL:
        assert (drawn[regime]["key_cache"] != 0).float().mean() > 0.98
        assert (drawn[regime]["value_cache"] != 0).float().mean() > 0.98
    assert (slots["scattered"] != token).all()
    is_skipped = slots["skipped"] < 0
    assert 0 < is_skipped.sum() < 22
    assert (slots["skipped"] == -1).any()
    assert (drawn["skipped"]["key"][is_skipped] > 5000).all()
    assert (drawn["skipped"]["value"][~is_skipped].abs() < 100).all()
    assert slots["ends"].tolist() == [*range(35, 14, -1), 0]


def test_blocks_are_moved_as_a_whole_and_entered_in_the_middle() -> None:
    slots = draw(shape(22, 4, 9), "nominal")["slot_mapping"]
    steps = slots.diff()

    assert slots[0] % 4 > 0
    assert ((steps == 1) | (slots[1:] % 4 == 0)).all()
    assert (steps != 1).sum() > 1


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 1), (1, 9), (8, 2), (20, 5), (22, 9)])
def test_no_token_is_timed_in_the_slot_of_its_own_number(tokens: int, blocks: int) -> None:
    for seed in range(10):
        slots = draw(shape(tokens, 4, blocks), "nominal", seed)["slot_mapping"]

        assert (slots != torch.arange(tokens)).all()
        assert len(slots.unique()) == tokens


def test_denormals_of_both_signs_are_copied_and_stay() -> None:
    workload = shape(22, 4, 9)
    inputs = draw(workload, "ends")
    answers = [PROBLEM.honest(workload, inputs)]
    answers += [run(workload, inputs) for run in PROBLEM.variants().values()]

    for name in ("key_cache", "value_cache"):
        truth = PROBLEM.expected(workload, inputs)[name].dense()
        tiny = (truth.abs() < 2.0**-126) & (truth != 0)
        assert tiny.float().mean() > 0.25
        assert 0.3 < (truth[tiny] > 0).float().mean() < 0.7
        assert all(answer[name].double().equal(truth) for answer in answers)


def test_a_single_token_is_misplaced_by_its_number_and_skipped_where_tokens_are() -> None:
    for seed in range(20):
        assert draw(shape(1), "scattered", seed)["slot_mapping"].item() > 0
        assert draw(shape(1), "skipped", seed)["slot_mapping"].item() < 0
