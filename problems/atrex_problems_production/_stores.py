"""Wrong implementations that compute well and store badly, for outputs narrower than fp32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from atrex_core import Implementation, Inapplicable, Problem, RowBlocks, Tensors, Workload

MANY_ROWS = 64
"""Rows from which errors that lean one way are told from roundings."""

_BLOCK = 1 << 24
"""Elements stored at once."""

Store = Callable[[Any, Any], Any]
"""Returns high-precision values in a narrow dtype."""


def toward_zero(values: Any, dtype: Any) -> Any:
    """Drop the bits that a 16-bit type has no room for."""
    import torch

    nearest = values.to(dtype)
    away = nearest.to(values.dtype).abs() > values.abs()
    return (nearest.view(torch.int16) - away.to(torch.int16)).view(dtype)


def gained(share: float) -> Store:
    """Return what multiplies by a little more than one before it rounds to nearest."""
    return lambda values, dtype: (values * (1 + share)).to(dtype)


def storing(problem: Problem, store: Store, *names: str) -> Implementation:
    """Return a mutant that stores the exact values of these outputs, or of the first, in this way.

    The error of each is within a unit in the last place; only that all lean one way tells.
    """

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        outputs = dict(problem.honest(workload, inputs))
        expected = problem.expected(workload, inputs)
        for name in names or tuple(outputs)[:1]:
            rows = outputs[name].view(-1, outputs[name].shape[-1])
            if len(rows) < MANY_ROWS:
                raise Inapplicable("there are few rows")
            outputs[name] = _stored(expected[name], outputs[name], store)
        return outputs

    return mutant


def _stored(expected: Any, like: Any, store: Store) -> Any:
    """Fill a tensor like another, some rows of the first axis at a time."""
    out = like.clone()
    step = max(1, _BLOCK // max(1, like[0].numel()))
    for start in range(0, len(out), step):
        stop = min(start + step, len(out))
        lazy = isinstance(expected, RowBlocks)
        values = expected.rows(start, stop) if lazy else expected[start:stop]
        out[start:stop] = store(values, out.dtype)
    return out
