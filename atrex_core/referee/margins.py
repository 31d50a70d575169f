"""How near a comparison came to the other verdict: read from the figures that it keeps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from atrex_core.comparison import Comparison


def margin(comparison: Comparison, cap: int | None = None) -> tuple[str | None, float | None]:
    """Return the bound that decided, or came nearest to it, and the error as a share of it.

    The share is None where it is not finite, or the rule keeps no such figure.

    Args:
        comparison: Of one output.
        cap: Codes that an element may be off by, where codes are counted.
    """
    shares = [
        (share, bound)
        for bound, share in _shares(comparison.details, cap)
        if share is not None and not math.isnan(share)
    ]
    if not shares:
        rule = comparison.details.get("rule")
        return (str(rule) if rule else None), None
    share, bound = max(shares)
    if comparison.passed:  # a few elements may lie beyond their own bound
        share = min(share, 1.0)
    return bound, (share if math.isfinite(share) else None)


def _shares(details: Any, cap: int | None) -> Iterator[tuple[str, float | None]]:
    match details.get("rule"):
        case "tolerance":
            yield "element", _number(details["max_error_over_allowed"])
            yield "row L2", _number(details["row_error_over_allowed"])
            allowed = _number(details["relative_l2_allowed"])
            if allowed:
                found = _number(details["relative_l2"])
                yield "relative L2", None if found is None else found / allowed
            yield "bias", _number(details["bias_over_allowed"])
        case "code_steps":
            if details["flips_allowed"]:
                yield "share of codes", details["flipped"] / details["flips_allowed"]
            if cap:
                yield "distance in codes", details["most_steps"] / cap
        case "exact":
            yield "equality", math.inf if details["wrong"] else 0.0


def _number(value: float | str) -> float | None:
    """Return a figure that may have been written as text because it is not finite."""
    return float(value)
