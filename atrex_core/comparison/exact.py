"""Outputs that must be equal, and the plain bounds of other protocols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from atrex_core.comparison.tiles import Tally, Tensor, as_rows, blocks
from atrex_core.comparison.verdict import (
    Comparison,
    appearance,
    count,
    look,
    number,
    place,
    say,
    suspicion,
)
from atrex_core.model import Allclose, TensorSpec

_Differs = Callable[[Any, Any], tuple[Any, Any]]
"""From tiles of the actual and the expected value: where they differ too much, and by how much."""


def compare_exactly(
    spec: TensorSpec, actual: Tensor, expected: Tensor, poison: float | None
) -> Comparison:
    """Demand equality; NaN equals NaN."""
    import torch

    wide = torch.float64 if spec.dtype.is_floating else torch.int64

    def differs(a: Any, e: Any) -> tuple[Any, Any]:
        a, e = a.to(wide), e.to(a.dtype).to(wide)
        wrong = ~((a == e) | ((a != a) & (e != e)))
        return wrong, torch.where(wrong, (a - e).abs(), 0).nan_to_num()

    complaint = "differ from the exact answer"
    return _compare("exact", complaint, differs, spec, actual, expected, poison)


def compare_close(
    spec: TensorSpec,
    rule: Allclose,
    actual: Tensor,
    expected: Tensor,
    poison: float | None,
) -> Comparison:
    """Hold every element against the same two bounds; NaN is never right."""
    import torch

    def differs(a: Any, e: Any) -> tuple[Any, Any]:
        a, e = a.double(), e.double()
        finite = a.isfinite() & e.isfinite()
        # Infinities have no distance: right where they are the same.
        d = torch.where(finite, (a - e).abs(), torch.inf)
        near = finite & (d <= rule.absolute + rule.relative * a.abs())
        return ~(near | (a == e)), torch.where(a == e, 0.0, d)

    complaint = (
        f"are further than {rule.absolute:g} + {rule.relative:g} times their own value from the "
        "reference"
    )
    return _compare("allclose", complaint, differs, spec, actual, expected, poison)


def _compare(
    name: str,
    complaint: str,
    differs: _Differs,
    spec: TensorSpec,
    actual: Tensor,
    expected: Tensor,
    poison: float | None,
) -> Comparison:
    """Walk both tensors; one element that differs is too many."""
    import torch

    wide = torch.float64 if spec.dtype.is_floating else torch.int64
    got, want = as_rows(actual), as_rows(expected)
    tally = Tally()
    for block in blocks(got):
        for tile in block:
            a = tile.of(got)
            wrong, distance = differs(a, tile.of(want))
            tally.add("wrong", wrong.sum())
            tally.first("first", wrong, tile)
            tally.most("max_error", distance.max())
            look(tally, a.to(wide), wrong, spec.dtype, poison)
    figures = tally.read()
    elements, wrong_count = actual.numel(), int(figures["wrong"])
    details: dict[str, Any] = {
        "rule": name,
        "elements": elements,
        "wrong": wrong_count,
        "wrong_share": wrong_count / elements,
        "max_abs_error": number(figures["max_error"]),
        "actual": appearance(figures, elements, poison),
    }
    if not wrong_count:
        return Comparison(passed=True, reason=None, details=details)
    details["first_wrong"] = first = place(spec, got, want, figures["first"])
    reason = (
        f"{count(wrong_count, elements)} {complaint}, first at {say(first)}"
        f"{suspicion(figures, elements, wrong_count)}"
    )
    return Comparison(passed=False, reason=reason, details=details)
