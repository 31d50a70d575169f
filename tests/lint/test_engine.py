"""The lint's engine: known answers, right and wrong, and answers that are none."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from atrex_core import (
    Allclose,
    CodeSteps,
    DType,
    Inapplicable,
    Problem,
    Protocol,
    Rule,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
    torch_dtype,
)
from atrex_core.comparison import compare
from atrex_core.model.lint import Fate, Finding, Kind
from atrex_core.processes.attempt import Attempt, AttemptCell
from atrex_core.referee import seals
from atrex_core.referee.lint import lint_workload
from atrex_core.referee.margins import margin

_WRONG = ("zeros", "only_x", "difference", "rounded", "rolled")


def _lint(problem: Problem, **more: Any) -> dict[tuple[str, str], Finding]:
    workload = problem.workloads[0]
    options = {"protocol": Protocol.STRICT, "device": "cpu", "seed": 7, "cases": 5, **more}
    found = lint_workload(problem, workload, **options)
    return {(str(f.kind), f.name): f for f in found}


def _fates(found: Mapping[tuple[str, str], Finding]) -> dict[str, str]:
    return {name: str(finding.fate) for (_, name), finding in found.items()}


def _right(_: Workload, inputs: Tensors) -> Tensors:
    return {"out": inputs["x"] + inputs["y"]}


def _next_float(_: Workload, inputs: Tensors) -> Tensors:
    out = inputs["x"] + inputs["y"]
    out[0, 0] = torch.nextafter(out[0, 0], torch.tensor(1e9))
    return {"out": out}


def _raising(*_: Any, **__: Any) -> Any:
    raise RuntimeError("out of luck")


def _changing(_: Any, workload: Workload, inputs: Tensors) -> Tensors:
    inputs["x"].zero_()
    return {"out": inputs["x"] + inputs["y"]}


def _without_memory(_: Workload, inputs: Tensors) -> Tensors:
    raise torch.OutOfMemoryError("tried to allocate 16 GiB")


# -- known answers ---------------------------------------------------------------------------------


def test_wrong_answers_are_refused_and_honest_ones_accepted(broken: Any) -> None:
    found = _lint(broken())

    assert _fates(found) == {
        **dict.fromkeys(("reference", "commuted", "wide"), "accepted"),
        **dict.fromkeys(_WRONG, "killed"),
    }
    killed, honest = found["mutant", "only_x"], found["variant", "wide"]
    assert killed.regime == "nominal"
    assert killed.reason is not None
    assert killed.reason.startswith("output 'out': ")
    assert killed.share is not None
    assert killed.share > 100
    assert honest.share is not None
    assert honest.share < 0.5
    assert all(finding.is_as_it_should_be for finding in found.values())


def test_survivor_tells_how_near_it_came(broken: Any) -> None:
    found = _lint(broken(extra={"right": _right, "near": _next_float}))

    right, near = found["mutant", "right"], found["mutant", "near"]
    assert (right.fate, near.fate) == (Fate.SURVIVED, Fate.SURVIVED)
    assert (right.identical, near.identical) == (True, False)
    assert near.bound in ("element", "row L2", "relative L2")
    assert near.share is not None
    assert right.share is not None
    assert right.share <= near.share <= 1
    assert not near.is_as_it_should_be


class _Odd(torch.Tensor):
    pass


class _Unreadable(dict[str, Any]):
    def __iter__(self) -> Any:
        raise RuntimeError("not for you")


class _UnreadableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not for you")


def _raising_unreadable(*_: Any) -> Any:
    raise _UnreadableError


_NO_ANSWERS: dict[str, tuple[Any, Fate, str]] = {
    "raises": (_raising, Fate.BROKEN, "RuntimeError: out of luck (at lint/test_engine.py:"),
    "leaves": (lambda *_: exit(), Fate.BROKEN, "SystemExit"),
    "list": (lambda _, i: [i["x"]], Fate.BROKEN, "'list' is no mapping of ['out']"),
    "name": (lambda _, i: {"o": i["x"]}, Fate.BROKEN, "it names ['o'], not ['out']"),
    "number": (lambda _, i: {"out": 1.0}, Fate.BROKEN, "of type 'float', not a tensor"),
    "nothing": (lambda *_: None, Fate.BROKEN, "'NoneType' is no mapping of ['out']"),
    "text": (lambda *_: "out", Fate.BROKEN, "'str' is no mapping of ['out']"),
    "generator": (lambda _, i: (t for t in i), Fate.BROKEN, "'generator' is no mapping"),
    "array": (lambda _, i: {"out": i["x"].numpy()}, Fate.BROKEN, "'ndarray', not a tensor"),
    "sparse": (lambda _, i: {"out": i["x"].to_sparse()}, Fate.BROKEN, "'out' is sparse_coo, not"),
    "nested": (
        *(lambda _, i: {"out": torch.nested.nested_tensor(list(i["x"]))}, Fate.BROKEN),
        "'out' is nested, not dense",
    ),
    "subclass": (
        *(lambda _, i: {"out": i["x"].as_subclass(_Odd)}, Fate.BROKEN),
        "of type '_Odd', not a plain tensor",
    ),
    "elsewhere": (
        *(lambda _, i: {"out": i["x"].to("meta")}, Fate.BROKEN),
        "'out' is on device meta, not cpu",
    ),
    "gradient": (
        *(lambda _, i: {"out": i["x"].clone().requires_grad_()}, Fate.BROKEN),
        "'out' requires a gradient",
    ),
    "unreadable": (lambda _, i: _Unreadable(out=i["x"]), Fate.BROKEN, "RuntimeError: not for you"),
    "error": (_raising_unreadable, Fate.BROKEN, "_UnreadableError: its message cannot be read"),
    "dtype": (lambda _, i: {"out": i["x"].half()}, Fate.BROKEN, "'out' is fp16 [4, 8]"),
    "input": (lambda _, i: {"out": i["x"].add_(1)}, Fate.BROKEN, "it changed its input 'x'"),
    "memory": (_without_memory, Fate.SKIPPED, "needs more memory than cpu has free: OutOfMemory"),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested")
@pytest.mark.parametrize(
    ("implementation", "fate", "reason"), _NO_ANSWERS.values(), ids=_NO_ANSWERS
)
def test_answer_that_is_none_costs_no_other_its_trial(
    broken: Any, implementation: Any, fate: Fate, reason: str
) -> None:
    found = _lint(broken(extra={"odd": implementation, "last": _right}))

    assert found["mutant", "odd"].fate is fate
    assert reason in str(found["mutant", "odd"].reason)
    assert found["mutant", "last"].fate is Fate.SURVIVED
    assert found["mutant", "last"].identical
    assert [f.name for f in found.values() if f.fate is Fate.KILLED] == list(_WRONG)


def test_interrupt_of_a_mutants_own_is_its_answer(
    broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupting(*_: Any) -> Tensors:
        raise KeyboardInterrupt

    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_IGN)  # as in a lint's child
    found = _lint(broken(extra={"odd": interrupting, "last": _right}))

    assert found["mutant", "odd"].fate is Fate.BROKEN
    assert "KeyboardInterrupt" in str(found["mutant", "odd"].reason)
    assert found["mutant", "last"].fate is Fate.SURVIVED


def test_copy_of_us_that_a_mutant_makes_has_no_say(broken: Any, tmp_path: Path) -> None:
    place = tmp_path / "said"

    def forking(workload: Workload, inputs: Tensors) -> Tensors:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        return _right(workload, inputs)

    found = _lint(broken(extra={"odd": forking}))
    with place.open("a") as said:
        said.write("once\n")

    assert found["mutant", "odd"].fate is Fate.SURVIVED
    assert place.read_text() == "once\n"


def test_strides_of_a_single_element_are_nobodys_fault(broken: Any) -> None:
    def spread(_: Workload, inputs: Tensors) -> Tensors:
        out = inputs["x"] + inputs["y"]
        return {"out": out.as_strided(out.shape, (0, 0))}

    one = [TensorSpec(name="out", dtype=DType.FP32, shape=(1, 1))]
    drawn = {"x": torch.ones(1, 1), "y": torch.ones(1, 1).as_strided((1, 1), (0, 0))}
    problem = broken(extra={"spread": spread}, outputs=lambda *_: one, draw=lambda *_, **__: drawn)

    found = _lint(problem)

    assert found["mutant", "spread"].fate is Fate.SURVIVED
    assert found["mutant", "spread"].identical
    assert found["variant", "commuted"].fate is Fate.ACCEPTED


def test_only_a_mutant_may_be_inapplicable(broken: Any) -> None:
    def never(_: Workload, inputs: Tensors) -> Tensors:
        raise Inapplicable("one row has no order")

    found = _lint(broken(extra={"never": never}, variants=lambda self: {"honest": never}))

    assert found["mutant", "never"].fate is Fate.INAPPLICABLE
    assert found["mutant", "never"].reason == "one row has no order"
    assert found["variant", "honest"].fate is Fate.BROKEN


# -- what everything rests on ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "function", "culprit", "reason"),
    [
        ("draw", _raising, ("check", "draw"), "RuntimeError: out of luck (at "),
        ("expected", _raising, ("check", "expected"), "RuntimeError: out of luck (at "),
        ("honest", _raising, ("variant", "reference"), "RuntimeError: out of luck (at "),
        ("honest", _changing, ("variant", "reference"), "it changed its input 'x'"),
        ("expected", _changing, ("check", "expected"), "it changed its input 'x'"),
        ("canonical", _raising, ("variant", "reference"), "its answer could not be judged: "),
        ("variants", _raising, ("check", "variants"), "RuntimeError: out of luck (at "),
        ("mutants", _raising, ("check", "mutants"), "RuntimeError: out of luck (at "),
        ("regimes", _raising, ("check", "regimes"), "RuntimeError: out of luck (at "),
    ],
)
def test_what_everything_rests_on_ends_the_trial(
    broken: Any, method: str, function: Any, culprit: tuple[str, str], reason: str
) -> None:
    found = _lint(broken(**{method: function}))

    assert list(found) == [culprit]
    assert found[culprit].fate is Fate.BROKEN
    assert str(found[culprit].reason).startswith(reason)


def test_workload_that_does_not_fit_is_skipped(broken: Any) -> None:
    found = _lint(broken(draw=lambda self, *_, **__: _without_memory(*self.workloads[:1], {})))

    assert _fates(found) == {"draw": "skipped"}
    assert found["check", "draw"].is_as_it_should_be


def test_what_was_settled_before_the_end_is_kept(broken: Any, sum_class: Any) -> None:
    def draw(self: Any, workload: Workload, *, regime: str, **arguments: Any) -> Tensors:
        if regime == "large":
            raise RuntimeError("out of luck")
        drawn: Tensors = sum_class.draw(self, workload, regime=regime, **arguments)
        return drawn

    assert _fates(_lint(broken(draw=draw))) == {**dict.fromkeys(_WRONG, "killed"), "draw": "broken"}


def test_what_is_left_out_is_not_tried(broken: Any) -> None:
    tried: list[Attempt] = []

    found = _lint(broken(), watch=tried.append, without=[(Kind.MUTANT, "zeros")])
    nothing = _lint(broken(), without=[(Kind.CHECK, "draw")])

    assert "zeros" not in {attempt.name for attempt in tried}
    assert {a.name for a in tried} >= {"draw", "expected", "reference", "wide", "only_x"}
    assert ("mutant", "zeros") not in found
    assert nothing == {}


# -- margins, seals, cells -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "dtype", "bound"),
    [
        (Tolerance(dtype=DType.FP32), DType.FP32, "relative L2"),
        (CodeSteps(dtype=DType.FP8_E4M3FN), DType.FP8_E4M3FN, "distance in codes"),
        (None, DType.INT32, "equality"),
        (Allclose(absolute=0.01, relative=0.01), DType.FP32, "allclose"),
    ],
    ids=["tolerance", "codes", "exact", "allclose"],
)
def test_margin_names_the_bound(rule: Rule | None, dtype: DType, bound: str) -> None:
    spec = TensorSpec(name="out", dtype=dtype, shape=(2, 8))
    kind = torch_dtype(dtype)
    right = torch.arange(1, 17).reshape(2, 8).double()
    wrong = right.clone()
    wrong[1, 2] += 5

    bad = margin(compare(spec, rule, wrong.to(kind), right, right.to(kind)), 1)
    good = margin(compare(spec, rule, right.to(kind), right, right.to(kind)), 1)

    assert bad[0] == bound
    assert bad[1] is None or bad[1] > 1
    assert good[1] is None or 0 <= good[1] < 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.bool])
@pytest.mark.parametrize("is_large", [False, True], ids=["copied", "summed"])
def test_seal_notices_two_exchanged_elements(dtype: torch.dtype, is_large: bool) -> None:
    tensors = {"a": torch.zeros(0, dtype=dtype), "b": torch.arange(1003).remainder(2).to(dtype)[3:]}
    seal = seals.Seal.of(tensors)
    if is_large:
        seal = seals.Seal(None, {name: seals._sum(tensor) for name, tensor in tensors.items()})

    before = seal.broken(tensors)
    tensors["b"][[7, 8]] = tensors["b"][[8, 7]].clone()
    after = seal.broken(tensors)

    assert (before, after) == ([], ["b"])


def test_cell_tells_what_was_tried_last() -> None:
    cell = AttemptCell.create()
    seen = AttemptCell.open(cell.fd)

    first = seen.attempt, seen.counts
    cell.enter(Attempt(Kind.MUTANT, "no_bias", "nominal"))
    cell.beat()
    second = seen.attempt, seen.counts
    cell.enter(Attempt(Kind.CHECK, "draw"))
    third = seen.attempt
    cell.leave()

    assert first == (None, (0, 0))
    assert second == (Attempt(Kind.MUTANT, "no_bias", "nominal"), (1, 1))
    assert third == Attempt(Kind.CHECK, "draw", None)
    assert (seen.attempt, seen.counts) == (None, (1, 3))
    cell.close()
