"""Judge `silu_and_mul`: float64 truth, cost, and wrong implementations."""

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
    Tensors,
    TensorSpec,
    Workload,
)
from atrex_core.packs import altering, by_rows


class Operator(ProductionProblem):
    """SiLU of one half of the last axis times the other half."""

    summary = "SiLU-gated product of the two halves of each token"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `x`."""
        return (TensorSpec(name="x", dtype=DType.BF16, shape=tuple(workload.axes["shape"])),)

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`, half as wide as `x`."""
        *leading, width = workload.axes["shape"]
        return (TensorSpec(name="out", dtype=DType.BF16, shape=(*leading, width // 2)),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Compute in float64, with no rounding in between."""

        def gated(x: Any) -> Any:
            gate, up = x.double().chunk(2, dim=-1)
            return gate * gate.sigmoid() * up

        return {"out": by_rows(gated, inputs["x"])}

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Add one, multiply by the gate, multiply by the other half; the rest is special units."""
        (out,) = self.outputs(workload)
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: 3 * prod(out.shape)})

    def published_flops(self, workload: Workload) -> float:
        """Four for SiLU and one for the product."""
        (out,) = self.outputs(workload)
        return 5 * prod(out.shape)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Use another activation, confuse the halves, or store badly."""
        import torch

        silu = torch.nn.functional.silu

        def with_activation(activation: Callable[[Any], Any]) -> Implementation:
            def mutant(_: Workload, inputs: Tensors) -> Tensors:
                gate, up = inputs["x"].float().chunk(2, dim=-1)
                return {"out": (activation(gate) * up).bfloat16()}

            return mutant

        def no_up(_: Workload, inputs: Tensors) -> Tensors:
            gate = inputs["x"].float().chunk(2, dim=-1)[0]
            return {"out": (gate * gate.sigmoid()).bfloat16()}

        def swapped(inputs: Tensors) -> Any:
            return inputs["x"].roll(inputs["x"].shape[-1] // 2, -1)

        def interleaved(inputs: Tensors) -> Any:
            return inputs["x"].unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)

        return {
            "no_activation": with_activation(lambda gate: gate),
            "relu": with_activation(lambda gate: gate.relu()),
            "gelu_like": with_activation(lambda gate: gate * (1.702 * gate).sigmoid()),
            "sigmoid_only": with_activation(lambda gate: gate.sigmoid()),
            "hard_swish": with_activation(lambda gate: gate * (gate / 6 + 0.5).clamp(0, 1)),
            "relu_beyond_five": with_activation(
                lambda gate: torch.where(gate.abs() > 5, gate.relu(), silu(gate))
            ),
            "nothing_below_minus_three": with_activation(
                lambda gate: silu(gate).masked_fill(gate < -3, 0)
            ),
            "clamped_to_448": with_activation(lambda gate: silu(gate).clamp(-448, 448)),
            "clamped_to_2_to_the_64": with_activation(lambda gate: silu(gate).clamp(max=2.0**64)),
            "half_of_the_gate": with_activation(lambda gate: gate / 2),
            "no_up": no_up,
            "swapped_halves": altering(self.honest, x=swapped),
            "interleaved_halves": altering(self.honest, x=interleaved),
            "truncated": storing(self, toward_zero),
        }
