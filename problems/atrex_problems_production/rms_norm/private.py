"""Judge `rms_norm`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atrex_problems_production._problem import ProductionProblem

from atrex_core import (
    ArithmeticPath,
    Cost,
    DType,
    Implementation,
    Tensors,
    TensorSpec,
    Workload,
)
from atrex_core.packs import altering, by_rows


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

        def identity(_: Workload, inputs: Tensors) -> Tensors:
            return {"out": inputs["x"].clone()}

        def not_normalised(_: Workload, inputs: Tensors) -> Tensors:
            return {"out": inputs["x"] * inputs["weight"]}

        def half_of_the_row(workload: Workload, inputs: Tensors) -> Tensors:
            x = inputs["x"].float()
            seen = x[:, : (x.shape[1] + 1) // 2]
            scale = (seen.square().mean(-1, keepdim=True) + workload.init["eps"]).rsqrt()
            return {"out": (x * scale * inputs["weight"].float()).bfloat16()}

        return {
            "no_epsilon": no_epsilon,
            "identity": identity,
            "not_normalised": not_normalised,
            "half_of_the_row": half_of_the_row,
            "mean_removed": altering(
                self.honest, x=lambda i: i["x"] - i["x"].mean(-1, keepdim=True)
            ),
            "no_weight": altering(self.honest, weight=lambda i: i["weight"] * 0 + 1),
            "weight_plus_one": altering(self.honest, weight=lambda i: i["weight"] + 1),
            "shifted_columns": altering(self.honest, x=lambda i: i["x"].roll(1, -1)),
        }


def _sizes(workload: Workload) -> tuple[int, int]:
    return workload.axes["token_count"], workload.axes["hidden_size"]
