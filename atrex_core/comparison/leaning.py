"""Whether errors lean one way: a gain or an offset that no single element shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

from attrs import frozen

from atrex_core.comparison.verdict import number

_LEAST = 1 / 4
"""Share of the allowed L2 error that may lean, however significant it is.

Some hardware truncates its accumulators.
"""


@frozen(kw_only=True)
class Leaning:
    """Mean errors in units of the output's root mean square, and what is allowed of each."""

    gain: float
    gain_allowed: float
    offset: float
    offset_allowed: float

    @classmethod
    def of(
        cls, figures: Mapping[str, float], elements: int, *, deviations: float, allowed: float
    ) -> Self:
        """Judge the sums of a walk.

        Args:
            figures: Sums of errors `d` and honest errors `h`: plain, and times the expected `e`;
                of `d` and `e` squared, and of the squares of the rows of `e`.
            elements: How many there are.
            deviations: How many standard deviations of the mean over rows are chance.
            allowed: L2 norm that all errors together may have.
        """
        square = figures["sum_e2"]
        if square == 0:
            return cls(gain=0.0, gain_allowed=0.0, offset=0.0, offset_allowed=0.0)
        rows = square * square / figures["sum_e2_squared"] if figures["sum_e2_squared"] else 1.0
        size = math.sqrt(square)
        per_element = size * math.sqrt(elements)
        chance = deviations * math.sqrt(figures["sum_d2"] / rows)
        least = max(_LEAST * allowed, chance) / size
        return cls(
            gain=figures["sum_de"] / square,
            gain_allowed=least + 2 * abs(figures["sum_he"]) / square,
            offset=figures["sum_d"] / per_element,
            offset_allowed=least + 2 * abs(figures["sum_h"]) / per_element,
        )

    @property
    def over_allowed(self) -> float:
        """The larger of both, as a share of what is allowed: above 1, roundings cannot be it."""
        return max(_share(self.gain, self.gain_allowed), _share(self.offset, self.offset_allowed))

    def details(self) -> dict[str, Any]:
        """Return the figures for a result's details."""
        return {
            "gain": number(self.gain),
            "gain_allowed": number(self.gain_allowed),
            "offset": number(self.offset),
            "offset_allowed": number(self.offset_allowed),
            "bias_over_allowed": number(self.over_allowed),
        }

    def __str__(self) -> str:
        gain = _share(self.gain, self.gain_allowed)
        if gain >= _share(self.offset, self.offset_allowed):
            return (
                f"all is too {'large' if self.gain > 0 else 'small'} by a factor of "
                f"{abs(self.gain):.3g} (allowed {self.gain_allowed:.3g}): values are truncated "
                "instead of rounded, or a factor is off"
            )
        return (
            f"all is too {'high' if self.offset > 0 else 'low'} by {abs(self.offset):.3g} of the "
            f"root mean square (allowed {self.offset_allowed:.3g}): values are rounded to one "
            "side, or a term is off"
        )


def _share(found: float, allowed: float) -> float:
    return abs(found) / allowed if allowed else (math.inf if found else 0.0)
