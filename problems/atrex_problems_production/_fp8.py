"""What the private halves of fp8 operators share: ranges, truth, rule, wrong scales and codes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from atrex_core import (
    CodeSteps,
    DType,
    Implementation,
    Inapplicable,
    Rule,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
    torch_dtype,
)
from atrex_core.packs import by_rows, coarse
from atrex_problems_production._stores import MANY_ROWS

LARGEST: Mapping[DType, float] = {DType.FP8_E4M3FN: 448.0, DType.FP8_E4M3FNUZ: 240.0}
"""The largest finite value of each type."""

_ANY_BIAS = 1e4
"""Standard deviations that no mean of errors reaches."""

ROWS, GROUPS, ALL = slice(1), slice(1, None), slice(None)
"""Axes of the scales: which row, which group of columns of a row, or both."""

Change = Callable[[Workload, Any], Any]
"""Returns scales for fp32 rows, or other quotients for quotients."""

Quantise = Callable[[Workload, Any], tuple[Any, Any]]
"""Returns the quotients and the scales of fp32 rows, whole or cut into groups of columns."""


@frozen(kw_only=True)
class Quantiser:
    """How an operator divides rows by scales and rounds, for mutants that do one step otherwise."""

    dtype: Callable[[Workload], DType]

    shape: Callable[[Workload], tuple[int, ...]]
    """Returns the number of rows, and of the groups of a row where rows are cut."""

    scales: Change
    """Returns the right scales."""

    run: Callable[[Quantise], Implementation]
    """Makes an implementation that gets quotients and scales in this way."""

    def right(self, workload: Workload, x: Any) -> tuple[Any, Any]:
        """Divide by the right scales."""
        return _divided(x, self.scales(workload, x))

    def scaled(self, scales: Change) -> Implementation:
        """Return a mutant that takes these scales for the right ones."""
        return self.run(lambda workload, x: _divided(x, scales(workload, x)))

    def of_several(self, scales: Change, axes: slice = ALL) -> Implementation:
        """Return the same for scales that are right where there is but one along these axes."""
        wrong = self.scaled(scales)

        def mutant(workload: Workload, inputs: Tensors) -> Tensors:
            if math.prod(self.shape(workload)[axes]) == 1:
                raise Inapplicable("there is no other scale")
            return wrong(workload, inputs)

        return mutant

    def rounded(self, change: Change) -> Implementation:
        """Return a mutant with the right scales that rounds quotients with this change."""

        def quantise(workload: Workload, x: Any) -> tuple[Any, Any]:
            quotients, scales = self.right(workload, x)
            return change(workload, quotients), scales

        return self.run(quantise)

    def shared_scales(self) -> Mapping[str, Implementation]:
        """Return what takes the scale of one row for that of another."""

        def largest_of_all(workload: Workload, x: Any) -> Any:
            scales = self.scales(workload, x)
            return scales.amax().repeat(scales.shape)

        return {
            "one_scale_for_all": self.of_several(largest_of_all),
            "scale_of_the_next_row": self.of_several(
                lambda workload, x: self.scales(workload, x).roll(-1, 0), ROWS
            ),
        }

    def steps_in_bf16(self) -> Mapping[str, Implementation]:
        """Return what keeps a scale or a quotient in eight bits, where it should have 24."""

        def divided(workload: Workload, x: Any) -> tuple[Any, Any]:
            scales = self.scales(workload, x)
            return x / _in_bf16(scales)[..., None], scales

        return {
            "scale_in_bf16": self.scaled(lambda workload, x: _in_bf16(self.scales(workload, x))),
            "codes_by_a_bf16_scale": self.run(divided),
            "quotient_in_bf16": self.rounded(lambda _, quotients: _in_bf16(quotients)),
        }

    def wrong_ends(self, *, exact: bool) -> Mapping[str, Implementation]:
        """Return what treats the last columns of a row or group otherwise.

        Args:
            exact: Whether a code that is off by one is one too many.
        """

        def zero(_: Workload, quotients: Any) -> Any:
            return _with_last(quotients, quotients[..., -1:] * 0)

        def truncated(workload: Workload, quotients: Any) -> Any:
            if math.prod(self.shape(workload)) < MANY_ROWS:
                raise Inapplicable("there are few last codes")
            return _with_last(quotients, _truncated(quotients[..., -1:]))

        found = {
            "misses_last_column": self.scaled(lambda w, x: self.scales(w, x[..., :-1])),
            "misses_last_eight_columns": self.scaled(lambda w, x: self.scales(w, x[..., :-8])),
            "last_code_zero": self.rounded(zero),
        }
        return {**found, "last_code_truncated": self.rounded(truncated)} if exact else found

    def wrong_codes(self) -> Mapping[str, Implementation]:
        """Return what rounds in another way than to the nearest code."""

        def small_flushed(workload: Workload, quotients: Any) -> Any:
            return flushed(quotients, torch_dtype(self.dtype(workload)))

        return {
            "three_bits": self.rounded(lambda _, quotients: coarse(quotients, 3)),
            "truncated": self.rounded(lambda _, quotients: _truncated(quotients)),
            "small_codes_flushed": self.rounded(small_flushed),
        }


def specs(
    dtype: DType, shape: tuple[int, ...], scales: tuple[int, ...]
) -> tuple[TensorSpec, TensorSpec]:
    """Describe `quantized` of this shape, and `scales` of another."""
    return (
        TensorSpec(name="quantized", dtype=dtype, shape=shape),
        TensorSpec(name="scales", dtype=DType.FP32, shape=scales),
    )


def truth(x: Any, scales: Callable[[Any], Any], limit: float) -> Tensors:
    """Divide rows, whole or cut into groups of columns, by their scales, in float64."""

    def quotients(rows: Any) -> Any:
        wide = rows.double()
        wide /= scales(rows)[..., None]
        return wide.clamp_(-limit, limit).flatten(1)

    return {"quantized": by_rows(quotients, x), "scales": by_rows(scales, x)}


def rule(output: TensorSpec) -> Rule:
    """Leave room for fast reciprocals and divisions, and for nothing else.

    A division on a GPU may be off by two units in the last place, a product with an approximate
    reciprocal by as much, and each scale of a tensor in the same direction: a scale may be off by
    four epsilons. Codes that such an error may turn are not counted as flips, so honest
    implementations have none. A scale kept in ten bits flips one code in 250; one column that is
    truncated, one in 4096 where rows have 2048.

    Rounding ties away from zero is therefore accepted. An approximate reciprocal that is too large
    by one unit in the last place turns every tie away from zero, and one too small turns it toward
    zero, even where the exact scale is a power of two: no input tells these from a rule for ties.
    """
    if output.name == "scales":
        return Tolerance(dtype=output.dtype, relative_l2=16, row_l2=16, element=4, bias=_ANY_BIAS)
    return CodeSteps(dtype=output.dtype, flips=1e-5)


def units_off(values: Any, units: int) -> Any:
    """Return positive fp32 values that are off by so many units in the last place."""
    import torch

    return (values.view(torch.int32) + units).view(torch.float32)


def largest(x: Any) -> Any:
    """Return the largest magnitude of each row, or of each group of its columns."""
    return x.abs().amax(-1)


def as_codes(values: Any, dtype: Any, limit: float | None = None) -> Any:
    """Clamp to the range of the type, or to less, and round."""
    import torch

    if limit is None:
        limit = torch.finfo(dtype).max
    return values.clamp(-limit, limit).to(dtype)


def flushed(values: Any, dtype: Any) -> Any:
    """Turn what the type holds with fewer bits into zero."""
    import torch

    return torch.where(values.abs() < torch.finfo(dtype).tiny, 0.0, values)


def _divided(x: Any, scales: Any) -> tuple[Any, Any]:
    return x / scales[..., None], scales


def _with_last(values: Any, last: Any) -> Any:
    """Replace the last column."""
    import torch

    return torch.cat([values[..., :-1], last], -1)


def _in_bf16(values: Any) -> Any:
    return values.bfloat16().float()


def _truncated(values: Any) -> Any:
    """Drop all but four significant bits."""
    import torch

    mantissa, exponent = torch.frexp(values)
    return torch.ldexp((mantissa * 16).trunc() / 16, exponent)
