"""Judge `fused_add_rms_norm`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atrex_problems_production._problem import ProductionProblem

from atrex_core import (
    ArithmeticPath,
    Container,
    Cost,
    DType,
    Implementation,
    Tensors,
    TensorSpec,
    Workload,
)
from atrex_core.packs import altering, by_rows


class Operator(ProductionProblem):
    """Residual addition, then RMS normalisation of the rounded sum."""

    summary = "residual addition followed by RMS normalisation"
    container = Container.DICT

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `x`, `residual` and `weight`."""
        tokens, hidden = _sizes(workload)
        return (
            TensorSpec(name="x", dtype=DType.BF16, shape=(tokens, hidden)),
            TensorSpec(name="residual", dtype=DType.BF16, shape=(tokens, hidden)),
            TensorSpec(name="weight", dtype=DType.BF16, shape=(hidden,)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out` and the new `residual`."""
        shape = _sizes(workload)
        return (
            TensorSpec(name="out", dtype=DType.BF16, shape=shape),
            TensorSpec(name="residual", dtype=DType.BF16, shape=shape),
        )

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Round the sum to bf16 as stated; the rest is float64."""
        weight, eps = inputs["weight"].double(), workload.init["eps"]

        def normalise(x: Any, residual: Any) -> Any:
            total = _rounded_sum(x, residual)
            return total * (total.square().mean(-1, keepdim=True) + eps).rsqrt() * weight

        both = inputs["x"], inputs["residual"]
        return {"out": by_rows(normalise, *both), "residual": by_rows(_rounded_sum, *both)}

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Add, square, sum, scale, weigh each element; mean and epsilon for each row."""
        tokens, hidden = _sizes(workload)
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: 5 * tokens * hidden + 2 * tokens})

    def published_flops(self, workload: Workload) -> float:
        """Squares and square roots count nothing there."""
        tokens, hidden = _sizes(workload)
        return 4 * tokens * hidden + tokens

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Leave out a term, or hand back the wrong residual."""

        def no_epsilon(workload: Workload, inputs: Tensors) -> Tensors:
            return self.run_reference(workload, inputs, eps=0.0)

        def not_normalised(_: Workload, inputs: Tensors) -> Tensors:
            total = inputs["x"] + inputs["residual"]
            return {"out": total * inputs["weight"], "residual": total}

        def old_residual(workload: Workload, inputs: Tensors) -> Tensors:
            out = self.honest(workload, inputs)["out"]
            return {"out": out, "residual": inputs["residual"].clone()}

        def half_of_the_row(workload: Workload, inputs: Tensors) -> Tensors:
            total = inputs["x"] + inputs["residual"]
            wide = total.float()
            seen = wide[:, : (wide.shape[1] + 1) // 2]
            scale = (seen.square().mean(-1, keepdim=True) + workload.init["eps"]).rsqrt()
            out = (wide * scale * inputs["weight"].float()).bfloat16()
            return {"out": out, "residual": total}

        return {
            "no_epsilon": no_epsilon,
            "not_normalised": not_normalised,
            "old_residual": old_residual,
            "half_of_the_row": half_of_the_row,
            "no_residual": altering(self.honest, residual=lambda i: i["residual"] * 0),
            "no_x": altering(self.honest, x=lambda i: i["x"] * 0),
            "no_weight": altering(self.honest, weight=lambda i: i["weight"] * 0 + 1),
            "shifted_columns": altering(self.honest, residual=lambda i: i["residual"].roll(1, -1)),
        }


def _sizes(workload: Workload) -> tuple[int, int]:
    return workload.axes["token_count"], workload.axes["hidden_size"]


def _rounded_sum(x: Any, residual: Any) -> Any:
    return (x.double() + residual.double()).bfloat16().double()
