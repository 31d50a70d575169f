"""What every compilation needs once, done before workers are forked. Imports Numba."""

from __future__ import annotations

from typing import Any

import numba


def warm_up() -> None:
    """Compile a serial loop over an array, which starts no thread."""
    numba.njit("float32(float32[::1])")(_sum)


def _sum(values: Any) -> Any:
    total = values[0]
    for value in values:
        total += value
    return total
