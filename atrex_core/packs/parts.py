"""What a private half is written with: truth by rows, and ways to be wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from atrex_core.interfaces import Implementation, Tensors
from atrex_core.model import Workload
from atrex_core.tensors import RowBlocks

_BLOCK = 1 << 23
"""Elements in one block of `by_rows`."""


def altering(honest: Implementation, **changes: Callable[[Tensors], Any]) -> Implementation:
    """Return a mutant that computes honestly from inputs of which some were replaced."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        altered = {name: change(inputs) for name, change in changes.items()}
        return honest(workload, {**inputs, **altered})

    return mutant


def coarse(values: Any, bits: int = 4) -> Any:
    """Round to `bits` significant bits, as a narrower type would."""
    import torch

    mantissa, exponent = torch.frexp(values.float())
    return torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent).to(values.dtype)


def by_rows(function: Callable[..., Any], *tensors: Any, row_elements: int = 0) -> RowBlocks:
    """Apply `function` to blocks of rows of `tensors`, when the result is looked at, in float64.

    Intermediate float64 copies stay bounded however large the tensors are. `row_elements` says
    how many elements a row needs inside `function` where that is more than its inputs have.
    `function` must return a tensor with as many rows as it was given; its dtype is changed to
    float64.
    """
    rows = len(tensors[0])
    widest = max(row_elements, *(tensor.numel() // max(1, rows) for tensor in tensors))
    step = max(1, _BLOCK // max(1, widest))

    def compute(start: int, stop: int) -> Any:
        return function(*(tensor[start:stop] for tensor in tensors)).double()

    shape = tuple(function(*(tensor[:1] for tensor in tensors)).shape[1:])
    return RowBlocks(shape=(rows, *shape), step=step, compute=compute)
