"""Judge `fp8_dynamic_per_token_quant`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atrex_problems_production._problem import ProductionProblem

from atrex_core import (
    ArithmeticPath,
    CodeSteps,
    Container,
    Cost,
    DType,
    Implementation,
    Inapplicable,
    Rule,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
    torch_dtype,
)
from atrex_core.packs import by_rows, coarse

_LEAST = 1e-12
"""What a row's largest magnitude counts as, at least."""


class Operator(ProductionProblem):
    """Each row divided by its largest magnitude, in fp8."""

    summary = "dynamic fp8 quantisation of each token by its largest magnitude"
    container = Container.TUPLE

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `x`."""
        return (TensorSpec(name="x", dtype=DType.BF16, shape=_sizes(workload)),)

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `quantized` and `scales`."""
        tokens, hidden = _sizes(workload)
        return (
            TensorSpec(name="quantized", dtype=_dtype(workload), shape=(tokens, hidden)),
            TensorSpec(name="scales", dtype=DType.FP32, shape=(tokens,)),
        )

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Divide in float64."""
        limit = _limit(workload)

        def scales(x: Any) -> Any:
            return x.abs().amax(-1).double().clamp(min=_LEAST) / limit

        def quotients(x: Any) -> Any:
            return (x.double() / scales(x)[:, None]).clamp_(-limit, limit)

        x = inputs["x"]
        return {"quantized": by_rows(quotients, x), "scales": by_rows(scales, x)}

    def tolerance(self, output: TensorSpec) -> Rule:
        """Leave room for a reciprocal where another divides, and for nothing else.

        Codes that fp32 rounding may turn are not counted as flips, so honest implementations have
        none. A scale kept in ten bits flips one code in 250.
        """
        if output.name == "scales":
            return Tolerance(dtype=output.dtype, relative_l2=4)
        return CodeSteps(dtype=output.dtype, flips=5e-4)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Scale each element, and divide once a row; magnitudes and maxima are comparisons."""
        tokens, hidden = _sizes(workload)
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: tokens * (hidden + 1)})

    def published_flops(self, workload: Workload) -> float:
        """Count the same, and file it under fp8."""
        tokens, hidden = _sizes(workload)
        return tokens * (hidden + 1)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Take another scale, or round otherwise."""
        return {
            "no_least_scale": _scaled(lambda w, x: _largest(x, least=0.0) / _limit(w)),
            "signed_maximum": _scaled(lambda w, x: x.amax(-1).clamp(min=_LEAST) / _limit(w)),
            "misses_last_column": _scaled(lambda w, x: _largest(x[:, :-1]) / _limit(w)),
            "half_of_the_row": _scaled(
                lambda w, x: _largest(x[:, : (x.shape[1] + 1) // 2]) / _limit(w)
            ),
            "limit_of_another_type": _scaled(lambda w, x: _largest(x) / (688 - _limit(w))),
            "limit_of_224": _scaled(lambda _, x: _largest(x) / 224),
            "one_scale_for_all": _of_several(
                lambda w, x: (_largest(x) / _limit(w)).amax().expand(len(x)).clone()
            ),
            "scale_of_the_next_row": _of_several(lambda w, x: (_largest(x) / _limit(w)).roll(-1)),
            "scale_in_bf16": _scaled(lambda w, x: (_largest(x) / _limit(w)).bfloat16().float()),
            "codes_by_a_bf16_scale": _rounded(
                lambda w, x: x / (_largest(x) / _limit(w)).bfloat16().float()[:, None]
            ),
            "quotient_in_bf16": _rounded(lambda w, x: _quotients(w, x).bfloat16().float()),
            "three_bits": _rounded(lambda w, x: coarse(_quotients(w, x), 3)),
            "truncated": _rounded(lambda w, x: _truncated(_quotients(w, x))),
            "small_codes_flushed": _rounded(lambda w, x: _flushed(w, _quotients(w, x))),
            "reciprocal_scale": self._reciprocal_scale,
        }

    def _reciprocal_scale(self, workload: Workload, inputs: Tensors) -> Tensors:
        right = self.honest(workload, inputs)
        return {**right, "scales": 1 / right["scales"]}


def _sizes(workload: Workload) -> tuple[int, int]:
    return workload.axes["token_count"], workload.axes["hidden_size"]


def _dtype(workload: Workload) -> DType:
    return DType(workload.init.get("dtype", DType.FP8_E4M3FNUZ))


def _limit(workload: Workload) -> float:
    return {DType.FP8_E4M3FNUZ: 240.0, DType.FP8_E4M3FN: 448.0}[_dtype(workload)]


def _largest(x: Any, *, least: float = _LEAST) -> Any:
    return x.abs().amax(-1).clamp(min=least)


def _quotients(workload: Workload, x: Any) -> Any:
    return x / (_largest(x) / _limit(workload))[:, None]


def _codes(workload: Workload, quotients: Any) -> Any:
    limit = _limit(workload)
    return quotients.clamp(-limit, limit).to(torch_dtype(_dtype(workload)))


def _scaled(scale: Callable[[Workload, Any], Any]) -> Implementation:
    """Return a mutant that takes these scales for those of fp32 `x`."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        x = inputs["x"].float()
        scales = scale(workload, x)
        return {"quantized": _codes(workload, x / scales[:, None]), "scales": scales}

    return mutant


def _of_several(scale: Callable[[Workload, Any], Any]) -> Implementation:
    """Return the same for scales that are right where there is one row."""
    wrong = _scaled(scale)

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        if len(inputs["x"]) == 1:
            raise Inapplicable("one row has one scale")
        return wrong(workload, inputs)

    return mutant


def _rounded(quotient: Callable[[Workload, Any], Any]) -> Implementation:
    """Return a mutant with the right scales that rounds these quotients of fp32 `x`."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        x = inputs["x"].float()
        scales = _largest(x) / _limit(workload)
        return {"quantized": _codes(workload, quotient(workload, x)), "scales": scales}

    return mutant


def _truncated(values: Any) -> Any:
    """Drop all but four significant bits."""
    import torch

    mantissa, exponent = torch.frexp(values)
    return torch.ldexp((mantissa * 16).trunc() / 16, exponent)


def _flushed(workload: Workload, values: Any) -> Any:
    """Turn what the type holds with fewer bits into zero."""
    import torch

    normal = torch.finfo(torch_dtype(_dtype(workload))).tiny
    return torch.where(values.abs() < normal, 0.0, values)
