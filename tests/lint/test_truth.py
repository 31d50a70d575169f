"""A truth that every honest implementation disagrees with is what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from atrex_core import DType, Problem, Protocol, Tensors, TensorSpec, Workload
from atrex_core.model.lint import Fate
from atrex_core.referee.lint import lint_workload
from atrex_core.referee.lint_checks import check_workload


def _reference(problem: Problem) -> tuple[Fate, str | None]:
    options: Any = {"protocol": Protocol.STRICT, "device": "cpu", "seed": 1, "cases": 5}
    found = list(lint_workload(problem, problem.workloads[2], **options))
    (reference,) = (f for f in found if f.name == "reference")
    return reference.fate, reference.reason


def _times(factor: float) -> Callable[..., Tensors]:
    def expected(_: Any, __: Workload, inputs: Tensors) -> Tensors:
        return {"out": (inputs["x"].double() + inputs["y"].double()) * factor}

    return expected


@pytest.mark.parametrize("factor", [1.02, 0.98, 1.0001])
def test_a_wrong_truth_is_told_by_what_all_say(broken: Any, factor: float) -> None:
    fate, reason = _reference(broken(expected=_times(factor)))

    assert fate is Fate.REFUSED
    assert reason is not None
    assert reason.startswith(
        "output 'out': the reference and every variant agree with one another, but are "
    )
    assert reason.endswith("off `expected`")


def test_a_rounding_that_one_of_them_does_not_make_is_a_freedom(broken: Any) -> None:
    def rounded(_: Any, __: Workload, inputs: Tensors) -> Tensors:
        return {"out": inputs["x"].bfloat16().float() + inputs["y"]}

    assert _reference(broken(honest=rounded)) == (Fate.ACCEPTED, None)
    assert _reference(broken()) == (Fate.ACCEPTED, None)


@pytest.mark.parametrize("held", [False, True])
def test_a_truth_in_fp32_is_none_unless_declared(broken: Any, held: bool) -> None:
    def half(_: Any, workload: Workload, inputs: Tensors) -> Tensors:
        return {"out": (inputs["x"] + inputs["y"]).half()}

    problem = broken(
        honest=half,
        outputs=lambda _, w: [TensorSpec(name="out", dtype=DType.FP16, shape=(w.axes["rows"], 8))],
        expected=lambda _, w, i: {"out": i["x"] + i["y"]},
        fp32_truth=("out",) if held else (),
    )
    options: Any = {"device": "cpu", "seed": 3, "cases": 5, "watch": lambda _: None}

    found = {f.name: f for f in check_workload(problem, problem.workloads[0], **options)}

    assert found["expected"].fate is (Fate.PASSED if held else Fate.FAILED)
    assert held or found["expected"].reason == (
        "'out' is fp32, not fp64: that is no truth for an output in fp16"
    )
