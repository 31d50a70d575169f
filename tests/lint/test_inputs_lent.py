"""The lint's engine, and what implementations may not do to their inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from atrex_core import Problem, Protocol, Tensors, Workload
from atrex_core.model.lint import Fate, Finding
from atrex_core.referee.lint import lint_workload

_WRONG = ("zeros", "only_x", "difference", "rounded", "rolled")


def _lint(problem: Problem) -> dict[tuple[str, str], Finding]:
    options: Any = {"protocol": Protocol.STRICT, "device": "cpu", "seed": 7, "cases": 5}
    found = lint_workload(problem, problem.workloads[0], **options)
    return {(str(f.kind), f.name): f for f in found}


def _right(_: Workload, inputs: Tensors) -> Tensors:
    return {"out": inputs["x"] + inputs["y"]}


_CHANGES: dict[str, tuple[Any, bool]] = {
    "clear": (lambda i: i.clear(), False),
    "add": (lambda i: i.update(z=1), False),
    "replace": (lambda i: i.update(x=i["y"]), False),
    "reshape": (lambda i: i["x"].unsqueeze_(0), False),
    "transpose": (lambda i: i["x"].t_(), False),
    "gradient": (lambda i: i["x"].requires_grad_(), False),
    "data": (lambda i: i["x"].set_(torch.zeros(1)), False),
    "values": (lambda i: i["x"].add_(1), True),
    "storage": (lambda i: i["x"].untyped_storage().resize_(0), True),
}


@pytest.mark.parametrize(("change", "is_seen"), _CHANGES.values(), ids=_CHANGES)
@pytest.mark.parametrize("gives_the_same", [False, True], ids=["fresh", "kept"])
def test_what_one_does_to_its_inputs_reaches_no_other(
    broken: Any, sum_class: Any, change: Any, is_seen: bool, gives_the_same: bool
) -> None:
    kept: dict[Any, Tensors] = {}

    def draw(self: Any, workload: Workload, *, regime: str, seed: int, device: str) -> Tensors:
        drawn = sum_class.draw(self, workload, regime=regime, seed=seed, device=device)
        return kept.setdefault((regime, seed), drawn) if gives_the_same else drawn

    def changing(workload: Workload, inputs: Any) -> Tensors:
        out = _right(workload, inputs)
        change(inputs)
        return out

    found = _lint(broken(draw=draw, extra={"odd": changing, "last": _right}))

    odd = found["mutant", "odd"]
    assert (odd.fate, odd.reason) == (
        (Fate.BROKEN, "it changed its input 'x'") if is_seen else (Fate.SURVIVED, None)
    )
    assert found["mutant", "last"].identical
    assert [f.name for f in found.values() if f.fate is Fate.KILLED] == list(_WRONG)


@pytest.mark.parametrize(
    ("method", "found", "reason"),
    [
        ("mutants", ["zeros"], "TypeError: its mutants are ['zeros'], not a mapping"),
        ("mutants", {1: len}, "TypeError: its mutants are {1: <built-in"),
        ("variants", {"a": 1}, "TypeError: 'a' of its variants is 1, not a function"),
        ("regimes", [1], "TypeError: its regimes are [1], not a sequence of names"),
    ],
)
def test_what_is_of_a_wrong_type_is_said(broken: Any, method: str, found: Any, reason: str) -> None:
    (finding,) = _lint(broken(**{method: lambda *_: found})).values()

    assert (finding.name, finding.fate) == (method, Fate.BROKEN)
    assert str(finding.reason).startswith(reason)
