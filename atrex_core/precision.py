"""How well a median is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Final

RELATIVE: Final = 0.005
ABSOLUTE_US: Final = 0.05
_Z95 = 1.96
_LEAST = 6
"""The least number of samples whose extremes hold the median with 95 % confidence."""


def interval_us(samples_us: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the median, in microseconds; None for few samples.

    From order statistics: no shape of the distribution is assumed.
    """
    count = len(samples_us)
    if count < _LEAST:
        return None
    ordered = sorted(samples_us)
    reach = _Z95 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - reach))
    high = min(count - 1, math.ceil(count / 2 + reach) - 1)
    return ordered[low], ordered[high]


def half_width_us(samples_us: Sequence[float]) -> float:
    """Return half of the 95 % interval of the median, in microseconds; infinite for few samples."""
    interval = interval_us(samples_us)
    return math.inf if interval is None else (interval[1] - interval[0]) / 2


def is_settled(samples_us: Sequence[float]) -> bool:
    """Return whether the median is known to 0.5 % or to 0.05 us, whichever is more."""
    if not samples_us:
        return False
    return half_width_us(samples_us) <= max(RELATIVE * median(samples_us), ABSOLUTE_US)
