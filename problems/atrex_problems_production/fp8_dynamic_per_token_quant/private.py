"""Judge `fp8_dynamic_per_token_quant`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atrex_problems_production._fp8 import (
    LARGEST,
    ROWS,
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
    Rule,
    Tensors,
    TensorSpec,
    Workload,
    torch_dtype,
)

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
        return specs(_dtype(workload), (tokens, hidden), (tokens,))

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Divide in float64."""
        limit = _limit(workload)

        def scales(x: Any) -> Any:
            return largest(x).double().clamp(min=_LEAST) / limit

        return truth(inputs["x"], scales, limit)

    def tolerance(self, output: TensorSpec) -> Rule:
        """Allow what every quantiser of given rows is allowed."""
        return rule(output)

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
        q = Quantiser(
            dtype=_dtype, shape=lambda w: _sizes(w)[:1], scales=_scales, run=_quantised_by
        )
        return {
            "no_least_scale": q.scaled(lambda w, x: largest(x) / _limit(w)),
            "signed_maximum": q.scaled(lambda w, x: x.amax(-1).clamp(min=_LEAST) / _limit(w)),
            "half_of_the_row": q.scaled(lambda w, x: _scales(w, x[:, : (x.shape[1] + 1) // 2])),
            "limit_of_another_type": q.scaled(
                lambda w, x: largest(x).clamp(min=_LEAST) / (688 - _limit(w))
            ),
            "limit_of_224": q.scaled(lambda _, x: largest(x).clamp(min=_LEAST) / 224),
            "one_for_zero_rows": q.of_several(_one_for_zero_rows, ROWS),
            **q.shared_scales(),
            **q.steps_in_bf16(),
            **q.wrong_codes(),
            **q.wrong_ends(exact=True),
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
    return LARGEST[_dtype(workload)]


def _scales(workload: Workload, x: Any) -> Any:
    return largest(x).clamp(min=_LEAST) / _limit(workload)


def _one_for_zero_rows(workload: Workload, x: Any) -> Any:
    return _scales(workload, x).masked_fill(largest(x) == 0, 1.0)


def _quantised_by(quantise: Quantise) -> Implementation:
    """Return a mutant that quantises rows in this way."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        quotients, scales = quantise(workload, inputs["x"].float())
        return {"quantized": as_codes(quotients, torch_dtype(_dtype(workload))), "scales": scales}

    return mutant
