"""Judge `gated_rms_norm`: float64 truth, cost, and wrong implementations."""

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
"""What `Model` adds to the mean square unless told otherwise."""


class Operator(ProductionProblem):
    """RMS normalisation over the last axis, gated before or after."""

    summary = "root-mean-square normalisation of each row with a SiLU or sigmoid gate"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `x`, `weight` and `z`."""
        rows, hidden = _sizes(workload)
        return (
            TensorSpec(name="x", dtype=DType.BF16, shape=(rows, hidden)),
            TensorSpec(name="weight", dtype=DType.BF16, shape=(hidden,)),
            TensorSpec(name="z", dtype=DType.BF16, shape=(rows, hidden)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        return (TensorSpec(name="out", dtype=DType.BF16, shape=_sizes(workload)),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Normalise and gate in float64."""
        weight, eps = inputs["weight"].double(), workload.init["eps"]
        gate_of, comes_first = _gate_of(workload), workload.init["norm_before_gate"]

        def gated(x: Any, z: Any) -> Any:
            wide, gate = x.double(), gate_of(z.double())
            if not comes_first:
                wide = wide * gate
            normed = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt() * weight
            return normed * gate if comes_first else normed

        return {"out": by_rows(gated, inputs["x"], inputs["z"])}

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count four an element and one a row to normalise; add one and multiply to gate.

        SiLU multiplies once more than sigmoid does. Exponential and division are special units'.
        """
        rows, hidden = _sizes(workload)
        gate = 2 if workload.init["activation"] == "sigmoid" else 3
        work = rows * ((4 + gate) * hidden + 1)
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: work})

    def published_flops(self, workload: Workload) -> float:
        """Four for SiLU, four for the products and the mean; squares count nothing there."""
        rows, hidden = _sizes(workload)
        return rows * (8 * hidden + 1)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Confuse the gate, its place, the scale, the weight, or rows."""

        def with_init(**changes: Callable[[Any], Any]) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                changed = {name: change(workload.init[name]) for name, change in changes.items()}
                return self.run_reference(workload, inputs, **{**workload.init, **changed})

            return mutant

        def by(
            *,
            gate: Callable[[Any], Any] | None = None,
            seen: Callable[[Any], Any] = lambda wide: wide,
            middle: Callable[[Any], Any] = lambda normed: normed,
        ) -> Implementation:
            """Compute with another gate, from a part of the row, or with a coarse middle."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                wide, z = inputs["x"].float(), inputs["z"].float()
                factor = (gate or _gate_of(workload))(z)
                comes_first = workload.init["norm_before_gate"]
                if not comes_first:
                    wide = wide * factor
                mean = seen(wide).square().mean(-1, keepdim=True)
                normed = middle(wide * (mean + workload.init["eps"]).rsqrt())
                out = normed * inputs["weight"].float() * (factor if comes_first else 1)
                return {"out": out.bfloat16()}

            return mutant

        def next_row(name: str) -> Callable[[Tensors], Any]:
            def rolled(inputs: Tensors) -> Any:
                if len(inputs[name]) == 1:
                    raise Inapplicable("there is one row")
                return inputs[name].roll(1, 0)

            return rolled

        def default_epsilon(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.init["eps"] == _EPS:
                raise Inapplicable("it is the right one")
            return self.run_reference(workload, inputs, **{**workload.init, "eps": _EPS})

        def not_weighed_last(inputs: Tensors) -> Any:
            weight = inputs["weight"].clone()
            weight[-1] = 1
            return weight

        def not_normalised(workload: Workload, inputs: Tensors) -> Tensors:
            gate = _gate_of(workload)(inputs["z"].float())
            return {"out": (inputs["x"].float() * inputs["weight"].float() * gate).bfloat16()}

        return {
            "other_order": with_init(norm_before_gate=lambda first: not first),
            "other_activation": with_init(
                activation=lambda name: "silu" if name == "sigmoid" else "sigmoid"
            ),
            "no_epsilon": with_init(eps=lambda _: 0.0),
            "default_epsilon": default_epsilon,
            "no_gate": by(gate=lambda z: z * 0 + 1),
            "gate_not_activated": by(gate=lambda z: z),
            "gate_like_gelu": by(gate=lambda z: z * (1.702 * z).sigmoid()),
            "gate_of_x": altering(self.honest, z=lambda i: i["x"]),
            "gate_of_next_row": altering(self.honest, z=next_row("z")),
            "gate_of_next_column": altering(self.honest, z=lambda i: i["z"].roll(1, -1)),
            "coarse_gate": altering(self.honest, z=lambda i: coarse(i["z"], 3)),
            "coarse_middle": by(middle=lambda normed: coarse(normed, 3)),
            "half_of_the_row": by(seen=lambda wide: wide[:, : (wide.shape[1] + 1) // 2]),
            "last_column_not_summed": by(seen=lambda wide: wide[:, :-1]),
            "last_column_not_weighed": altering(self.honest, weight=not_weighed_last),
            "mean_removed": altering(
                self.honest, x=lambda i: i["x"] - i["x"].mean(-1, keepdim=True)
            ),
            "not_normalised": not_normalised,
            "no_weight": altering(self.honest, weight=lambda i: i["weight"] * 0 + 1),
            "weight_plus_one": altering(self.honest, weight=lambda i: i["weight"] + 1),
            "truncated": storing(self, toward_zero),
        }


def _gate_of(workload: Workload) -> Callable[[Any], Any]:
    if workload.init["activation"] == "sigmoid":
        return lambda z: z.sigmoid()
    return lambda z: z * z.sigmoid()


def _sizes(workload: Workload) -> tuple[int, int]:
    return workload.axes["rows"], workload.axes["hidden_size"]
