"""Judge `l2_norm`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

_EPS = 1e-6
"""What `Model` takes where a workload's `init` does not say."""

_DTYPES = {"bfloat16": DType.BF16, "float16": DType.FP16}


class Operator(ProductionProblem):
    """L2 normalisation over the last axis."""

    summary = "Euclidean normalisation of each row"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `x`."""
        return (TensorSpec(name="x", dtype=_dtype(workload), shape=_sizes(workload)),)

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        return (TensorSpec(name="out", dtype=_dtype(workload), shape=_sizes(workload)),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Normalise in float64."""
        eps = _eps(workload)

        def normalise(x: Any) -> Any:
            wide = x.double()
            return wide * (wide.square().sum(-1, keepdim=True) + eps).rsqrt()

        return {"out": by_rows(normalise, inputs["x"])}

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Square, sum and scale each element; the one sum fewer in a row is epsilon's."""
        tokens, hidden = _sizes(workload)
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: 3 * tokens * hidden})

    def published_flops(self, workload: Workload) -> float:
        """Counts three an element too, though not the same three: two products and a sum."""
        tokens, hidden = _sizes(workload)
        return 3 * tokens * hidden

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Confuse the sum, epsilon, or rows."""

        def by(scale: Callable[[Any, float], Any]) -> Implementation:
            """Multiply each row by `scale` of itself in fp32 and of epsilon."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                wide = inputs["x"].float()
                return {"out": (wide * scale(wide, _eps(workload))).to(inputs["x"].dtype)}

            return mutant

        def total(wide: Any) -> Any:
            return wide.square().sum(-1, keepdim=True)

        def of_next_row(wide: Any, eps: float) -> Any:
            if len(wide) == 1:
                raise Inapplicable("there is one row")
            return (total(wide) + eps).rsqrt().roll(1, 0)

        def of_all_rows(wide: Any, eps: float) -> Any:
            if len(wide) == 1:
                raise Inapplicable("there is one row")
            return (wide.square().sum() + eps).rsqrt()

        def half_of_the_row(wide: Any, eps: float) -> Any:
            return (total(wide[:, : (wide.shape[1] + 1) // 2]) + eps).rsqrt()

        def largest(wide: Any, eps: float) -> Any:
            return (wide.abs().amax(-1, keepdim=True) + eps).reciprocal()

        def default_epsilon(workload: Workload, inputs: Tensors) -> Tensors:
            if _eps(workload) == _EPS:
                raise Inapplicable("it is the right one")
            return self.run_reference(workload, inputs, hidden_size=inputs["x"].shape[1])

        def identity(_: Workload, inputs: Tensors) -> Tensors:
            return {"out": inputs["x"].clone()}

        return {
            "identity": identity,
            "default_epsilon": default_epsilon,
            "no_epsilon": by(lambda wide, _: total(wide).rsqrt()),
            "epsilon_outside_the_root": by(lambda wide, eps: 1 / (total(wide).sqrt() + eps)),
            "epsilon_as_a_floor": by(lambda wide, eps: total(wide).sqrt().clamp(min=eps) ** -1),
            "epsilon_on_the_mean": by(
                lambda wide, eps: (total(wide) + eps * wide.shape[-1]).rsqrt()
            ),
            "mean_for_sum": by(lambda wide, eps: (total(wide) / wide.shape[-1] + eps).rsqrt()),
            "not_rooted": by(lambda wide, eps: (total(wide) + eps).reciprocal()),
            "sum_of_magnitudes": by(lambda wide, eps: 1 / (wide.abs().sum(-1, keepdim=True) + eps)),
            "largest_magnitude": by(largest),
            "half_of_the_row": by(half_of_the_row),
            "last_column_not_summed": by(lambda wide, eps: (total(wide[:, :-1]) + eps).rsqrt()),
            "scale_of_next_row": by(of_next_row),
            "one_scale_for_all_rows": by(of_all_rows),
            "coarse_input": altering(self.honest, x=lambda i: coarse(i["x"], 3)),
            "unsigned": by(lambda wide, eps: wide.sign() * (total(wide) + eps).rsqrt()),
            "mean_removed": altering(
                self.honest, x=lambda i: i["x"] - i["x"].mean(-1, keepdim=True)
            ),
            "shifted_columns": altering(self.honest, x=lambda i: i["x"].roll(1, -1)),
            "truncated": storing(self, toward_zero),
        }


def _dtype(workload: Workload) -> DType:
    return _DTYPES[workload.axes.get("dtype", "bfloat16")]


def _eps(workload: Workload) -> float:
    return float(workload.init.get("eps", _EPS))


def _sizes(workload: Workload) -> tuple[int, int]:
    return workload.axes["num_tokens"], workload.axes["hidden_size"]
