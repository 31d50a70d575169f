"""The one JSON document that `--format json` prints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from atrex_core import codec
from atrex_core.model import Evaluation, RunCost
from atrex_core.report import cost as costs
from atrex_core.scoring import Summary

SCHEMA = 1


def document(
    evaluations: Sequence[Evaluation], summary: Summary, cost: RunCost
) -> Mapping[str, Any]:
    """Return plain JSON values: every evaluation, what they add up to, and what that cost."""
    return {
        "schema": SCHEMA,
        "evaluations": [entry(evaluation) for evaluation in evaluations],
        "summary": codec.unstructure(summary),
        "cost": costs.document(cost),
    }


def entry(evaluation: Evaluation) -> Mapping[str, Any]:
    """Return one evaluation as it stands in the document."""
    plain = codec.unstructure(evaluation)
    timing = plain["timing"]
    if timing is not None:
        timing["cv"] = _spread(evaluation)
    return {
        **plain,
        "device": evaluation.device.id,
        "device_name": evaluation.device.name,
        "outcome": str(evaluation.outcome),
        "gap": _gap(plain["gap"]),
    }


def _gap(plain: dict[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the parts, in microseconds, under the names that they have in a document."""
    if plain is None:
        return None
    parts = {name: plain.pop(f"{name}_us") for name in ("launch", "device", "fallback")}
    return {**parts, **plain}


def _spread(evaluation: Evaluation) -> float | None:
    try:
        cv = evaluation.timing.cv if evaluation.timing else None
    except OverflowError:  # a journal of somebody else's may hold any numbers
        return None
    return cv if cv is not None and math.isfinite(cv) else None
