"""What a comparison found, and the words for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from atrex_core.comparison.tiles import Tally, Tensor
from atrex_core.model import DType, TensorSpec
from atrex_core.tensors import torch_dtype


@frozen(kw_only=True)
class Comparison:
    """Whether one output is right, and what its author should know if it is not."""

    passed: bool
    reason: str | None
    """One line, None when it passed."""
    details: Mapping[str, Any] = field(factory=dict)
    """Plain JSON values; a non-finite number is written as text."""


def refuse(complaint: str) -> Comparison:
    """Return a verdict on what cannot even be compared."""
    return Comparison(passed=False, reason=complaint)


def look(tally: Tally, a: Tensor, wrong: Tensor, dtype: DType, poison: float | None) -> None:
    """Note what the candidate's output looks like, whatever it should have been."""
    import torch

    tally.add("zeros", (a == 0).sum())
    tally.add("nans", (a != a).sum())
    tally.least("smallest", a.min())
    tally.most("largest", a.max())
    if poison is not None:
        stale = torch.tensor(poison, dtype=torch_dtype(dtype), device=a.device).to(a.dtype)
        untouched = (a == stale) | ((a != a) & (stale != stale))
        tally.add("untouched", (untouched & wrong).sum())


def appearance(figures: Mapping[str, float], elements: int, poison: float | None) -> dict[str, Any]:
    """Return what the whole output looks like."""
    return {
        "zeros_share": figures["zeros"] / elements,
        "nan_share": figures["nans"] / elements,
        "constant": figures["smallest"] == figures["largest"],
        "never_written_share": None if poison is None else figures["untouched"] / elements,
    }


def suspicion(figures: Mapping[str, float], elements: int, wrong: int) -> str:
    """Name the likely cause when the output as a whole gives it away."""
    untouched = figures.get("untouched", 0.0)
    if untouched >= wrong or untouched == elements:
        return "; the wrong ones were never written"
    if untouched:
        return f"; {untouched:.0f} of them were never written"
    if figures["zeros"] == elements:
        return "; the output is all zeros"
    if figures["nans"]:
        return f"; {figures['nans']:.0f} of the output's elements are NaN"
    if elements > 1 and figures["smallest"] == figures["largest"]:
        return "; the output is one constant"
    return ""


def count(part: int, elements: int) -> str:
    """Say how many of how many."""
    return f"{part} of {elements} elements ({100 * part / elements:.3g}%)"


def place(spec: TensorSpec, got: Tensor, want: Tensor, flat: float) -> dict[str, Any]:
    """Return an index and the two values there."""
    position = int(flat)
    row, column = divmod(position, got.shape[1])
    return {
        "index": list(unravel(position, spec.shape)),
        "actual": number(got[row, column].item()),
        "expected": number(want[row, column].item()),
    }


def say(place: Mapping[str, Any]) -> str:
    """Put a place into words."""
    actual, expected = (
        value if isinstance(value, (str, int)) else f"{value:.6g}"
        for value in (place["actual"], place["expected"])
    )
    return f"{place['index']} (got {actual}, expected {expected})"


def unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Turn a flat position into an index."""
    index: list[int] = []
    for size in reversed(shape):
        flat, position = divmod(flat, size)
        index.append(position)
    return tuple(reversed(index))


def number(value: float) -> float | str:
    """Return a JSON value: journals refuse NaN and infinities."""
    return value if isinstance(value, int) or math.isfinite(value) else str(value)
