"""Judge `moe_sum_reduce`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atrex_problems_production._problem import ProductionProblem
from atrex_problems_production._stores import MANY_ROWS

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
from atrex_core.packs import by_rows, coarse

_SEEN = 2.0**-10
"""Relative error of a factor that shows beside the last rounding."""


class Operator(ProductionProblem):
    """Sum over the experts of each token."""

    summary = "scaled sum of the outputs of each token's experts"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `expert_outputs`."""
        return (TensorSpec(name="expert_outputs", dtype=DType.BF16, shape=_sizes(workload)),)

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        tokens, _, hidden = _sizes(workload)
        return (TensorSpec(name="out", dtype=DType.BF16, shape=(tokens, hidden)),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Sum in float64."""
        factor = _factor(workload)

        def summed(x: Any) -> Any:
            return x.double().sum(1) * factor

        return {"out": by_rows(summed, inputs["expert_outputs"])}

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count one addition fewer than slots, and a product where the factor is not one."""
        tokens, slots, hidden = _sizes(workload)
        operations = slots - 1 + (_factor(workload) != 1)
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: tokens * operations * hidden})

    def published_flops(self, workload: Workload) -> float:
        """One for each element read: the factor counts as the addition that the sum lacks."""
        tokens, slots, hidden = _sizes(workload)
        return tokens * slots * hidden

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Lose or repeat a slot, mix tokens, misuse the factor, or round on the way."""
        import torch

        def changed(change: Callable[[Any], Any], least_slots: int = 1) -> Implementation:
            """Change `expert_outputs`, where there are so many slots at least."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                if _sizes(workload)[1] < least_slots:
                    raise Inapplicable(f"there are fewer than {least_slots} slots")
                return self.honest(workload, {"expert_outputs": change(inputs["expert_outputs"])})

            return mutant

        def scaled(change: Callable[[float], float]) -> Implementation:
            """Use another factor than the one given."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                factor = _factor(workload)
                if change(factor) == factor:
                    raise Inapplicable(f"a factor of {factor:g} changes nothing here")
                return self.run_reference(workload, inputs, routed_scaling_factor=change(factor))

            return mutant

        def combined(combine: Callable[[Any], Any]) -> Implementation:
            """Combine fp32 slots otherwise than by a sum, where there are two at least."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                if _sizes(workload)[1] == 1:
                    raise Inapplicable("there is one slot")
                wide = inputs["expert_outputs"].float()
                return {"out": (combine(wide) * _factor(workload)).bfloat16()}

            return mutant

        def next_token(x: Any) -> Any:
            if len(x) == 1:
                raise Inapplicable("there is one token")
            return torch.cat([x[:, :-1], x[:, -1:].roll(1, 0)], dim=1)

        def without(slot: int) -> Callable[[Any], Any]:
            def change(x: Any) -> Any:
                rest = x.clone()
                rest[:, slot] = 0
                return rest

            return change

        def first_twice(x: Any) -> Any:
            return torch.cat([x[:, :1], x], dim=1)

        def other_layout(x: Any) -> Any:
            """Read [tokens, hidden, slots] where [tokens, slots, hidden] lies."""
            return x.reshape(x.shape[0], x.shape[2], x.shape[1]).transpose(1, 2)

        def summed_in_bf16(workload: Workload, inputs: Tensors) -> Tensors:
            x = inputs["expert_outputs"]
            if x.shape[1] < 3:
                raise Inapplicable("a sum of two is rounded once")
            total = x[:, 0]
            for slot in range(1, x.shape[1]):
                total = total + x[:, slot]
            return {"out": total * _factor(workload)}

        def sum_rounded_before_factor(workload: Workload, inputs: Tensors) -> Tensors:
            factor, x = _factor(workload), inputs["expert_outputs"]
            if math.frexp(factor)[0] == 0.5:
                raise Inapplicable("a power of two rounds nothing")
            if _sizes(workload)[0] < MANY_ROWS or _sizes(workload)[1] == 1:
                raise Inapplicable("there are few rows, or there is one slot")
            return {"out": (x.float().sum(1).bfloat16().float() * factor).bfloat16()}

        def factor_in_bf16(workload: Workload, inputs: Tensors) -> Tensors:
            factor = _factor(workload)
            if abs(_in_bf16(factor) / factor - 1) < _SEEN or _sizes(workload)[0] < MANY_ROWS:
                raise Inapplicable("it is as good as the right one, or there are few rows")
            return self.run_reference(workload, inputs, routed_scaling_factor=_in_bf16(factor))

        def truncated(workload: Workload, inputs: Tensors) -> Tensors:
            factor = _factor(workload)
            if _in_bf16(factor) != factor or _sizes(workload)[1] == 1:
                raise Inapplicable("no sum is known to fall just short of a bf16 number")
            total = inputs["expert_outputs"].float().sum(1) * factor
            return {"out": (total.view(torch.int32) & -(1 << 16)).view(torch.float32).bfloat16()}

        return {
            "truncated": truncated,
            "summed_in_bf16": summed_in_bf16,
            "sum_rounded_before_factor": sum_rounded_before_factor,
            "factor_in_bf16": factor_in_bf16,
            "without_last_slot": changed(without(-1)),
            "without_first_slot": changed(without(0)),
            "first_slot_only": changed(lambda x: x[:, :1], least_slots=2),
            "first_slot_twice": changed(first_twice),
            "last_slot_of_next_token": changed(next_token),
            "other_layout": changed(other_layout, least_slots=2),
            "shifted_columns": changed(lambda x: x.roll(1, -1)),
            "coarse_terms": changed(lambda x: coarse(x, 3)),
            "mean": combined(lambda wide: wide.mean(1)),
            "largest": combined(lambda wide: wide.amax(1)),
            "magnitudes": combined(lambda wide: wide.abs().sum(1)),
            "no_factor": scaled(lambda _: 1.0),
            "factor_twice": scaled(lambda factor: factor * factor),
            "factor_divides": scaled(lambda factor: 1 / factor),
        }


def _in_bf16(factor: float) -> float:
    import torch

    return float(torch.tensor(factor).bfloat16())


def _factor(workload: Workload) -> float:
    return float(workload.init["routed_scaling_factor"])


def _sizes(workload: Workload) -> tuple[int, int, int]:
    axes = workload.axes
    return axes["token_count"], axes["top_k"], axes["hidden_size"]
