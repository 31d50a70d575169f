"""The lint's checks: each fault is found by the check that is named after it, and by no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from atrex_core import Cost, Problem, RowBlocks, Scale, Tensors, Workload
from atrex_core.model.lint import Fate, Finding
from atrex_core.referee.isolation import Alone
from atrex_core.referee.lint_checks import check_problem, check_workload
from atrex_core.scaffold import PROVENANCE


@pytest.fixture(scope="module")
def alone() -> Iterator[Alone]:
    """Return the interpreter that runs public halves."""
    interpreter = Alone(30.0)
    yield interpreter
    interpreter.close()


def _complaints(found: Iterable[Finding]) -> dict[str, str]:
    return {f.name: f"{f.fate}: {f.reason}" for f in found if f.fate is not Fate.PASSED}


def _checked(problem: Problem) -> dict[str, str]:
    workload = problem.workloads[0]
    options: Any = {"device": "cpu", "seed": 3, "cases": 5, "watch": lambda _: None}
    return _complaints(check_workload(problem, workload, **options))


def _whole(problem: Problem, alone: Alone) -> dict[str, str]:
    return _complaints(check_problem(problem, alone=alone, watch=lambda _: None))


def test_sound_problem_passes_every_check(
    broken: Any, alone: Alone, public: Sequence[Path]
) -> None:
    problem = broken(public=public)

    whole = list(check_problem(problem, alone=alone, watch=lambda _: None))

    assert [(f.name, f.reason) for f in whole if f.fate is not Fate.PASSED] == []
    assert len(whole) == 10
    assert _checked(problem) == {}


# -- of a workload ---------------------------------------------------------------------------------


def _drawing(change: Callable[[Tensors], Any]) -> Any:
    def draw(self: Any, workload: Workload, **arguments: Any) -> Tensors:
        drawn: Tensors = change(type(self).__base__.draw(self, workload, **arguments))
        return drawn

    return draw


def _drawn_with(**changes: Any) -> Any:
    """Return a generator that uses other arguments than it is given."""

    def draw(self: Any, workload: Workload, **arguments: Any) -> Tensors:
        used = {**arguments, **changes}
        drawn: Tensors = type(self).__base__.draw(self, workload, **used)
        return drawn

    return draw


def _unlucky(self: Any, workload: Workload, *, regime: str, **arguments: Any) -> Tensors:
    if regime == "large":
        raise RuntimeError("out of luck")
    drawn: Tensors = type(self).__base__.draw(self, workload, regime=regime, **arguments)
    return drawn


def _costing(read: float, from_inputs: float) -> Any:
    def cost(self: Any, workload: Workload, inputs: Tensors | None = None) -> Cost:
        figure = read if inputs is None else from_inputs
        return Cost(flops={}, read_bytes=figure, write_bytes=0)

    return cost


def _answering(name: str, change: Callable[[Any], Any]) -> Any:
    def method(self: Any, workload: Workload, inputs: Tensors) -> Tensors:
        return {"out": change(getattr(type(self).__base__, name)(self, workload, inputs)["out"])}

    return method


def _changing(self: Any, workload: Workload, inputs: Tensors) -> Tensors:
    inputs["x"].zero_()
    return {"out": inputs["x"] + inputs["y"]}


def _lazy(self: Any, workload: Workload, inputs: Tensors) -> Tensors:
    whole = type(self).__base__.expected(self, workload, inputs)["out"]
    return {"out": RowBlocks(tuple(whole.shape), 2, lambda first, last: whole[first:last].half())}


def _noise(drawn: Tensors) -> Tensors:
    return {name: tensor + torch.rand_like(tensor) for name, tensor in drawn.items()}


def _strided(tensor: Any) -> Any:
    return tensor.T.contiguous().T


_FAULTS: dict[str, tuple[str, Any, str, str]] = {
    "no regimes": ("regimes", lambda *_: (), "regimes", "failed: there is no regime"),
    "a regime twice": (
        *("regimes", lambda *_: ("large", "large"), "regimes"),
        "failed: several regimes are called 'large'",
    ),
    "any regime": (
        *("draw", _drawn_with(regime="large"), "unknown regime"),
        "failed: a regime that does not exist is drawn",
    ),
    "letters": ("regimes", lambda *_: "ab", "regimes", "broken: TypeError: its regimes are 'ab'"),
    "in place": (
        *("in_place", {"out": "z"}, "in place"),
        "failed: in_place names 'z', which is no input: there are ['x', 'y']",
    ),
    "in place of": (
        *("in_place", {"sum": "x"}, "in place"),
        "failed: in_place names 'sum', which is no output: there are ['out']",
    ),
    "raising": ("draw", _unlucky, "draw", "broken: RuntimeError: out of luck"),
    "input left out": (
        *("draw", _drawing(lambda d: {"x": d["x"]}), "inputs"),
        "failed: it names ['x'], not ['x', 'y']",
    ),
    "order": (
        "draw",
        _drawing(lambda d: {n: d[n] for n in "yx"}),
        "inputs",
        "failed: they come as",
    ),
    "dtype": (
        *("draw", _drawing(lambda d: {n: t.double() for n, t in d.items()}), "inputs"),
        "failed: 'x' is fp64 [4, 8], not fp32",
    ),
    "strides": (
        *("draw", _drawing(lambda d: {n: _strided(t) for n, t in d.items()}), "inputs"),
        "failed: 'x' is not contiguous",
    ),
    "infinity": (
        *("draw", _drawing(lambda d: {**d, "y": d["y"] / 0}), "finite inputs"),
        "failed: 'y' holds values that are not finite",
    ),
    "no seed": ("draw", _drawing(_noise), "seeds", "failed: the same seed gives other values"),
    "one seed": ("draw", _drawn_with(seed=1), "seeds", "failed: 3 other seeds give the same"),
    "nothing moved": ("cost", _costing(0, 0), "cost", "failed: no byte has to be moved"),
    "infinite cost": ("cost", _costing(float("inf"), 1), "cost", "failed: its read bytes are inf"),
    "two costs": ("cost", _costing(10, 50), "cost", "failed: 50 bytes are counted from inputs"),
    "narrow reference": (
        *("honest", _answering("honest", lambda t: t.half()), "reference"),
        "failed: 'out' is fp16",
    ),
    "strided reference": (
        *("honest", _answering("honest", _strided), "reference"),
        "failed: 'out' is not contiguous",
    ),
    "changed input": ("honest", _changing, "inputs unchanged", "failed: an answer to them"),
    "short truth": (
        *("expected", _answering("expected", lambda t: t[:1]), "expected"),
        "failed: 'out' is [1, 8], not [4, 8]",
    ),
    "narrow truth": (
        *("expected", _answering("expected", lambda t: t.half()), "expected"),
        "failed: 'out' is fp16, not fp64: that is no truth for an output in fp32",
    ),
    "lazy narrow truth": (
        "expected",
        _lazy,
        "expected",
        "failed: 'out' is fp16, not fp64: that is no truth",
    ),
    "integer truth": (
        *("expected", _answering("expected", lambda t: t.long()), "expected"),
        "failed: 'out' is int64, its output is fp32",
    ),
}


@pytest.mark.parametrize(
    ("method", "function", "check", "complaint"), _FAULTS.values(), ids=_FAULTS
)
def test_fault_is_found_by_its_check_alone(
    broken: Any, method: str, function: Any, check: str, complaint: str
) -> None:
    found = _checked(broken(**{method: function}))

    assert list(found) == [check]
    assert found[check].startswith(complaint)


# -- of a problem ----------------------------------------------------------------------------------

_PUBLIC: dict[str, tuple[str, str, str, str]] = {
    "another package": (
        "inputs.py",
        "import torch",
        "import numpy",
        "a public file imports 'numpy'",
    ),
    "our package": ("reference.py", "import torch", "import atrex_core", "imports 'atrex_core'"),
    "other values": ("inputs.py", "100.0", "101.0", "draws other inputs than the problem on r4"),
    "no model": ("reference.py", "class Model", "class Mode", "AttributeError: "),
    "shape": ("reference.py", "x + y", "x[:1]", "forward returns [[1, 8]], declared are [[4, 8]]"),
    "abort": ("reference.py", "import torch", "import os; os.abort()", "was killed by SIGABRT"),
    "exit": ("inputs.py", "import torch", "raise SystemExit", "SystemExit: "),
}


@pytest.mark.parametrize(("name", "old", "new", "complaint"), _PUBLIC.values(), ids=_PUBLIC)
def test_public_half_runs_alone_or_is_complained_of(
    broken: Any, alone: Alone, public: Sequence[Path], name: str, old: str, new: str, complaint: str
) -> None:
    path = public[0].parent / name
    path.write_text(path.read_text().replace(old, new))

    found = _whole(broken(public=public), alone)

    assert list(found) == ["runs alone"]
    assert complaint in found["runs alone"]


@pytest.mark.parametrize("text", ["0.03125", "3.125 %", '{"importance": .03125}'])
def test_importance_in_a_public_file_is_found(
    broken: Any, alone: Alone, public: Sequence[Path], text: str
) -> None:
    public[0].write_text(f"{public[0].read_text()}\n# {text}\n")

    found = _whole(broken(public=public), alone)

    assert list(found) == ["private text"]
    assert found["private text"].startswith("failed: inputs.py holds ")


def test_public_file_that_is_not_there_is_named(
    broken: Any, alone: Alone, public: Sequence[Path]
) -> None:
    public[1].unlink()

    found = _whole(broken(public=public), alone)

    assert found["public files"].startswith("broken: FileNotFoundError: ")


def test_too_little_of_everything_is_said(broken: Any, alone: Alone) -> None:
    twice = [Workload(id="a", axes={"rows": 1}, scale=Scale.SMOKE)] * 2
    nothing = {"mutants": lambda _: {}, "variants": lambda _: {}, "workloads": twice}

    found = _whole(broken(**nothing), alone)

    assert found == {
        "mutants": "failed: 0 mutants are too few: at least 5 are asked for",
        "variants": "failed: 0 honest variants are too few: at least 2 are asked for",
        "smoke workloads": "failed: 2 smoke workloads are too few: at least 3 are asked for",
        "workload ids": "failed: workloads number 1 and 2 have one id, 'a': only the first of them "
        "is linted",
        "public files": "failed: there is no public inputs.py: a failure could not be shown again",
        "runs alone": "failed: there is no smoke workload, or no public file, to run",
    }


def test_what_no_release_may_hold_is_found(
    broken: Any, alone: Alone, public: Sequence[Path]
) -> None:
    public[2].write_text('{"regimes": ["nominal", "large"], "hint": "sum"}')

    found = _whole(broken(public=public), alone)

    assert found == {"release": "failed: has 'hint' in its shapes.json, which no release may hold"}


def test_provenance_that_nobody_has_written_is_found(
    broken: Any, alone: Alone, public: Sequence[Path]
) -> None:
    found = _whole(broken(public=public, provenance=PROVENANCE), alone)

    assert found == {"provenance": f"failed: it is still {PROVENANCE!r}"}
