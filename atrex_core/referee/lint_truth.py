"""Is it `expected` that is off? Then all honest implementations are off in the same way."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from atrex_core.interfaces import Problem, Tensors
from atrex_core.model import TensorSpec, Tolerance, Workload

_MOST_ELEMENTS = 1 << 24
"""In larger outputs it is not looked for: errors are held in float64."""
_LEAST = 1.0
"""Relative L2 error, in epsilons of the output, from which it is no rounding of the output."""
_SAME = 0.9
"""Cosine between two errors from which they are the same error."""


@define(eq=False)
class Agreement:
    """The errors of the reference and the variants in one case.

    Independent roundings have nothing in common. Nor has a rounding that only the reference
    makes, such as of an operand: one variant that does not make it is enough.
    """

    problem: Problem
    workload: Workload
    expected: Tensors
    _reference: dict[str, Any] = field(factory=dict, init=False)
    _variants: list[dict[str, Any]] = field(factory=list, init=False)

    def note(self, outputs: Tensors, *, is_reference: bool) -> None:
        """Add what one of them answered."""
        found = {}
        for spec in self.problem.outputs(self.workload):
            if self._is_looked_at(spec):
                wide = outputs[spec.name].double() - self.expected[spec.name]
                found[spec.name] = wide.nan_to_num(0.0, 0.0, 0.0).reshape(-1)
        if is_reference:
            self._reference = found
        else:
            self._variants.append(found)

    def complaint(self) -> str | None:
        """Say with the truth of which output all of them disagree, if any."""
        for spec in self.problem.outputs(self.workload):
            if spec.name not in self._reference or not self._variants:
                continue
            expected = self.expected[spec.name].nan_to_num(0.0, 0.0, 0.0)
            size, error = float(expected.norm()), self._reference[spec.name]
            others = [variant[spec.name] for variant in self._variants]
            least = _LEAST * spec.dtype.epsilon * size
            if all(float(e.norm()) > least for e in (error, *others)) and all(
                float(error @ other) > _SAME * float(error.norm() * other.norm())
                for other in others
            ):
                return (
                    f"output {spec.name!r}: the reference and every variant agree with one another,"
                    f" but are {float(error.norm()) / size:.3g} off `expected`"
                )
        return None

    def _is_looked_at(self, spec: TensorSpec) -> bool:
        import torch

        if not spec.dtype.is_floating or not isinstance(self.problem.tolerance(spec), Tolerance):
            return False
        truth = self.expected[spec.name]
        return isinstance(truth, torch.Tensor) and 0 < truth.numel() <= _MOST_ELEMENTS
