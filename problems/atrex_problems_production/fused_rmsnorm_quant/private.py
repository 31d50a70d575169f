"""Judge `fused_rmsnorm_quant`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atrex_problems_production._fp8 import LARGEST, Quantise, Quantiser, as_codes, largest, specs
from atrex_problems_production._problem import ProductionProblem
from atrex_problems_production._stores import MANY_ROWS, toward_zero

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
from atrex_core.packs import altering, by_rows, coarse

_EPS = 1e-5
"""What `Model` adds to the mean square unless told otherwise."""


class Operator(ProductionProblem):
    """Residual addition, RMS normalisation of the rounded sum, fp8 by rows."""

    summary = "residual addition, RMS normalisation and dynamic fp8 quantisation of each token"
    container = Container.TUPLE

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `x`, `residual` and `weight`."""
        tokens, hidden = _sizes(workload)
        return (
            TensorSpec(name="x", dtype=DType.BF16, shape=(tokens, hidden)),
            TensorSpec(name="residual", dtype=DType.BF16, shape=(tokens, hidden)),
            TensorSpec(name="weight", dtype=DType.BF16, shape=(hidden,)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `quantized`, `scales` and the new `residual`."""
        tokens, hidden = _sizes(workload)
        return (
            *specs(_dtype(workload), (tokens, hidden), (tokens, 1)),
            TensorSpec(name="residual", dtype=DType.BF16, shape=(tokens, hidden)),
        )

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Round the sum and the normalised row to bf16 as stated; the rest is float64."""
        weight, limit = inputs["weight"].double(), _limit(workload)
        eps = _eps(workload)

        def total(x: Any, residual: Any) -> Any:
            return (x.double() + residual.double()).bfloat16().double()

        def normed(x: Any, residual: Any) -> Any:
            wide = total(x, residual)
            wide *= (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
            return (wide * weight).bfloat16().double()

        def scales(x: Any, residual: Any) -> Any:
            return _scales(normed(x, residual), limit)[:, None]

        def quotients(x: Any, residual: Any) -> Any:
            values = normed(x, residual)
            return (values / _scales(values, limit)[:, None]).clamp_(-limit, limit)

        both = inputs["x"], inputs["residual"]
        return {
            "quantized": by_rows(quotients, *both),
            "scales": by_rows(scales, *both),
            "residual": by_rows(total, *both),
        }

    def tolerance(self, output: TensorSpec) -> Rule:
        """Leave room for a sum and a normalised row that stay in fp32.

        Both roundings to bf16 left out move a scale by 2^-7 at most and by 0.0025 on average
        (root mean square), and flip about 3 codes in 100.
        """
        if output.name == "scales":
            return Tolerance(dtype=DType.BF16, relative_l2=2, element=0.75)
        if output.name == "quantized":
            return CodeSteps(dtype=output.dtype, flips=0.035)
        return Tolerance(dtype=output.dtype)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Add, square, sum, weigh and scale each element once: a code needs no root.

        For each row: mean, epsilon, root times largest, scale, and the factor of the codes.
        """
        tokens, hidden = _sizes(workload)
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: 5 * tokens * hidden + 5 * tokens})

    def published_flops(self, workload: Workload) -> float:
        """Squares and square roots count nothing there, scaling twice does."""
        tokens, hidden = _sizes(workload)
        return tokens * (5 * hidden + 2)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Leave out a term, take another scale, round otherwise, or hand back a wrong residual."""

        def no_epsilon(workload: Workload, inputs: Tensors) -> Tensors:
            return self.run_reference(workload, inputs, **{**workload.init, "eps": 0.0})

        def default_epsilon(workload: Workload, inputs: Tensors) -> Tensors:
            if _eps(workload) == _EPS:
                raise Inapplicable("it is the right one")
            return self.run_reference(workload, inputs, **{**workload.init, "eps": _EPS})

        def truncated_residual(workload: Workload, inputs: Tensors) -> Tensors:
            if len(inputs["x"]) < MANY_ROWS:
                raise Inapplicable("there are few rows")
            total = inputs["x"].float() + inputs["residual"].float()
            stored = toward_zero(total, inputs["x"].dtype)
            return {**self.honest(workload, inputs), "residual": stored}

        def not_weighed_last(inputs: Tensors) -> Any:
            weight = inputs["weight"].clone()
            weight[-1] = 1
            return weight

        def old_residual(workload: Workload, inputs: Tensors) -> Tensors:
            return {**self.honest(workload, inputs), "residual": inputs["residual"].clone()}

        def residual_of_x(workload: Workload, inputs: Tensors) -> Tensors:
            return {**self.honest(workload, inputs), "residual": inputs["x"].clone()}

        def shifted_columns(inputs: Tensors) -> Any:
            return inputs["residual"].roll(1, -1)

        q = Quantiser(
            dtype=_dtype,
            shape=lambda w: _sizes(w)[:1],
            scales=lambda w, n: _scales(n, _limit(w)),
            run=_quantised_by,
        )

        def of_normed(normed: Callable[[Workload, Tensors], Any]) -> Implementation:
            return _quantised_by(q.right, normed)

        return {
            "no_epsilon": no_epsilon,
            "default_epsilon": default_epsilon,
            "old_residual": old_residual,
            "residual_of_x": residual_of_x,
            "no_residual": altering(self.honest, residual=lambda i: i["residual"] * 0),
            "no_x": altering(self.honest, x=lambda i: i["x"] * 0),
            "truncated_residual": truncated_residual,
            "last_column_not_weighed": altering(self.honest, weight=not_weighed_last),
            "weight_plus_one": altering(self.honest, weight=lambda i: i["weight"] + 1),
            "no_weight": altering(self.honest, weight=lambda i: i["weight"] * 0 + 1),
            "shifted_columns": altering(self.honest, residual=shifted_columns),
            "not_normalised": of_normed(lambda _, i: _total(i) * i["weight"].float()),
            "half_of_the_row": of_normed(lambda w, i: _normed(w, i, (i["x"].shape[1] + 1) // 2)),
            "normed_in_four_bits": of_normed(lambda w, i: coarse(_normed(w, i))),
            "signed_maximum": q.scaled(lambda w, n: _of_zero_one(n.amax(-1) / _limit(w))),
            "no_scale_of_zero_rows": q.scaled(lambda w, n: largest(n) / _limit(w)),
            "least_scale_of_zero_rows": q.scaled(
                lambda w, n: largest(n).clamp(min=1e-12) / _limit(w)
            ),
            "limit_of_another_type": q.scaled(lambda w, n: _scales(n, 688 - _limit(w))),
            "limit_of_224": q.scaled(lambda _, n: _scales(n, 224)),
            **q.shared_scales(),
            **q.wrong_codes(),
            **q.wrong_ends(exact=False),
        }


def _sizes(workload: Workload) -> tuple[int, int]:
    return workload.axes["token_count"], workload.axes["hidden_size"]


def _dtype(workload: Workload) -> DType:
    return DType(workload.init.get("dtype", DType.FP8_E4M3FNUZ))


def _limit(workload: Workload) -> float:
    return LARGEST[_dtype(workload)]


def _eps(workload: Workload) -> float:
    eps: float = workload.init.get("eps", _EPS)
    return eps


def _total(inputs: Tensors) -> Any:
    return (inputs["x"] + inputs["residual"]).float()


def _normed(workload: Workload, inputs: Tensors, columns: int | None = None) -> Any:
    """Normalise by the mean square of the first few columns, or all."""
    total = _total(inputs)
    root = (total[:, :columns].square().mean(-1, keepdim=True) + _eps(workload)).rsqrt()
    return (total * root * inputs["weight"].float()).bfloat16().float()


def _scales(normed: Any, limit: float) -> Any:
    return _of_zero_one(largest(normed) / limit)


def _of_zero_one(scales: Any) -> Any:
    return scales.masked_fill(scales == 0, 1.0)


def _quantised_by(
    quantise: Quantise, normed: Callable[[Workload, Tensors], Any] = _normed
) -> Implementation:
    """Return a mutant that gives the right residual, and quantises these rows in this way."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        quotients, scales = quantise(workload, normed(workload, inputs))
        return {
            "quantized": as_codes(quotients, torch_dtype(_dtype(workload))),
            "scales": scales[:, None],
            "residual": inputs["x"] + inputs["residual"],
        }

    return mutant
