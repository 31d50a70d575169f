"""Judge `layer_norm`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from atrex_problems_production._problem import ProductionProblem
from atrex_problems_production._stores import storing, toward_zero

from atrex_core import (
    ArithmeticPath,
    Cost,
    DType,
    Implementation,
    Inapplicable,
    Tensors,
    TensorSpec,
    Workload,
)
from atrex_core.packs import altering, by_rows, coarse

_EPS = 1e-5


class Operator(ProductionProblem):
    """Layer normalisation over the last axis."""

    summary = "layer normalisation of the last axis with weight and bias"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `x`, `weight` and `bias`."""
        shape = _shape(workload)
        dtype = DType(workload.axes.get("parameter_dtype", "bf16"))
        return (
            TensorSpec(name="x", dtype=DType.BF16, shape=shape),
            TensorSpec(name="weight", dtype=dtype, shape=shape[-1:]),
            TensorSpec(name="bias", dtype=dtype, shape=shape[-1:]),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        return (TensorSpec(name="out", dtype=DType.BF16, shape=_shape(workload)),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Normalise in float64."""
        weight, bias = inputs["weight"].double(), inputs["bias"].double()

        def normalise(x: Any) -> Any:
            wide = x.double()
            wide = wide - wide.mean(-1, keepdim=True)
            return wide * (wide.square().mean(-1, keepdim=True) + _EPS).rsqrt() * weight + bias

        x = inputs["x"]
        return {"out": normalise(x) if x.dim() == 1 else by_rows(normalise, x)}

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Sum, subtract, square, sum, scale, weigh and shift each element, and one a row more.

        A row's two means and epsilon take three; each of its sums takes one less than its length.
        """
        shape = _shape(workload)
        work = 7 * prod(shape) + prod(shape[:-1])
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: work})

    def published_flops(self, workload: Workload) -> float:
        """Seven an element."""
        return 7 * prod(_shape(workload))

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Confuse mean, variance, epsilon, weight, bias, or rows."""

        def by(
            centre: Callable[[Any], Any] = _mean,
            spread: Callable[[Any], Any] = lambda wide: (_variance(wide) + _EPS).sqrt(),
            middle: Callable[[Any], Any] = lambda normed: normed,
        ) -> Implementation:
            """Take centre and spread of each row otherwise, or coarsen what is in between."""

            def mutant(_: Workload, inputs: Tensors) -> Tensors:
                x = inputs["x"]
                wide = x.reshape(-1, x.shape[-1]).float()
                normed = middle((wide - centre(wide)) / spread(wide))
                out = normed * inputs["weight"].float() + inputs["bias"].float()
                return {"out": out.bfloat16().view_as(x)}

            return mutant

        def rolled(values: Any) -> Any:
            if len(values) == 1:
                raise Inapplicable("there is one row")
            return values.roll(1, 0)

        def half(wide: Any) -> Any:
            return wide[:, : (wide.shape[1] + 1) // 2]

        def all_but_last(wide: Any) -> Any:
            return wide[:, : max(1, wide.shape[1] - 1)]

        def narrow_mean(wide: Any) -> Any:
            return _summed_in_bf16(wide) / wide.shape[1]

        def narrow_spread(wide: Any) -> Any:
            """Take the mean of squares less the square of the mean, both summed in bf16."""
            second = _summed_in_bf16(wide.square()) / wide.shape[1]
            return ((second - narrow_mean(wide).square()).clamp(min=0) + _EPS).sqrt()

        def bias_before_weight(workload: Workload, inputs: Tensors) -> Tensors:
            ones = {"weight": inputs["weight"] * 0 + 1}
            shifted = self.honest(workload, {**inputs, **ones})["out"].float()
            return {"out": (shifted * inputs["weight"].float()).bfloat16()}

        return {
            "no_epsilon": by(spread=lambda wide: _variance(wide).sqrt()),
            "smaller_epsilon": by(spread=lambda wide: (_variance(wide) + _EPS / 10).sqrt()),
            "epsilon_outside_the_root": by(spread=lambda wide: _variance(wide).sqrt() + _EPS),
            "mean_not_removed": by(centre=lambda _: 0),
            "second_moment_for_variance": by(spread=lambda wide: (_square(wide) + _EPS).sqrt()),
            "not_scaled": by(spread=lambda _: 1),
            "variance_not_rooted": by(spread=lambda wide: _variance(wide) + _EPS),
            "sums_in_bf16": by(centre=narrow_mean, spread=narrow_spread),
            "mean_of_half_the_row": by(centre=lambda wide: _mean(half(wide))),
            "spread_of_half_the_row": by(spread=lambda wide: (_variance(half(wide)) + _EPS).sqrt()),
            "last_column_not_in_the_mean": by(centre=lambda wide: _mean(all_but_last(wide))),
            "last_column_not_in_the_spread": by(
                spread=lambda wide: (_variance(all_but_last(wide)) + _EPS).sqrt()
            ),
            "mean_of_next_row": by(centre=lambda wide: rolled(_mean(wide))),
            "spread_of_next_row": by(spread=lambda wide: rolled((_variance(wide) + _EPS).sqrt())),
            "coarse_middle": by(middle=lambda normed: coarse(normed, 3)),
            "bias_before_weight": bias_before_weight,
            "no_weight": altering(self.honest, weight=lambda i: i["weight"] * 0 + 1),
            "no_bias": altering(self.honest, bias=lambda i: i["bias"] * 0),
            "last_column_not_weighed": altering(self.honest, weight=_with_last("weight", 1)),
            "last_column_not_shifted": altering(self.honest, bias=_with_last("bias", 0)),
            "weight_plus_one": altering(self.honest, weight=lambda i: i["weight"] + 1),
            "shifted_bias": altering(self.honest, bias=lambda i: i["bias"].roll(1, -1)),
            "swapped_parameters": altering(
                self.honest, weight=lambda i: i["bias"], bias=lambda i: i["weight"]
            ),
            "truncated": storing(self, toward_zero),
        }


def _shape(workload: Workload) -> tuple[int, ...]:
    return tuple(workload.axes["shape"]) or (1,)


def _with_last(name: str, value: float) -> Callable[[Tensors], Any]:
    """Return what puts a number in the place of the last of some parameter."""

    def change(inputs: Tensors) -> Any:
        values = inputs[name].clone()
        values[-1] = value
        return values

    return change


def _mean(wide: Any) -> Any:
    return wide.mean(-1, keepdim=True)


def _square(wide: Any) -> Any:
    return wide.square().mean(-1, keepdim=True)


def _variance(wide: Any) -> Any:
    return _square(wide - _mean(wide))


def _summed_in_bf16(wide: Any) -> Any:
    """Sum each row one element after the other, rounding to bf16 every time."""
    total = wide[:, :1].bfloat16()
    for column in wide[:, 1:].bfloat16().split(1, dim=1):
        total = total + column
    return total.float()
