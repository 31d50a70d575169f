"""Judge `fused_moe`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from atrex_problems_production._moe import (
    Expert,
    Sizes,
    first_product_in_bf16,
    gated,
    mix,
    second_product_in_bf16,
    swiglu,
    without_last,
    wrong_activations,
    wrong_routes,
)
from atrex_problems_production._problem import ProductionProblem
from atrex_problems_production._stores import MANY_ROWS

from atrex_core import (
    ArithmeticPath,
    Cost,
    DType,
    Implementation,
    Inapplicable,
    RowBlocks,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
)
from atrex_core.packs import altering, coarse

_BLOCK = 1 << 26
"""Elements of the truth that are held at once."""

_DRAWN = {
    "0": (8, 246),
    "1": (8, 524),
    "2": (8, 1264),
    "3": (8, 1924),
    "4": (8, 3724),
    "5": (8, 7871),
    "6": (8, 14389),
    "7": (8, 29596),
    "8": (8, 8),
    "9": (128, 18651),
    "10": (128, 32637),
    "11": (128, 63793),
    "12": (128, 123047),
    "13": (128, 199534),
    "14": (128, 357673),
    "15": (128, 4054),
    "16": (128, 7947),
    "17": (128, 15916),
    "18": (128, 30658),
    "19": (128, 63732),
    "20": (8, 7699),
    "21": (8, 15324),
    "22": (8, 28841),
}
"""Experts hit, and distinct pairs of token and expert, in the draw that was published.

Experts were drawn with repetition there, and its work was counted on one draw. For each workload
these are the only integers within range for which `published_flops` gives the published figure.
"""


class Operator(ProductionProblem):
    """Gated experts, some for each token, in bf16."""

    summary = "routed SwiGLU experts with bf16 weights"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `hidden_states`, both matrices of all experts, and the routes."""
        s = Sizes.of(workload)
        first = (s.experts, 2 * s.intermediate, s.hidden)
        second = (s.experts, s.hidden, s.intermediate)
        return (
            TensorSpec(name="hidden_states", dtype=DType.BF16, shape=(s.tokens, s.hidden)),
            TensorSpec(name="w1", dtype=DType.BF16, shape=first),
            TensorSpec(name="w2", dtype=DType.BF16, shape=second),
            TensorSpec(name="topk_weights", dtype=DType.FP32, shape=(s.tokens, s.top_k)),
            TensorSpec(name="topk_ids", dtype=DType.INT32, shape=(s.tokens, s.top_k)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        s = Sizes.of(workload)
        return (TensorSpec(name="out", dtype=DType.FP32, shape=(s.tokens, s.hidden)),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Compute in float64, expert by expert, for some tokens at a time."""
        sizes = Sizes.of(workload)
        ids, weights = inputs["topk_ids"], inputs["topk_weights"]
        w1, w2 = inputs["w1"], inputs["w2"]

        def compute(start: int, stop: int) -> Any:
            rows = inputs["hidden_states"][start:stop]
            return mix(
                ids[start:stop],
                weights[start:stop],
                sizes,
                rows=lambda tokens: rows[tokens].double(),
                matrices=lambda number: (w1[number].double(), w2[number].double()),
            )

        step = max(1, _BLOCK // sizes.hidden)
        shape = (sizes.tokens, sizes.hidden)
        return {"out": RowBlocks(shape=shape, step=step, compute=compute)}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Judge the fp32 result by the epsilon of bf16, for five roundings to it on the way.

        Beside those that the reference names, SiLU by itself may be rounded before `up` is
        multiplied, as where the activation is a kernel of its own. Results are then off by 0.3 to
        0.7 % (relative L2; most with few routes and channels), single elements of large outputs
        by up to six times that; with activations in fp8, by 1.3 to 5 %.
        """
        return Tolerance(dtype=DType.BF16, relative_l2=5, row_l2=8, element=5)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count the routes and the experts that were drawn; both weights and rows once."""
        s = Sizes.of(workload)
        occupied, routes = s.occupied, s.tokens * s.top_k
        if inputs is not None:
            in_order = inputs["topk_ids"].sort(dim=-1).values
            repeated = int((in_order[:, 1:] == in_order[:, :-1]).sum())
            occupied, routes = len(in_order.unique()), routes - repeated
        matrices = 3 * s.hidden * s.intermediate * DType.BF16.item_bytes
        (out,) = self.outputs(workload)
        return Cost(
            flops={
                ArithmeticPath.BF16_MATRIX: routes * s.matrix_flops,
                ArithmeticPath.FP32_VECTOR: s.vector_flops(routes),
            },
            read_bytes=self._token_bytes(workload) + occupied * matrices,
            write_bytes=out.nbytes,
        )

    def published_flops(self, workload: Workload) -> float:
        """Count distinct pairs, and merging the weights of repeated experts for each one hit."""
        s = Sizes.of(workload)
        hit, pairs = _DRAWN[workload.id]
        work = pairs * (s.matrix_flops + 5 * s.intermediate + s.hidden)
        return work + hit * (2 * s.tokens * s.top_k - s.tokens)

    def published_cost(self, workload: Workload) -> Cost:
        """Read the experts that distinct routes are expected to hit, not those that were hit."""
        s = Sizes.of(workload)
        matrices = 3 * s.hidden * s.intermediate * DType.BF16.item_bytes
        (out,) = self.outputs(workload)
        return Cost(
            flops=self.published_bucket(workload),
            read_bytes=self._token_bytes(workload) + s.published_occupied * matrices,
            write_bytes=out.nbytes,
        )

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Confuse experts, routes and weights, or what happens in and between the two products."""
        import torch

        def with_expert(expert: Expert) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                return _in_fp32(workload, inputs, expert)

            return mutant

        def fp8_activations(gate: Any, up: Any) -> Any:
            return coarse(swiglu(gate, up), 4)

        def weighing_first(rows: Any, weights: Any, first: Any, second: Any) -> Any:
            return gated(rows * weights, 1.0, first, second)

        def last_channel_ignored(gate: Any, up: Any) -> Any:
            return without_last(swiglu(gate, up), 1)

        def repeated_expert_once(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.axes["top_k"] == 1:
                raise Inapplicable("a token has one route only")
            ids = inputs["topk_ids"]
            again = (ids[:, :, None] == ids[:, None, :]).tril(-1).any(-1)
            weights = inputs["topk_weights"].masked_fill(again, 0.0)
            return self.honest(workload, {**inputs, "topk_weights": weights})

        def routes_added_in_bf16(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.axes["top_k"] < 3:
                raise Inapplicable("a sum of two is rounded once, as a route may be")
            out = _in_fp32(workload, inputs, added_in=torch.bfloat16)["out"]
            return {"out": out.float()}

        def weights_in_bf16(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.axes["token_count"] < MANY_ROWS:
                raise Inapplicable("there are few rows")
            weights = inputs["topk_weights"].bfloat16().float()
            return self.honest(workload, {**inputs, "topk_weights": weights})

        activations = {
            **wrong_activations(),
            "fp8_activations": fp8_activations,
            "last_channel_ignored": last_channel_ignored,
        }
        return {
            **{n: with_expert(partial(gated, activate=a)) for n, a in activations.items()},
            **wrong_routes(self.honest),
            "weights_applied_first": with_expert(weighing_first),
            "weights_in_bf16": weights_in_bf16,
            "repeated_expert_counted_once": repeated_expert_once,
            "routes_added_in_bf16": routes_added_in_bf16,
            "first_product_in_bf16": with_expert(first_product_in_bf16),
            "second_product_in_bf16": with_expert(second_product_in_bf16),
            "last_column_ignored": altering(
                self.honest, hidden_states=lambda i: without_last(i["hidden_states"], 1)
            ),
            "shifted_columns": altering(
                self.honest, hidden_states=lambda i: i["hidden_states"].roll(1, -1)
            ),
        }

    def _token_bytes(self, workload: Workload) -> int:
        """Return what every implementation reads beside the experts."""
        return sum(spec.nbytes for spec in self.inputs(workload) if spec.name not in ("w1", "w2"))


def _in_fp32(
    workload: Workload, inputs: Tensors, expert: Expert = gated, added_in: Any = None
) -> Tensors:
    hidden, w1, w2 = inputs["hidden_states"], inputs["w1"], inputs["w2"]
    out = mix(
        inputs["topk_ids"],
        inputs["topk_weights"],
        Sizes.of(workload),
        rows=lambda tokens: hidden[tokens].float(),
        matrices=lambda number: (w1[number].float(), w2[number].float()),
        expert=expert,
        added_in=added_in,
    )
    return {"out": out}
