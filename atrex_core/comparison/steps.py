"""Outputs in 8-bit floating types: how many codes away from the nearest one."""

from __future__ import annotations

import math
from typing import Any

from atrex_core.comparison.tiles import Tally, Tensor, as_rows, blocks
from atrex_core.comparison.verdict import (
    Comparison,
    appearance,
    count,
    look,
    place,
    say,
    suspicion,
)
from atrex_core.errors import HarnessError
from atrex_core.model import CodeSteps, TensorSpec
from atrex_core.tensors import torch_dtype

_NEVER = 1 << 12
"""Further than any two codes are apart: between a number and a NaN."""

_SIGMAS = 4.0
"""How far chance may carry a count beyond its mean."""

_BORDER = 2.0**-20
"""Relative error that a few operations of fp32 make before the result becomes a code.

A quotient of two narrow numbers often lies halfway between two codes exactly, so that one
rounding decides: a reciprocal instead of a division turns a few such codes in a hundred in some
rows, and none in others.
"""


def compare_steps(
    spec: TensorSpec,
    rule: CodeSteps,
    actual: Tensor,
    expected: Tensor,
    poison: float | None,
) -> Comparison:
    """Round `expected` to the type, and count codes between.

    Where it is within `_BORDER` of halfway between two codes, both of them are the nearest.
    """
    if rule.dtype.item_bytes != 1 or spec.dtype is not rule.dtype:
        raise HarnessError(
            f'output "{spec.name}" is {spec.dtype}, its rule counts codes of {rule.dtype}',
            hint="codes are counted for 8-bit floating types, in the output's own",
        )

    dtype = torch_dtype(rule.dtype)
    ladder = _ladder(dtype, actual.device)
    got, want = as_rows(actual), as_rows(expected)
    rows, width = got.shape
    row_allowed, allowed = _allowed(rule, 1, width), _allowed(rule, rows, width)
    tally = Tally()
    for block in blocks(got):
        flips: Any = 0
        for tile in block:
            a = tile.of(got)
            steps = _steps(ladder, a, tile.of(want).double())
            wrong = steps > rule.cap
            tally.add("flipped", (steps > 0).sum())
            tally.add("wrong", wrong.sum())
            tally.first("first", steps > 0, tile)
            at = steps.reshape(-1).argmax()
            tally.most("steps", steps.reshape(-1)[at], at=at, within=tile.flat)
            look(tally, a.double(), steps > 0, spec.dtype, poison)
            flips = flips + (steps > 0).sum(1)
        tally.add("rows_wrong", (flips > row_allowed).sum())
        top = block[0].rows.start
        tally.most("row_flips", flips.max(), at=flips.argmax(), within=top.__add__)
    figures = tally.read()
    elements = rows * width
    flipped, beyond, rows_wrong = (int(figures[k]) for k in ("flipped", "wrong", "rows_wrong"))
    details: dict[str, Any] = {
        "rule": "code_steps",
        "elements": elements,
        "flipped": flipped,
        "flipped_share": flipped / elements,
        "flips_allowed": int(allowed),
        "wrong": beyond,
        "wrong_share": beyond / elements,
        "rows_wrong": rows_wrong,
        "most_steps": int(figures["steps"]),
        "actual": appearance(figures, elements, poison),
    }
    if not beyond and not rows_wrong and flipped <= allowed:
        return Comparison(passed=True, reason=None, details=details)
    details["worst"] = worst = place(spec, got, want, figures["steps_at"])
    if beyond:
        far = int(figures["steps"])
        apart = f"{far} codes" if far < _NEVER // 2 else "a NaN"
        allowance = "1 code" if rule.cap == 1 else f"{rule.cap} codes"
        reason = (
            f"{count(beyond, elements)} are more than {allowance} from the nearest one, worst at "
            f"{say(worst)}: {apart}"
        )
    elif rows_wrong:
        row, in_row = int(figures["row_flips_at"]), int(figures["row_flips"])
        reason = (
            f"{rows_wrong} of {rows} rows are off as a whole: in row {row}, {in_row} of {width} "
            f"elements are not the nearest code (allowed {int(row_allowed)}), such as after a "
            "wrong scale"
        )
    else:
        reason = (
            f"{count(flipped, elements)} are not the nearest code (allowed {int(allowed)}): a "
            f"wrong scale, or too low a precision; first at "
            f"{say(place(spec, got, want, figures['first']))}"
        )
    reason += suspicion(figures, elements, max(flipped, 1))
    return Comparison(passed=False, reason=reason, details=details)


def _allowed(rule: CodeSteps, rows: int, width: int) -> float:
    """Return how many of so many rows' elements may be flipped.

    Flips of a row come together where one rounding moved its scale: the share of a row by itself
    may be four times that of very many, and the excess shrinks as that of a mean does.
    """
    mean = min(1.0, rule.flips * (1 + 3 / math.sqrt(rows))) * rows * width
    return min(mean + _SIGMAS * math.sqrt(mean), float(rows * width))


def _ladder(dtype: Any, device: Any) -> Tensor:
    """Return the rank of each of the 256 codes among the values, both zeros together."""
    import torch

    codes = torch.arange(256, dtype=torch.int16, device=device)
    magnitude = codes & 0x7F
    rank = torch.where(codes < 0x80, magnitude, -magnitude)
    values = codes.to(torch.uint8).view(dtype).float()
    return torch.where(values.isnan(), _NEVER, rank)


def _steps(ladder: Tensor, actual: Tensor, expected: Tensor) -> Tensor:
    """Count codes from `actual` to the nearest, or to the nearer of two that are as near."""
    import torch

    rung = _rung(ladder, actual)
    below, above = (
        (rung - _rung(ladder, (expected * (1 + error)).float().to(actual.dtype))).abs()
        for error in (-_BORDER, _BORDER)
    )
    return torch.minimum(below, above)


def _rung(ladder: Tensor, values: Tensor) -> Tensor:
    import torch

    return ladder[values.contiguous().view(torch.uint8).int()]
