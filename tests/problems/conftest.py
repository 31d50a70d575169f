"""What is asked of several attention operators in the same way."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from atrex_problems_production._attention import Attention, exact, plain
from atrex_problems_production._problem import ProductionProblem
from attrs import evolve

from atrex_core import Tensors, Workload


@pytest.fixture(scope="session")
def assert_as_slow() -> Callable[..., None]:
    """Return what compares truth and reference of a workload with a slow loop."""

    def check(
        problem: ProductionProblem,
        id_: str,
        regimes: Sequence[str],
        slowly: Callable[[Tensors], Any],
    ) -> None:
        workload = next(w for w in problem.workloads if w.id == id_)
        for regime in regimes:
            inputs = problem.draw(workload, regime=regime, seed=3, device="cpu")
            slow = slowly(inputs)

            assert (_truth(problem, workload, inputs) - slow).abs().max() < 1e-11
            honest = problem.honest(workload, inputs)["out"].double()
            assert ((honest - slow).abs() <= 2.0**-8 * slow.abs() + 1e-4).all()

    return check


@pytest.fixture(scope="session")
def assert_same_in_pieces() -> Callable[..., None]:
    """Return what attends to more or less at once, and to some rows alone."""

    def check(
        problem: ProductionProblem,
        workload: Workload,
        attention: Callable[[Workload, Tensors], Attention],
    ) -> None:
        inputs = problem.draw(workload, regime="ragged", seed=1, device="cpu")
        whole = _truth(problem, workload, inputs)
        right = attention(workload, inputs)

        for scores, fetched, packed in ((1, 1, 1), (40, 1 << 20, 1 << 20), (1 << 20, 300, 100)):
            small = evolve(right, scores=scores, fetched=fetched, packed=packed)
            assert (small.by(exact).dense() - whole).abs().max() < 1e-12
            assert (small.by(plain).dense() - whole).abs().max() < 1e-5
        assert (right.by(exact).compute(5, 17) - whole[5:17]).abs().max() < 1e-12

    return check


@pytest.fixture(scope="session")
def assert_reference_same_in_pieces() -> Callable[..., None]:
    """Return what lets the public reference hold more or less at once."""

    def check(problem: ProductionProblem, workload: Workload) -> None:
        model_class = _reference(problem)
        inputs = problem.draw(workload, regime="ragged", seed=1, device="cpu")
        whole = model_class()(**inputs).float()

        for scores, elements in ((1, 1), (40, 1 << 20), (1 << 20, 300)):
            model = model_class()
            model.scores, model.elements = scores, elements
            assert (model(**inputs).float() - whole).abs().max() < 1e-2

    return check


def _truth(problem: ProductionProblem, workload: Workload, inputs: Tensors) -> Any:
    return problem.expected(workload, inputs)["out"].dense()


def _reference(problem: ProductionProblem) -> Any:
    """Return the class that the public reference defines."""
    spec = importlib.util.spec_from_file_location("reference", problem.public_files[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Model
