"""Judge `linear_sigmoid_mul`: float64 truth, cost, and wrong implementations."""

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
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
)
from atrex_core.packs import altering, by_rows


class Operator(ProductionProblem):
    """Sigmoid of a linear layer times another tensor."""

    summary = "linear layer, sigmoid, and an element-wise product"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `hidden_states`, `weight`, `bias` and `post_mul_mat`."""
        tokens, hidden, out = _sizes(workload)
        return (
            TensorSpec(name="hidden_states", dtype=DType.BF16, shape=(tokens, hidden)),
            TensorSpec(name="weight", dtype=DType.BF16, shape=(out, hidden)),
            TensorSpec(name="bias", dtype=DType.BF16, shape=(out,)),
            TensorSpec(name="post_mul_mat", dtype=DType.BF16, shape=(tokens, out)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        tokens, _, out = _sizes(workload)
        return (TensorSpec(name="out", dtype=DType.BF16, shape=(tokens, out)),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Compute in float64, with no rounding in between."""
        weight, bias = inputs["weight"].double().T, inputs["bias"].double()

        def gated(hidden: Any, post: Any) -> Any:
            return (hidden.double() @ weight + bias).sigmoid() * post.double()

        return {"out": by_rows(gated, inputs["hidden_states"], inputs["post_mul_mat"])}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Leave room for z in bf16: near -8 its last bit moves the gate by 3 %, however large m."""
        return Tolerance(dtype=output.dtype, element=4)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count the product on the matrix pipe; bias may enter there as the initial sum."""
        tokens, hidden, out = _sizes(workload)
        return self.count(
            workload,
            {
                ArithmeticPath.BF16_MATRIX: 2 * tokens * hidden * out,
                ArithmeticPath.FP32_VECTOR: 2 * tokens * out,
            },
        )

    def published_flops(self, workload: Workload) -> float:
        """Bias and sigmoid count nothing there."""
        tokens, hidden, out = _sizes(workload)
        return 2 * tokens * hidden * out + tokens * out

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Leave out the product or a part of it, the bias, the sigmoid, or the last factor."""

        def half(_: Workload, inputs: Tensors) -> Tensors:
            return {"out": inputs["post_mul_mat"] / 2}

        def gate_only(workload: Workload, inputs: Tensors) -> Tensors:
            ones = inputs["post_mul_mat"] * 0 + 1
            return self.honest(workload, {**inputs, "post_mul_mat": ones})

        def with_gate(gate: Any) -> Implementation:
            def mutant(_: Workload, inputs: Tensors) -> Tensors:
                z = inputs["hidden_states"].float() @ inputs["weight"].float().T
                z = z + inputs["bias"].float()
                return {"out": (gate(z) * inputs["post_mul_mat"].float()).bfloat16()}

            return mutant

        def added_in_bf16(_: Workload, inputs: Tensors) -> Tensors:
            """Round what is summed so far now and again."""
            hidden, weight = inputs["hidden_states"].float(), inputs["weight"].float()
            step, z = max(16, hidden.shape[1] // 32), inputs["bias"].float()
            for part, against in zip(hidden.split(step, 1), weight.split(step, 1), strict=True):
                z = (z + part @ against.T).bfloat16().float()
            return {"out": (z.sigmoid() * inputs["post_mul_mat"].float()).bfloat16()}

        def without_last(columns: Callable[[int], int]) -> Implementation:
            def short(inputs: Tensors) -> Any:
                hidden = inputs["hidden_states"].clone()
                hidden[:, -columns(hidden.shape[1]) :] = 0
                return hidden

            return altering(self.honest, hidden_states=short)

        return {
            "half": half,
            "gate_only": gate_only,
            "no_sigmoid": with_gate(lambda z: z),
            "hard_sigmoid": with_gate(lambda z: (z / 6 + 0.5).clamp(0, 1)),
            "first_order_sigmoid": with_gate(lambda z: 0.5 + z / 4),
            "no_product": altering(self.honest, weight=lambda i: i["weight"] * 0),
            "no_bias": altering(self.honest, bias=lambda i: i["bias"] * 0),
            "clipped_sigmoid": with_gate(
                lambda z: z.sigmoid().masked_fill(z < -4, 0).masked_fill(z > 4, 1)
            ),
            "nothing_below_minus_24": with_gate(lambda z: z.sigmoid().masked_fill(z < -24, 0)),
            "short_sum": without_last(lambda width: max(1, width // 16)),
            "last_column_ignored": without_last(lambda _: 1),
            "added_in_bf16": added_in_bf16,
            "truncated": storing(self, toward_zero),
            "shifted_outputs": altering(self.honest, weight=lambda i: i["weight"].roll(1, 0)),
        }


def _sizes(workload: Workload) -> tuple[int, int, int]:
    axes = workload.axes
    return axes["token_count"], axes["hidden_size"], axes["out_features"]
