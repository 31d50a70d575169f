"""Judge `per_token_group_quant_fp8`: float64 truth, cost, and wrong implementations."""

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

_LEAST = 1e-10
"""The smallest scale."""

_CHUNK = 1 << 24
"""Elements that a mutant quantises at once."""

_LIMITS = {DType.FP8_E4M3FN: 448.0, DType.FP8_E4M3FNUZ: 224.0}


class Operator(ProductionProblem):
    """Each group of columns divided by its largest magnitude, in fp8."""

    summary = "dynamic fp8 quantisation of each group of columns by its largest magnitude"
    container = Container.DICT

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `x`."""
        tokens, groups, size = _sizes(workload)
        return (TensorSpec(name="x", dtype=DType.BF16, shape=(tokens, groups * size)),)

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `quantized` and `scales`."""
        tokens, groups, size = _sizes(workload)
        return (
            TensorSpec(name="quantized", dtype=_dtype(workload), shape=(tokens, groups * size)),
            TensorSpec(name="scales", dtype=DType.FP32, shape=(tokens, groups)),
        )

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Divide in float64."""
        limit, (_, groups, size) = _limit(workload), _sizes(workload)

        def scales(x: Any) -> Any:
            largest = x.view(-1, groups, size).abs().amax(-1).double()
            return (largest / limit).clamp_(min=_LEAST)

        def quotients(x: Any) -> Any:
            wide = x.double()
            wide.view(-1, groups, size).div_(scales(x)[:, :, None])
            return wide.clamp_(-limit, limit)

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
        """Scale each element, and divide once a group; magnitudes and maxima are comparisons."""
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: self.published_flops(workload)})

    def published_flops(self, workload: Workload) -> float:
        """Count a division for each element and each group, filed under fp8."""
        tokens, groups, size = _sizes(workload)
        return tokens * groups * (size + 1)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Take another scale, group otherwise, or round otherwise."""
        return {
            "no_least_scale": _scaled(lambda w, x: _largest(x) / _limit(w)),
            "least_of_the_maximum": _scaled(lambda w, x: _largest(x).clamp(min=_LEAST) / _limit(w)),
            "signed_maximum": _scaled(lambda w, x: (x.amax(-1) / _limit(w)).clamp(min=_LEAST)),
            "misses_last_column": _scaled(lambda w, x: _scales(w, x[..., :-1])),
            "half_of_the_group": _scaled(lambda w, x: _scales(w, x[..., : (x.shape[-1] + 1) // 2])),
            "limit_of_another_type": _scaled(
                lambda w, x: (_largest(x) / (672 - _limit(w))).clamp(min=_LEAST)
            ),
            "limit_of_240": _scaled(lambda _, x: (_largest(x) / 240).clamp(min=_LEAST)),
            "scale_of_the_row": _of_several(
                lambda w, x: _scales(w, x).amax(-1, keepdim=True).expand(x.shape[:2]).contiguous(),
                axes=(1,),
            ),
            "one_scale_for_all": _of_several(
                lambda w, x: _scales(w, x).amax().repeat(x.shape[:2]), axes=(0, 1)
            ),
            "scale_of_the_next_group": _of_several(
                lambda w, x: _scales(w, x).flatten().roll(-1).view(x.shape[:2]), axes=(0, 1)
            ),
            "scale_of_the_next_row": _of_several(lambda w, x: _scales(w, x).roll(-1, 0), axes=(0,)),
            "interleaved_groups": _of_several(_interleaved, axes=(1,)),
            "scales_by_columns": self._scales_by_columns,
            "scale_in_bf16": _scaled(lambda w, x: _scales(w, x).bfloat16().float()),
            "codes_by_a_bf16_scale": _rounded(
                lambda w, x: x / _scales(w, x).bfloat16().float()[..., None]
            ),
            "quotient_in_bf16": _rounded(lambda w, x: _quotients(w, x).bfloat16().float()),
            "three_bits": _rounded(lambda w, x: coarse(_quotients(w, x), 3)),
            "truncated": _rounded(lambda w, x: _truncated(_quotients(w, x))),
            "small_codes_flushed": _rounded(lambda w, x: _flushed(w, _quotients(w, x))),
        }

    def _scales_by_columns(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Lay the scales out with the tokens of a group side by side."""
        if 1 in _sizes(workload)[:2]:
            raise Inapplicable("scales of one row or one column lie in the same order")
        right = self.honest(workload, inputs)
        scales = right["scales"]
        return {**right, "scales": scales.t().reshape(scales.shape)}


def _sizes(workload: Workload) -> tuple[int, int, int]:
    """Return tokens, groups of a token, and columns of a group."""
    size = workload.init["group_size"]
    return workload.axes["token_count"], workload.axes["hidden_size"] // size, size


def _dtype(workload: Workload) -> DType:
    return DType(workload.init.get("dtype", DType.FP8_E4M3FN))


def _limit(workload: Workload) -> float:
    return _LIMITS[_dtype(workload)]


def _largest(x: Any) -> Any:
    return x.abs().amax(-1)


def _scales(workload: Workload, x: Any) -> Any:
    return (_largest(x) / _limit(workload)).clamp(min=_LEAST)


def _quotients(workload: Workload, x: Any) -> Any:
    return x / _scales(workload, x)[..., None]


def _interleaved(workload: Workload, x: Any) -> Any:
    """Take every so many columns for a group, not consecutive ones."""
    tokens, groups, size = x.shape
    return _scales(workload, x.reshape(tokens, size, groups).transpose(1, 2))


def _by_chunks(quantise: Callable[[Workload, Any], tuple[Any, Any]]) -> Implementation:
    """Return a mutant that turns grouped fp32 rows into quotients and scales, some at a time."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        import torch

        x, limit, (tokens, groups, size) = inputs["x"], _limit(workload), _sizes(workload)
        quantized = torch.empty(x.shape, dtype=torch_dtype(_dtype(workload)), device=x.device)
        scales = torch.empty(tokens, groups, device=x.device)
        step = max(1, _CHUNK // (groups * size))
        for start in range(0, tokens, step):
            rows = slice(start, start + step)
            wide = x[rows].float().view(-1, groups, size)
            quotients, scales[rows] = quantise(workload, wide)
            quantized[rows] = quotients.clamp(-limit, limit).flatten(1).to(quantized.dtype)
        return {"quantized": quantized, "scales": scales}

    return mutant


def _scaled(scale: Callable[[Workload, Any], Any]) -> Implementation:
    """Return a mutant that takes these scales for those of grouped `x`."""

    def quantise(workload: Workload, x: Any) -> tuple[Any, Any]:
        scales = scale(workload, x)
        return x / scales[..., None], scales

    return _by_chunks(quantise)


def _of_several(scale: Callable[[Workload, Any], Any], axes: tuple[int, ...]) -> Implementation:
    """Return the same for scales that are right where these axes have but one of them."""
    wrong = _scaled(scale)

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        if all(_sizes(workload)[axis] == 1 for axis in axes):
            raise Inapplicable("there is no other scale")
        return wrong(workload, inputs)

    return mutant


def _rounded(quotient: Callable[[Workload, Any], Any]) -> Implementation:
    """Return a mutant with the right scales that rounds these quotients of grouped `x`."""
    return _by_chunks(lambda w, x: (quotient(w, x), _scales(w, x)))


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
