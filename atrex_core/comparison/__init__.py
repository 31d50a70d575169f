"""Judge one output tensor against its expected value, and say what is wrong with it.

Pure functions of tensors: no seeds, no candidates, no gates. Torch is imported when a tensor is
at hand. Tensors are walked in tiles, so that float64 copies of a billion elements never exist at
once; every figure stays on the device until the walk is over, so that there is one wait.
"""

from __future__ import annotations

from atrex_core.comparison.exact import compare_close, compare_exactly
from atrex_core.comparison.steps import compare_steps
from atrex_core.comparison.tiles import Tensor
from atrex_core.comparison.verdict import Comparison, refuse
from atrex_core.comparison.within import compare_within
from atrex_core.errors import HarnessError
from atrex_core.model import Allclose, CodeSteps, Rule, TensorSpec, Tolerance
from atrex_core.tensors import torch_dtype

__all__ = ["Comparison", "compare"]


def compare(
    spec: TensorSpec,
    rule: Rule | None,
    actual: Tensor,
    expected: Tensor,
    honest: Tensor | None = None,
    *,
    poison: float | None = None,
) -> Comparison:
    """Compare `actual` with `expected` under a rule.

    Integers, booleans, and any output without a tolerance, must be equal. NaN and infinities
    must stand exactly where `expected`, rounded to the output's dtype, has them.

    Args:
        spec: What the output should look like.
        rule: The rule; None compares exactly.
        actual: The candidate's output, in the output's own dtype.
        expected: The high-precision value, on the same device; `RowBlocks` will do.
        honest: What an honest implementation returns for the same inputs; `Tolerance` needs it.
        poison: The value that the output buffer held before the call.

    Raises:
        HarnessError: `expected` or `honest` cannot be right, so nothing can be judged.
    """
    dtype = torch_dtype(spec.dtype)
    if tuple(actual.shape) != spec.shape:
        return refuse(f"shape is {list(actual.shape)}, not {list(spec.shape)}")
    if actual.dtype != dtype:
        return refuse(f"dtype is {str(actual.dtype).removeprefix('torch.')}, not {spec.dtype}")
    for what, tensor in (("expected", expected), ("honest", honest)):
        if tensor is not None and tuple(tensor.shape) != spec.shape:
            raise HarnessError(
                f'the {what} value of output "{spec.name}" has shape {list(tensor.shape)}',
                hint=f"the problem declares {list(spec.shape)}",
            )

    import torch

    if actual.numel() == 0:
        return Comparison(passed=True, reason=None, details={"elements": 0})
    with torch.no_grad():
        if rule is None or not spec.dtype.is_floating:
            return compare_exactly(spec, actual, expected, poison)
        match rule:
            case Allclose():
                return compare_close(spec, rule, actual, expected, poison)
            case CodeSteps():
                return compare_steps(spec, rule, actual, expected, poison)
            case Tolerance():
                if honest is None:
                    raise HarnessError(f'output "{spec.name}" has a tolerance but no honest value')
                return compare_within(spec, rule, actual, expected, honest, poison)
