"""Judge `per_token_group_quant_fp8`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atrex_problems_production._fp8 import (
    GROUPS,
    LARGEST,
    Quantise,
    Quantiser,
    as_codes,
    largest,
    rule,
    specs,
    truth,
)
from atrex_problems_production._problem import ProductionProblem

from atrex_core import (
    ArithmeticPath,
    Container,
    Cost,
    DType,
    Implementation,
    Inapplicable,
    Rule,
    Tensors,
    TensorSpec,
    Workload,
    torch_dtype,
)

_LEAST = 1e-10
"""The smallest scale."""

_CHUNK = 1 << 24
"""Elements that a mutant quantises at once."""

_LIMITS = {**LARGEST, DType.FP8_E4M3FNUZ: 224.0}


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
        return specs(_dtype(workload), (tokens, groups * size), (tokens, groups))

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Divide in float64."""
        limit = _limit(workload)

        def scales(x: Any) -> Any:
            return (largest(x).double() / limit).clamp_(min=_LEAST)

        return truth(inputs["x"].view(_sizes(workload)), scales, limit)

    def tolerance(self, output: TensorSpec) -> Rule:
        """Allow what every quantiser of given rows is allowed."""
        return rule(output)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Scale each element, and divide once a group; magnitudes and maxima are comparisons."""
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: self.published_flops(workload)})

    def published_flops(self, workload: Workload) -> float:
        """Count a division for each element and each group, filed under fp8."""
        tokens, groups, size = _sizes(workload)
        return tokens * groups * (size + 1)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Take another scale, group otherwise, or round otherwise."""
        q = Quantiser(
            dtype=_dtype, shape=lambda w: _sizes(w)[:2], scales=_scales, run=_quantised_by
        )
        return {
            "no_least_scale": q.scaled(lambda w, x: largest(x) / _limit(w)),
            "least_of_the_maximum": q.scaled(lambda w, x: largest(x).clamp(min=_LEAST) / _limit(w)),
            "signed_maximum": q.scaled(lambda w, x: (x.amax(-1) / _limit(w)).clamp(min=_LEAST)),
            "half_of_the_group": q.scaled(
                lambda w, x: _scales(w, x[..., : (x.shape[-1] + 1) // 2])
            ),
            "limit_of_another_type": q.scaled(
                lambda w, x: (largest(x) / (672 - _limit(w))).clamp(min=_LEAST)
            ),
            "limit_of_240": q.scaled(lambda _, x: (largest(x) / 240).clamp(min=_LEAST)),
            "one_for_zero_groups": q.of_several(
                lambda w, x: _scales(w, x).masked_fill(largest(x) == 0, 1.0)
            ),
            "scale_of_the_row": q.of_several(
                lambda w, x: _scales(w, x).amax(-1, keepdim=True).expand(x.shape[:2]), GROUPS
            ),
            "groups_twice_as_wide": q.of_several(_of_pairs, GROUPS),
            **q.shared_scales(),
            "scale_of_the_next_group": q.of_several(
                lambda w, x: _scales(w, x).flatten().roll(-1).view(x.shape[:2])
            ),
            "interleaved_groups": q.of_several(_interleaved, GROUPS),
            "scales_by_columns": self._scales_by_columns,
            **q.steps_in_bf16(),
            **q.wrong_codes(),
            **q.wrong_ends(exact=True),
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


def _scales(workload: Workload, x: Any) -> Any:
    return (largest(x) / _limit(workload)).clamp(min=_LEAST)


def _interleaved(workload: Workload, x: Any) -> Any:
    """Take every so many columns for a group, not consecutive ones."""
    tokens, groups, size = x.shape
    return _scales(workload, x.reshape(tokens, size, groups).transpose(1, 2))


def _of_pairs(workload: Workload, x: Any) -> Any:
    """Give each two groups one scale."""
    tokens, groups, _ = x.shape
    if groups % 2:
        raise Inapplicable("the groups do not pair")
    return _scales(workload, x.view(tokens, groups // 2, -1)).repeat_interleave(2, 1)


def _quantised_by(quantise: Quantise) -> Implementation:
    """Return a mutant that quantises grouped rows in this way, some at a time."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        import torch

        x, dtype = inputs["x"].view(_sizes(workload)), torch_dtype(_dtype(workload))
        quantized = torch.empty(x.shape, dtype=dtype, device=x.device)
        scales = torch.empty(x.shape[:2], device=x.device)
        step = max(1, _CHUNK // x[0].numel())
        for start in range(0, len(x), step):
            rows = slice(start, start + step)
            quotients, scales[rows] = quantise(workload, x[rows].float())
            quantized[rows] = as_codes(quotients, dtype, _limit(workload))
        return {"quantized": quantized.flatten(1), "scales": scales}

    return mutant
