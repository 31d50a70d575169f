"""Judge one output tensor against its expected value, and say what is wrong with it.

Pure functions of tensors: no seeds, no candidates, no gates. Torch is imported when a tensor is
at hand. Tensors are walked in tiles, so that float64 copies of a billion elements never exist at
once; every figure stays on the device until the walk is over, so that there is one wait.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from attrs import field, frozen

from atrex_core._tiles import Tally, Tile, as_rows, blocks
from atrex_core.errors import HarnessError
from atrex_core.model import DType, TensorSpec, Tolerance
from atrex_core.tensors import torch_dtype

Tensor = Any
"""`torch.Tensor`; core never imports torch at module level."""

_EDGES = (0.25, 0.5, 1.0, 2.0, 4.0, 16.0)
"""Bins of the error histogram, in units of the allowed error."""

_FLUSH = 2.0**-126
"""Smallest normal fp32 value: devices may flush what lies below it."""

_HONEST_LIMIT = 0.25
"""An honest output this far off (relative L2) is a broken problem, not a tolerance."""


@frozen(kw_only=True)
class Comparison:
    """Whether one output is right, and what its author should know if it is not."""

    passed: bool
    reason: str | None
    """One line, None when it passed."""
    details: Mapping[str, Any] = field(factory=dict)
    """Plain JSON values; a non-finite number is written as text."""


def compare(
    spec: TensorSpec,
    tolerance: Tolerance | None,
    actual: Tensor,
    expected: Tensor,
    honest: Tensor | None = None,
    *,
    poison: float | None = None,
) -> Comparison:
    """Compare `actual` with `expected` under the rules of `Tolerance`.

    Integers, booleans, and any output without a tolerance, must be equal. NaN and infinities
    must stand exactly where `expected`, rounded to the output's dtype, has them.

    Args:
        spec: What the output should look like.
        tolerance: The rule; None compares exactly.
        actual: The candidate's output, in the output's own dtype.
        expected: The high-precision value, on the same device.
        honest: What an honest implementation returns for the same inputs.
        poison: The value that the output buffer held before the call.

    Raises:
        HarnessError: `expected` or `honest` cannot be right, so nothing can be judged.
    """
    dtype = torch_dtype(spec.dtype)
    if tuple(actual.shape) != spec.shape:
        return _refuse(f"shape is {list(actual.shape)}, not {list(spec.shape)}")
    if actual.dtype != dtype:
        return _refuse(f"dtype is {str(actual.dtype).removeprefix('torch.')}, not {spec.dtype}")
    for what, tensor in (("expected", expected), ("honest", honest)):
        if tensor is not None and tuple(tensor.shape) != spec.shape:
            raise HarnessError(
                f'the {what} value of output "{spec.name}" has shape {list(tensor.shape)}',
                hint=f"the problem declares {list(spec.shape)}",
            )

    import torch

    if actual.numel() == 0:
        return Comparison(passed=True, reason=None, details={"elements": 0})
    with torch.no_grad():
        if tolerance is None or not spec.dtype.is_floating:
            return _compare_exactly(spec, actual, expected, poison)
        if honest is None:
            raise HarnessError(f'output "{spec.name}" has a tolerance but no honest value')
        return _compare_within(spec, tolerance, actual, expected, honest, poison)


def _refuse(complaint: str) -> Comparison:
    return Comparison(passed=False, reason=complaint)


def _compare_exactly(
    spec: TensorSpec, actual: Tensor, expected: Tensor, poison: float | None
) -> Comparison:
    import torch

    wide = torch.float64 if spec.dtype.is_floating else torch.int64
    got, want = as_rows(actual), as_rows(expected)
    tally = Tally(actual.device)
    for block in blocks(*got.shape):
        for tile in block:
            a = tile.of(got).to(wide)
            e = tile.of(want).to(actual.dtype).to(wide)
            wrong = ~((a == e) | ((a != a) & (e != e)))
            tally.add("wrong", wrong.sum())
            tally.first("first", wrong, tile)
            tally.most("max_error", torch.where(wrong, (a - e).abs(), 0).nan_to_num().max())
            _look(tally, a, wrong, spec.dtype, poison)
    figures = tally.read()
    elements, wrong_count = actual.numel(), int(figures["wrong"])
    details: dict[str, Any] = {
        "rule": "exact",
        "elements": elements,
        "wrong": wrong_count,
        "wrong_share": wrong_count / elements,
        "max_abs_error": _number(figures["max_error"]),
        "actual": _appearance(figures, elements, poison),
    }
    if not wrong_count:
        return Comparison(passed=True, reason=None, details=details)
    details["first_wrong"] = first = _place(spec, got, want, figures["first"])
    reason = (
        f"{_count(wrong_count, elements)} differ from the exact answer, first at {_say(first)}"
        f"{_suspicion(figures, elements, wrong_count)}"
    )
    return Comparison(passed=False, reason=reason, details=details)


def _compare_within(
    spec: TensorSpec,
    tolerance: Tolerance,
    actual: Tensor,
    expected: Tensor,
    honest: Tensor,
    poison: float | None,
) -> Comparison:
    got, want, fair = as_rows(actual), as_rows(expected), as_rows(honest)
    rows, width = got.shape
    tally = Tally(actual.device)
    for block in blocks(rows, width):
        _walk_block(tally, block, spec, tolerance, (got, want, fair), poison)
    figures = tally.read()

    elements = rows * width
    eps, floor = tolerance.dtype.epsilon, _underflow(tolerance.dtype)
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
        "max_abs_error": _number(figures["max_error"]),
        "max_error_over_allowed": _number(figures["ratio"]),
        "row_error_over_allowed": _number(figures["row_ratio"]),
        "relative_l2": _number(error / unit),
        "relative_l2_allowed": _number(allowed / unit),
        "relative_l2_honest": _number(honest_error / unit),
        "histogram": {
            "edges": list(_EDGES),
            "counts": [a - b for a, b in pairwise(reached)],
        },
        "actual": _appearance(figures, elements, poison),
    }
    if elements_pass and not rows_wrong and error <= allowed:
        return Comparison(passed=True, reason=None, details=details)

    details["worst"] = worst = _place(spec, got, want, figures["ratio_at"])
    l2 = f"relative L2 error {error / unit:.3g} (allowed {allowed / unit:.3g})"
    if not elements_pass:
        details["first_wrong"] = first = _place(spec, got, want, figures["first"])
        reason = (
            f"{_count(wrong, elements)} are wrong, first at {_say(first)}, worst at {_say(worst)}; "
            f"max error {figures['max_error']:.3g}, {l2}"
        )
    elif rows_wrong:
        row = int(figures["row_ratio_at"])
        details["worst_row"] = place = list(_unravel(row * width, spec.shape))[:-1]
        reason = (
            f"{rows_wrong} of {rows} rows are off as a whole though no element is far off: worst "
            f"is row {place} with {figures['row_ratio']:.3g} times the allowed error; {l2}"
        )
    else:
        reason = (
            f"{l2} though no element is far off: the error is systematic, such as a dropped small "
            f"term or too low a precision; worst at {_say(worst)}"
        )
    reason += _suspicion(figures, elements, max(wrong, 1))
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
    eps, floor = tolerance.dtype.epsilon, _underflow(tolerance.dtype)
    e2 = e4 = h2 = d2 = torch.zeros((), dtype=torch.float64, device=got.device)
    for tile in block:
        e = _finite(tile.of(want).double())
        square = e.square()
        e2, e4 = e2 + square.sum(1, keepdim=True), e4 + square.square().sum(1, keepdim=True)
        h2 = h2 + _finite(tile.of(fair).double() - e).square().sum(1, keepdim=True)
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
        d = torch.where(special, 0.0, a - e).abs()
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
        _look(tally, a, wrong, spec.dtype, poison)
    bulk = tolerance.row_l2 * torch.maximum(noise, eps / 4 * size)
    row_allowed = (bulk.square() + eps**2 * e4.sqrt() / width).sqrt() + floor
    row_ratio = (d2 / width).sqrt() / row_allowed
    row_at = row_ratio.reshape(-1).argmax()
    tally.add("rows_wrong", (row_ratio > 1).sum())
    tally.most("row_ratio", row_ratio.reshape(-1)[row_at], at=block[0].rows.start + row_at)
    tally.add("sum_e2", e2.sum())
    tally.add("sum_e4", e4.sum())
    tally.add("sum_h2", h2.sum())
    tally.add("sum_d2", d2.sum())


def _finite(values: Tensor) -> Tensor:
    return values.nan_to_num(0.0, 0.0, 0.0)


def _underflow(dtype: DType) -> float:
    """Return the absolute error that flushing to zero, or the last denormal, may cause."""
    import torch

    info = torch.finfo(torch_dtype(dtype))
    return max(float(info.tiny) * float(info.eps), _FLUSH if dtype is not DType.FP64 else 0.0)


def _look(tally: Tally, a: Tensor, wrong: Tensor, dtype: DType, poison: float | None) -> None:
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


def _appearance(
    figures: Mapping[str, float], elements: int, poison: float | None
) -> dict[str, Any]:
    return {
        "zeros_share": figures["zeros"] / elements,
        "nan_share": figures["nans"] / elements,
        "constant": figures["smallest"] == figures["largest"],
        "never_written_share": None if poison is None else figures["untouched"] / elements,
    }


def _suspicion(figures: Mapping[str, float], elements: int, wrong: int) -> str:
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
    if figures["smallest"] == figures["largest"]:
        return "; the output is one constant"
    return ""


def _count(part: int, elements: int) -> str:
    return f"{part} of {elements} elements ({100 * part / elements:.3g}%)"


def _place(spec: TensorSpec, got: Tensor, want: Tensor, flat: float) -> dict[str, Any]:
    position = int(flat)
    row, column = divmod(position, got.shape[1])
    return {
        "index": list(_unravel(position, spec.shape)),
        "actual": _number(got[row, column].item()),
        "expected": _number(want[row, column].item()),
    }


def _say(place: Mapping[str, Any]) -> str:
    actual, expected = (
        value if isinstance(value, (str, int)) else f"{value:.6g}"
        for value in (place["actual"], place["expected"])
    )
    return f"{place['index']} (got {actual}, expected {expected})"


def _unravel(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        flat, position = divmod(flat, size)
        index.append(position)
    return tuple(reversed(index))


def _number(value: float) -> float | str:
    """Return a JSON value: journals refuse NaN and infinities."""
    return value if isinstance(value, int) or math.isfinite(value) else str(value)
