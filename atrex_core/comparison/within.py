"""The strict rule: errors beside those of an honest implementation, scaled to the output."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from atrex_core.comparison.leaning import Leaning
from atrex_core.comparison.tiles import Tally, Tensor, Tile, as_rows, blocks
from atrex_core.comparison.verdict import (
    Comparison,
    appearance,
    count,
    look,
    number,
    place,
    say,
    suspicion,
    unravel,
)
from atrex_core.errors import HarnessError
from atrex_core.model import DType, TensorSpec, Tolerance
from atrex_core.tensors import torch_dtype

_EDGES = (0.25, 0.5, 1.0, 2.0, 4.0, 16.0)
"""Bins of the error histogram, in units of the allowed error."""

_FLUSH = 2.0**-126
"""Smallest normal fp32 value: devices may flush what lies below it."""

_HONEST_LIMIT = 0.25
"""An honest output this far off (relative L2) is a broken problem, not a tolerance."""


def compare_within(
    spec: TensorSpec,
    tolerance: Tolerance,
    actual: Tensor,
    expected: Tensor,
    honest: Tensor,
    poison: float | None,
) -> Comparison:
    """Apply every rule of `tolerance`."""
    got, want, fair = as_rows(actual), as_rows(expected), as_rows(honest)
    rows, width = got.shape
    tally = Tally(actual.device)
    for block in blocks(got):
        _walk_block(tally, block, spec, tolerance, (got, want, fair), poison)
    figures = tally.read()

    elements = rows * width
    eps, floor = tolerance.dtype.epsilon, _floor(tolerance)
    size = math.sqrt(figures["sum_e2"])
    error, honest_error = math.sqrt(figures["sum_d2"]), math.sqrt(figures["sum_h2"])
    if honest_error > _HONEST_LIMIT * size + floor * math.sqrt(elements):
        raise HarnessError(
            f'the honest value of output "{spec.name}" is {honest_error / max(size, floor):.2g} '
            "off its own high-precision reference",
            hint="the problem, or the torch build on this device, is broken",
        )
    bulk = tolerance.relative_l2 * max(honest_error, eps / 4 * size)
    allowed = math.sqrt(bulk**2 + eps**2 * math.sqrt(figures["sum_e4"]))
    allowed += floor * math.sqrt(elements)
    unit = max(size, floor)
    leaning = Leaning.of(figures, elements, deviations=tolerance.bias, allowed=allowed)
    wrong, capped, special = (int(figures[k]) for k in ("wrong", "capped", "special"))
    elements_pass = wrong <= tolerance.outlier_fraction * elements and not capped and not special
    rows_wrong = int(figures["rows_wrong"])
    reached = [elements, *(int(figures[f"reached_{edge}"]) for edge in _EDGES), 0]
    details: dict[str, Any] = {
        "rule": "tolerance",
        "elements": elements,
        "wrong": wrong,
        "wrong_share": wrong / elements,
        "non_finite_mismatches": special,
        "rows_wrong": rows_wrong,
        "max_abs_error": number(figures["max_error"]),
        "max_error_over_allowed": number(figures["ratio"]),
        "row_error_over_allowed": number(figures["row_ratio"]),
        "relative_l2": number(error / unit),
        "relative_l2_allowed": number(allowed / unit),
        "relative_l2_honest": number(honest_error / unit),
        "histogram": {
            "edges": list(_EDGES),
            "counts": [a - b for a, b in pairwise(reached)],
        },
        **leaning.details(),
        "actual": appearance(figures, elements, poison),
    }
    if elements_pass and not rows_wrong and error <= allowed and leaning.over_allowed <= 1:
        return Comparison(passed=True, reason=None, details=details)

    details["worst"] = worst = place(spec, got, want, figures["ratio_at"])
    l2 = f"relative L2 error {error / unit:.3g} (allowed {allowed / unit:.3g})"
    if not elements_pass:
        details["first_wrong"] = first = place(spec, got, want, figures["first"])
        reason = (
            f"{count(wrong, elements)} are wrong, first at {say(first)}, worst at {say(worst)}; "
            f"max error {figures['max_error']:.3g}, {l2}"
        )
    elif rows_wrong:
        row = int(figures["row_ratio_at"])
        details["worst_row"] = where = list(unravel(row * width, spec.shape))[:-1]
        reason = (
            f"{rows_wrong} of {rows} rows are off as a whole though no element is far off: worst "
            f"is row {where} with {figures['row_ratio']:.3g} times the allowed error; {l2}"
        )
    elif error <= allowed:
        reason = f"{leaning}; no element is far off, {l2}"
    else:
        reason = (
            f"{l2} though no element is far off: the error is systematic, such as a dropped small "
            f"term or too low a precision; worst at {say(worst)}"
        )
    reason += suspicion(figures, elements, max(wrong, 1))
    return Comparison(passed=False, reason=reason, details=details)


def _walk_block(
    tally: Tally,
    block: list[Tile],
    spec: TensorSpec,
    tolerance: Tolerance,
    tensors: tuple[Tensor, Tensor, Tensor],
    poison: float | None,
) -> None:
    """Judge some whole rows: their own scale first, then every element against it."""
    import torch

    got, want, fair = tensors
    eps, floor = tolerance.dtype.epsilon, _floor(tolerance)
    e2 = e4 = h2 = d2 = he = torch.zeros((), dtype=torch.float64, device=got.device)
    for tile in block:
        e = _finite(tile.of(want).double())
        square = e.square()
        e2, e4 = e2 + square.sum(1, keepdim=True), e4 + square.square().sum(1, keepdim=True)
        h = _finite(tile.of(fair).double() - e)
        h2, he = h2 + h.square().sum(1, keepdim=True), he + (h * e).sum(1, keepdim=True)
        tally.add("sum_h", h.sum())
    width = block[0].width
    size, noise = (e2 / width).sqrt(), (h2 / width).sqrt()
    base = eps * size + 4 * noise + floor
    for tile in block:
        a = tile.of(got).double()
        # What overflows the output's dtype is infinite in any right answer.
        rounded = tile.of(want).to(got.dtype).double()
        special = ~(torch.isfinite(a) & torch.isfinite(rounded))
        same = (a == rounded) | (torch.isnan(a) & torch.isnan(rounded))
        bad_special = special & ~same
        e = tile.of(want).double()
        lean = torch.where(special, 0.0, a - e)
        tally.add("sum_d", lean.sum())
        tally.add("sum_de", (lean * _finite(e)).sum())
        d = lean.abs()
        scale = eps * _finite(e).abs() + base
        ratio = d / (tolerance.element * scale)
        ratio = torch.where(bad_special, math.inf, ratio)
        wrong = ratio > 1
        d2 = d2 + d.square().sum(1, keepdim=True)
        tally.add("wrong", wrong.sum())
        tally.add("special", bad_special.sum())
        tally.add("capped", (d > tolerance.cap * scale).sum())
        for edge in _EDGES:
            tally.add(f"reached_{edge}", (ratio >= edge).sum())
        tally.first("first", wrong, tile)
        tally.most("max_error", d.max())
        at = ratio.reshape(-1).argmax()
        tally.most("ratio", ratio.reshape(-1)[at], at=tile.flat(at))
        look(tally, a, wrong, spec.dtype, poison)
    bulk = tolerance.row_l2 * torch.maximum(noise, eps / 4 * size)
    row_allowed = (bulk.square() + eps**2 * e4.sqrt() / width).sqrt() + floor
    row_ratio = (d2 / width).sqrt() / row_allowed
    row_at = row_ratio.reshape(-1).argmax()
    tally.add("rows_wrong", (row_ratio > 1).sum())
    tally.most("row_ratio", row_ratio.reshape(-1)[row_at], at=block[0].rows.start + row_at)
    tally.add("sum_e2", e2.sum())
    tally.add("sum_e2_squared", e2.square().sum())
    tally.add("sum_he", he.sum())
    tally.add("sum_e4", e4.sum())
    tally.add("sum_h2", h2.sum())
    tally.add("sum_d2", d2.sum())


def _finite(values: Tensor) -> Tensor:
    return values.nan_to_num(0.0, 0.0, 0.0)


def _floor(tolerance: Tolerance) -> float:
    """Return the error that is allowed of an element whatever its size."""
    return _underflow(tolerance.dtype) + tolerance.absolute


def _underflow(dtype: DType) -> float:
    """Return the absolute error that flushing to zero, or the last denormal, may cause."""
    import torch

    info = torch.finfo(torch_dtype(dtype))
    return max(float(info.tiny) * float(info.eps), _FLUSH if dtype is not DType.FP64 else 0.0)
