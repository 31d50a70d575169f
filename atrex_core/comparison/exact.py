"""Outputs that must be equal, and the plain bounds of other protocols."""

from __future__ import annotations

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


def compare_exactly(
    spec: TensorSpec, actual: Tensor, expected: Tensor, poison: float | None
) -> Comparison:
    """Demand equality; NaN equals NaN."""
    import torch

    wide = torch.float64 if spec.dtype.is_floating else torch.int64
    got, want = as_rows(actual), as_rows(expected)
    tally = Tally(actual.device)
    for block in blocks(got):
        for tile in block:
            a = tile.of(got).to(wide)
            e = tile.of(want).to(actual.dtype).to(wide)
            wrong = ~((a == e) | ((a != a) & (e != e)))
            tally.add("wrong", wrong.sum())
            tally.first("first", wrong, tile)
            tally.most("max_error", torch.where(wrong, (a - e).abs(), 0).nan_to_num().max())
            look(tally, a, wrong, spec.dtype, poison)
    figures = tally.read()
    elements, wrong_count = actual.numel(), int(figures["wrong"])
    details: dict[str, Any] = {
        "rule": "exact",
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
        f"{count(wrong_count, elements)} differ from the exact answer, first at {say(first)}"
        f"{suspicion(figures, elements, wrong_count)}"
    )
    return Comparison(passed=False, reason=reason, details=details)


def compare_close(
    spec: TensorSpec,
    rule: Allclose,
    actual: Tensor,
    expected: Tensor,
    poison: float | None,
) -> Comparison:
    """Hold every element against the same two bounds; NaN is never right."""
    import torch

    got, want = as_rows(actual), as_rows(expected)
    tally = Tally(actual.device)
    for block in blocks(got):
        for tile in block:
            a, e = tile.of(got).double(), tile.of(want).double()
            finite = a.isfinite() & e.isfinite()
            d = torch.where(finite, (a - e).abs(), torch.inf)
            # Infinities have no distance: right where they are the same.
            near = finite & (d <= rule.absolute + rule.relative * a.abs())
            wrong = ~(near | (a == e))
            d = torch.where(a == e, 0.0, d)
            tally.add("wrong", wrong.sum())
            tally.first("first", wrong, tile)
            tally.most("max_error", d.max())
            look(tally, a, wrong, spec.dtype, poison)
    figures = tally.read()
    elements, wrong_count = actual.numel(), int(figures["wrong"])
    details: dict[str, Any] = {
        "rule": "allclose",
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
        f"{count(wrong_count, elements)} are further than {rule.absolute:g} + {rule.relative:g} "
        f"times their own value from the reference, first at {say(first)}"
        f"{suspicion(figures, elements, wrong_count)}"
    )
    return Comparison(passed=False, reason=reason, details=details)
