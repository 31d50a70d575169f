"""Judge `rms_norm`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atrex_problems_production._problem import ProductionProblem
from atrex_problems_production._stores import gained, storing, toward_zero

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
from atrex_core.packs import altering, by_rows

_EPS = 1e-6
"""What `Model` adds to the mean square unless told otherwise."""


class Operator(ProductionProblem):
    """RMS normalisation over the last axis."""

    summary = "root-mean-square normalisation of each token"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `x` and `weight`."""
        tokens, hidden = _sizes(workload)
        return (
            TensorSpec(name="x", dtype=DType.BF16, shape=(tokens, hidden)),
            TensorSpec(name="weight", dtype=DType.BF16, shape=(hidden,)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        return (TensorSpec(name="out", dtype=DType.BF16, shape=_sizes(workload)),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Normalise in float64."""
        weight, eps = inputs["weight"].double(), workload.init["eps"]

        def normalise(x: Any) -> Any:
            wide = x.double()
            return wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight

        return {"out": by_rows(normalise, inputs["x"])}

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Square, sum, scale, weigh each element; mean and epsilon for each row."""
        tokens, hidden = _sizes(workload)
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: 4 * tokens * hidden + 2 * tokens})

    def published_flops(self, workload: Workload) -> float:
        """Squares and square roots count nothing there."""
        tokens, hidden = _sizes(workload)
        return 3 * tokens * hidden + tokens

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Confuse the scale, the weight, or the columns."""

        def no_epsilon(workload: Workload, inputs: Tensors) -> Tensors:
            return self.run_reference(workload, inputs, eps=0.0)

        def default_epsilon(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.init["eps"] == _EPS:
                raise Inapplicable("it is the right one")
            return self.run_reference(workload, inputs)

        def identity(_: Workload, inputs: Tensors) -> Tensors:
            return {"out": inputs["x"].clone()}

        def not_normalised(_: Workload, inputs: Tensors) -> Tensors:
            return {"out": inputs["x"] * inputs["weight"]}

        def by(scale: Callable[[Any, float], Any]) -> Implementation:
            """Multiply each row by `scale` of itself in fp32 and of epsilon."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                x = inputs["x"].float()
                normed = x * scale(x, workload.init["eps"])
                return {"out": (normed * inputs["weight"].float()).bfloat16()}

            return mutant

        return {
            "no_epsilon": no_epsilon,
            "identity": identity,
            "not_normalised": not_normalised,
            "default_epsilon": default_epsilon,
            "epsilon_outside_the_root": by(lambda x, eps: 1 / (_mean(x).sqrt() + eps)),
            "epsilon_as_a_floor": by(lambda x, eps: _mean(x).clamp(min=eps).rsqrt()),
            "half_of_the_row": by(
                lambda x, eps: (_mean(x[:, : (x.shape[1] + 1) // 2]) + eps).rsqrt()
            ),
            "last_column_not_summed": by(lambda x, eps: (_mean(x[:, :-1]) + eps).rsqrt()),
            "last_column_not_weighed": altering(self.honest, weight=_but_the_last),
            "mean_removed": altering(
                self.honest, x=lambda i: i["x"] - i["x"].mean(-1, keepdim=True)
            ),
            "no_weight": altering(self.honest, weight=lambda i: i["weight"] * 0 + 1),
            "weight_plus_one": altering(self.honest, weight=lambda i: i["weight"] + 1),
            "shifted_columns": altering(self.honest, x=lambda i: i["x"].roll(1, -1)),
            "truncated": storing(self, toward_zero),
            "slightly_too_large": storing(self, gained(0.0015)),
        }


def _sizes(workload: Workload) -> tuple[int, int]:
    return workload.axes["token_count"], workload.axes["hidden_size"]


def _mean(x: Any) -> Any:
    return x.square().mean(-1, keepdim=True)


def _but_the_last(inputs: Tensors) -> Any:
    weight = inputs["weight"].clone()
    weight[-1] = 1
    return weight
