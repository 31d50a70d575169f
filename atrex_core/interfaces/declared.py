"""What a problem says of itself, once it is known to be of the type that was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from atrex_core.interfaces.problem import Implementation, Problem
from atrex_core.model import Cost, TensorSpec, Workload


def mutants_of(problem: Problem) -> Mapping[str, Implementation]:
    """Return a problem's wrong implementations.

    Raises:
        TypeError: it says something else.
    """
    return _by_name(problem.mutants(), "mutants")


def variants_of(problem: Problem) -> Mapping[str, Implementation]:
    """Return a problem's honest implementations.

    Raises:
        TypeError: it says something else.
    """
    return _by_name(problem.variants(), "variants")


def regimes_of(problem: Problem, workload: Workload) -> Sequence[str]:
    """Return the input distributions of a workload.

    Raises:
        TypeError: it says something else.
    """
    found: object = problem.regimes(workload)
    if not _is_sequence(found) or not all(isinstance(name, str) for name in found):
        raise TypeError(f"its regimes are {found!r}, not a sequence of names")
    return found


def inputs_of(problem: Problem, workload: Workload) -> Sequence[TensorSpec]:
    """Return what a problem's `forward` takes.

    Raises:
        TypeError: it says something else.
    """
    return _specs(problem.inputs(workload), "inputs")


def outputs_of(problem: Problem, workload: Workload) -> Sequence[TensorSpec]:
    """Return what a problem's `forward` returns.

    Raises:
        TypeError: it says something else.
    """
    return _specs(problem.outputs(workload), "outputs")


def cost_of(problem: Problem, workload: Workload) -> Cost:
    """Return what a workload costs at least.

    Raises:
        TypeError: it says something else.
    """
    found: object = problem.cost(workload)
    if not isinstance(found, Cost):
        raise TypeError(f"its cost is {found!r}, not a Cost")
    return found


def in_place_of(problem: Problem) -> Mapping[str, str]:
    """Return which outputs of a problem may be which input, updated.

    Raises:
        TypeError: it says something else.
    """
    found: object = problem.in_place
    if not isinstance(found, Mapping) or not _are_text([*found, *found.values()]):
        raise TypeError(f"its in_place is {found!r}, not a mapping of names to names")
    return found


def misplaced(problem: Problem, workload: Workload) -> str | None:
    """Say what of `in_place` cannot be, if anything."""
    inputs = {spec.name: spec for spec in inputs_of(problem, workload)}
    outputs = {spec.name: spec for spec in outputs_of(problem, workload)}
    updated = in_place_of(problem)
    for output, input_ in updated.items():
        for name, known, what in ((output, outputs, "output"), (input_, inputs, "input")):
            if name not in known:
                return f"in_place names {name!r}, which is no {what}: there are {list(known)}"
        first, second = outputs[output], inputs[input_]
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            return (
                f"in_place says that {output!r}, {first.dtype} {list(first.shape)}, may be "
                f"{input_!r}, {second.dtype} {list(second.shape)}"
            )
    if len(set(updated.values())) < len(updated):
        return f"in_place names one input for several outputs: {dict(updated)}"
    return None


def _by_name(found: object, what: str) -> Mapping[str, Implementation]:
    if not isinstance(found, Mapping) or not _are_text(found):
        raise TypeError(f"its {what} are {found!r}, not a mapping of names to functions")
    for name, function in found.items():
        if not callable(function):
            raise TypeError(f"{name!r} of its {what} is {function!r}, not a function")
    return found


def _specs(found: object, what: str) -> Sequence[TensorSpec]:
    if not _is_sequence(found) or not all(isinstance(spec, TensorSpec) for spec in found):
        raise TypeError(f"its {what} are {found!r}, not a sequence of TensorSpec")
    return found


def _is_sequence(found: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(found, Sequence) and not isinstance(found, str | bytes)


def _are_text(found: Iterable[object]) -> bool:
    return all(isinstance(item, str) for item in found)
