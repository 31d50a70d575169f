"""What the correctness gate finds out beside its verdict: how exact, and whether repeatable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field

from atrex_core.comparison import Comparison
from atrex_core.interfaces import Tensor
from atrex_core.referee.seals import raw


@define(kw_only=True)
class Findings:
    """Figures of all cases of one workload."""

    regimes: Sequence[str]
    is_deterministic: bool | None = None
    """Whether the same inputs, given twice, gave the same bytes; None where that was not tried."""
    _errors: dict[str, tuple[float, float | None]] = field(factory=dict, init=False)
    """By output: the worst error, and an honest implementation's on the same inputs."""

    def note(self, comparisons: Mapping[str, Comparison]) -> None:
        """Keep the errors of one case where they are the worst so far."""
        for name, comparison in comparisons.items():
            error = comparison.details.get("relative_l2")
            honest = comparison.details.get("relative_l2_honest")
            if not isinstance(error, float):
                continue
            known = self._errors.get(name)
            if known is None or error > known[0]:
                self._errors[name] = (error, honest if isinstance(honest, float) else None)

    def details(self) -> dict[str, Any]:
        """Return plain JSON values. Outputs that must be exact have no error to tell."""
        return {
            "cases": len(self.regimes),
            "regimes": list(self.regimes),
            "relative_l2": {name: error for name, (error, _) in self._errors.items()},
            "relative_l2_honest": {
                name: honest for name, (_, honest) in self._errors.items() if honest is not None
            },
            "deterministic": self.is_deterministic,
        }


def is_same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Return whether two sets of outputs are the same bytes: NaN is NaN, -0 is not 0."""
    import torch

    return all(torch.equal(raw(tensor), raw(other[name])) for name, tensor in one.items())
