"""Input sets in one buffer, and what is known of answers to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
import torch
from atrex_accelerator_cpu import CpuAccelerator

from atrex_core import DType, TensorSpec
from atrex_core.comparison import Comparison
from atrex_core.referee import timed_outputs
from atrex_core.referee.arena import Arena
from atrex_core.referee.bench import Case
from atrex_core.referee.timed_outputs import TimedOutputs, WrongWhenTimed

X = TensorSpec(name="x", dtype=DType.FP32, shape=(3, 5))
N = TensorSpec(name="n", dtype=DType.INT32, shape=())


@pytest.fixture
def arena() -> Any:
    accelerator = CpuAccelerator()
    context = accelerator.open(accelerator.devices()[0])
    arena = Arena.allocate(context, [X, N], [X], sets=11)
    yield arena
    arena.close()


def drawn(number: int) -> Mapping[str, torch.Tensor]:
    return {"x": torch.randn(3, 5), "n": torch.tensor(number, dtype=torch.int32)}


@pytest.mark.parametrize("count", [1, 2, 3, 11, 20])
def test_every_set_gets_the_inputs_whose_turn_it_is(arena: Arena, count: int) -> None:
    pool = [drawn(number) for number in range(count)]

    arena.write_all_inputs(pool)

    for index in range(11):
        assert arena.changed_inputs(index, pool[index % count]) == []
    assert arena.changed_inputs(0, drawn(99)) == ["x", "n"]


class Judge:
    """Stands in for the comparison: right is what was said to be, and each time is counted."""

    def __init__(self, right: Sequence[float]) -> None:
        self.right = right
        self.asked = 0

    def __call__(self, _problem: Any, _workload: Any, inputs: Any, outputs: Any) -> Any:
        self.asked += 1
        passed = float(outputs["out"][0]) in self.right
        return {"out": Comparison(passed=passed, reason=None if passed else "it is wrong")}


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> tuple[TimedOutputs, Judge]:
    judge = Judge(right=(1.0, 1.5))
    monkeypatch.setattr(timed_outputs, "judge_outputs", judge)
    nothing = cast(Any, None)
    return TimedOutputs(nothing, nothing, nothing, "a test"), judge


def case(seed: int) -> Case:
    return Case(regime="nominal", seed=seed, inputs={})


def test_the_bytes_of_an_approved_answer_are_not_judged_again(
    check: tuple[TimedOutputs, Judge],
) -> None:
    outputs, judge = check
    for _ in range(3):
        outputs.check_outputs(0, case(7), {"out": torch.ones(4)})

    assert judge.asked == 1
    assert outputs.are_approved([case(6), case(7)]) == [1]


def test_other_bytes_are_judged_and_so_are_answers_to_other_inputs(
    check: tuple[TimedOutputs, Judge],
) -> None:
    outputs, judge = check
    outputs.check_outputs(0, case(7), {"out": torch.ones(4)})
    outputs.check_outputs(1, case(7), {"out": torch.full((4,), 1.5)})  # an order of its own
    outputs.check_outputs(2, case(8), {"out": torch.ones(4)})
    assert judge.asked == 3

    with pytest.raises(WrongWhenTimed) as caught:
        outputs.check_outputs(3, case(7), {"out": torch.zeros(4)})
    assert "it is wrong" in str(caught.value.result.reason)


def test_a_wrong_answer_is_never_approved(check: tuple[TimedOutputs, Judge]) -> None:
    outputs, _ = check
    for _ in range(2):
        with pytest.raises(WrongWhenTimed):
            outputs.check_outputs(0, case(7), {"out": torch.zeros(4)})
    assert outputs.are_approved([case(7)]) == []


def test_no_more_answers_are_kept_than_memory_was_counted_for(
    check: tuple[TimedOutputs, Judge],
) -> None:
    outputs, _ = check
    for seed in range(5):
        outputs.check_outputs(0, case(seed), {"out": torch.ones(4)})
    assert outputs.are_approved([case(seed) for seed in range(5)]) == [0, 1]
