"""The strict rule: errors beside those of an honest implementation, scaled to the output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, Self

from attrs import frozen

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

_EDGES: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 16.0)
"""Bins of the error histogram, in units of the allowed error."""

_AT_ONCE = 1 << 20
"""So few elements are compared with all edges at once: launches would take longer."""

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
    tally = Tally()
    for block in blocks(got):
        _walk_block(tally, block, tolerance, (got, want, fair))
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
    }
    if elements_pass and not rows_wrong and error <= allowed and leaning.over_allowed <= 1:
        return Comparison(passed=True, reason=None, details=details)

    figures |= _looked_at(spec, tolerance, (got, want, fair), poison)
    details["actual"] = appearance(figures, elements, poison)
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
    tolerance: Tolerance,
    tensors: tuple[Tensor, Tensor, Tensor],
) -> None:
    """Judge some whole rows: their own scale first, then every element against it."""
    import torch

    eps, floor = tolerance.dtype.epsilon, _floor(tolerance)
    scale = _Scale.of(block, tolerance, tensors, tally)
    limits = (1.0, tolerance.cap / tolerance.element)
    d2: Any = 0.0
    for tile in block:
        e, lean, ratio, bad_special = scale.errors(tile)
        tally.add("sum_d", lean.sum())
        tally.add("sum_de", _dot(lean, e))
        d2 = d2 + _squares(lean)
        tally.add("special", bad_special.sum())
        tally.add_each(_COUNTED, _counts(ratio, _EDGES, limits))
        tally.most("max_error", torch.linalg.vector_norm(lean, ord=math.inf))
        at = ratio.reshape(-1).argmax()
        tally.most("ratio", ratio.reshape(-1)[at], at=at, within=tile.flat)
    width = block[0].width
    bulk = tolerance.row_l2 * torch.maximum(scale.noise, eps / 4 * scale.size)
    row_allowed = (bulk.square() + eps**2 * scale.e4.sqrt() / width).sqrt() + floor
    row_ratio = (d2 / width).sqrt() / row_allowed
    row_at = row_ratio.reshape(-1).argmax()
    top = block[0].rows.start
    tally.add("rows_wrong", (row_ratio > 1).sum())
    tally.most("row_ratio", row_ratio.reshape(-1)[row_at], at=row_at, within=top.__add__)
    tally.add("sum_d2", d2.sum())


@frozen(kw_only=True)
class _Scale:
    """What the errors of some whole rows are measured by."""

    tolerance: Tolerance
    tensors: tuple[Tensor, Tensor, Tensor]
    size: Tensor
    """Root mean square of each row."""
    noise: Tensor
    """Root mean square of each row's honest error."""
    e4: Tensor
    base: Tensor
    """Error that each element of a row may have whatever its own size."""

    @classmethod
    def of(
        cls,
        block: list[Tile],
        tolerance: Tolerance,
        tensors: tuple[Tensor, Tensor, Tensor],
        tally: Tally | None = None,
    ) -> Self:
        """Look through the rows of a block once, and keep their sums in `tally`."""
        import torch

        _, want, fair = tensors
        e2: Any = 0.0
        e4: Any = 0.0
        h2: Any = 0.0
        for tile in block:
            e = _finite(tile.of(want).double())
            e2 = e2 + _squares(e)
            e4 = e4 + _squares(e.square())
            h = torch.sub(_comparable(tile.of(fair)), e).nan_to_num_(0.0, 0.0, 0.0)
            h2 = h2 + _squares(h)
            if tally is not None:
                tally.add("sum_h", h.sum())
                tally.add("sum_he", _dot(h, e))
        if tally is not None:
            tally.add("sum_e2", e2.sum())
            tally.add("sum_e2_squared", e2.square().sum())
            tally.add("sum_e4", e4.sum())
            tally.add("sum_h2", h2.sum())
        width = block[0].width
        size, noise = (e2 / width).sqrt(), (h2 / width).sqrt()
        base = tolerance.dtype.epsilon * size + 4 * noise + _floor(tolerance)
        return cls(tolerance=tolerance, tensors=tensors, size=size, noise=noise, e4=e4, base=base)

    def errors(self, tile: Tile) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Judge the elements of a tile.

        Returns:
            What is expected; the error, 0 where it or what is there is not finite; the error over
            what is allowed; where something that is not finite is wrong.
        """
        import torch

        got, want, _ = self.tensors
        a, expected = _comparable(tile.of(got)), tile.of(want)
        # What overflows the output's dtype is infinite in any right answer.
        rounded = _comparable(expected.to(got.dtype))
        special = ~(torch.isfinite(a) & torch.isfinite(rounded))
        same = (a == rounded) | (torch.isnan(a) & torch.isnan(rounded))
        bad_special = special & ~same
        e = expected.double()
        lean = torch.sub(a, e).masked_fill_(special, 0.0)
        e = _finite(e)
        element, eps = self.tolerance.element, self.tolerance.dtype.epsilon
        allowed = torch.add(element * self.base, e.abs(), alpha=element * eps)
        ratio = lean.abs().div_(allowed).masked_fill_(bad_special, math.inf)
        return e, lean, ratio, bad_special


def _comparable(values: Tensor) -> Tensor:
    """Return values in a type that has comparisons: those of a byte have none."""
    return values.float() if values.itemsize == 1 else values


def _squares(values: Tensor) -> Tensor:
    """Sum the squares of each row, without a tensor of squares."""
    import torch

    return torch.linalg.vector_norm(values, dim=1, keepdim=True).square_()


def _dot(one: Tensor, other: Tensor) -> Tensor:
    import torch

    return torch.dot(one.reshape(-1), other.reshape(-1))


_COUNTED: Final = (*(f"reached_{edge}" for edge in _EDGES), "wrong", "capped")


def _counts(ratio: Tensor, edges: Sequence[float], limits: Sequence[float]) -> Tensor:
    """Count the elements that reach each edge, and those beyond each limit."""
    import torch

    if ratio.numel() <= _AT_ONCE:
        least = [*edges, *(math.nextafter(limit, math.inf) for limit in limits)]
        floors = torch.tensor(least, dtype=ratio.dtype).to(ratio.device, non_blocking=True)
        return (ratio.reshape(1, -1) >= floors[:, None]).sum(1)
    narrow = ratio.float()  # half of what each count has to read
    reached = [(narrow >= edge).sum() for edge in edges]
    return torch.stack([*reached, *((narrow > limit).sum() for limit in limits)])


def _looked_at(
    spec: TensorSpec,
    tolerance: Tolerance,
    tensors: tuple[Tensor, Tensor, Tensor],
    poison: float | None,
) -> dict[str, float]:
    """Walk once more through a wrong output: what it looks like, and where it first goes wrong."""
    tally = Tally()
    for block in blocks(tensors[0]):
        scale = _Scale.of(block, tolerance, tensors)
        for tile in block:
            _, _, ratio, _ = scale.errors(tile)
            tally.first("first", ratio > 1, tile)
            look(tally, tile.of(tensors[0]).double(), ratio > 1, spec.dtype, poison)
    return tally.read()


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
