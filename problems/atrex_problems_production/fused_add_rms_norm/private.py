"""Judge `fused_add_rms_norm`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atrex_problems_production._problem import ProductionProblem
from atrex_problems_production._stores import MANY_ROWS, storing, toward_zero

from atrex_core import (
    ArithmeticPath,
    Container,
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

        def default_epsilon(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.init["eps"] == _EPS:
                raise Inapplicable("it is the right one")
            return self.run_reference(workload, inputs)

        def not_normalised(_: Workload, inputs: Tensors) -> Tensors:
            total = inputs["x"] + inputs["residual"]
            return {"out": total * inputs["weight"], "residual": total}

        def old_residual(workload: Workload, inputs: Tensors) -> Tensors:
            out = self.honest(workload, inputs)["out"]
            return {"out": out, "residual": inputs["residual"].clone()}

        def normalised_residual(workload: Workload, inputs: Tensors) -> Tensors:
            out = self.honest(workload, inputs)["out"]
            return {"out": out, "residual": out.clone()}

        def by(
            columns: Callable[[int], int] = lambda hidden: hidden,
            centre: Callable[[Any], Any] = lambda _: 0,
        ) -> Implementation:
            """Take the mean square of the first few columns, or remove something from the sum."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                total = inputs["x"] + inputs["residual"]
                wide = total.float()
                wide = wide - centre(wide)
                seen = wide[:, : columns(wide.shape[1])]
                scale = (seen.square().mean(-1, keepdim=True) + workload.init["eps"]).rsqrt()
                out = (wide * scale * inputs["weight"].float()).bfloat16()
                return {"out": out, "residual": total}

            return mutant

        def truncated_residual(workload: Workload, inputs: Tensors) -> Tensors:
            if len(inputs["x"]) < MANY_ROWS:
                raise Inapplicable("there are few rows")
            out = self.honest(workload, inputs)["out"]
            total = inputs["x"].float() + inputs["residual"].float()
            return {"out": out, "residual": toward_zero(total, inputs["x"].dtype)}

        return {
            "no_epsilon": no_epsilon,
            "not_normalised": not_normalised,
            "old_residual": old_residual,
            "normalised_residual": normalised_residual,
            "default_epsilon": default_epsilon,
            "half_of_the_row": by(columns=lambda hidden: (hidden + 1) // 2),
            "last_column_not_summed": by(columns=lambda hidden: hidden - 1),
            "mean_removed": by(centre=lambda wide: wide.mean(-1, keepdim=True)),
            "last_column_not_weighed": altering(self.honest, weight=_but_the_last),
            "weight_plus_one": altering(self.honest, weight=lambda i: i["weight"] + 1),
            "no_residual": altering(self.honest, residual=lambda i: i["residual"] * 0),
            "no_x": altering(self.honest, x=lambda i: i["x"] * 0),
            "no_weight": altering(self.honest, weight=lambda i: i["weight"] * 0 + 1),
            "shifted_columns": altering(self.honest, residual=lambda i: i["residual"].roll(1, -1)),
            "truncated": storing(self, toward_zero),
            "truncated_residual": truncated_residual,
        }


def _sizes(workload: Workload) -> tuple[int, int]:
    return workload.axes["token_count"], workload.axes["hidden_size"]


def _rounded_sum(x: Any, residual: Any) -> Any:
    return (x.double() + residual.double()).bfloat16().double()


def _but_the_last(inputs: Tensors) -> Any:
    weight = inputs["weight"].clone()
    weight[-1] = 1
    return weight
