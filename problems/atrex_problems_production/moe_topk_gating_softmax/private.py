"""Judge `moe_topk_gating_softmax`: float64 truth, ties, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    Tolerance,
    Workload,
)
from atrex_core.packs import altering, by_rows

_TIE = 2.0**-21
"""Relative difference of two probabilities that fp32 need not tell apart."""

_VANISHED = 2.0**-126
"""What flushing to zero may turn into a tie."""


class Operator(ProductionProblem):
    """Softmax over experts, then the best few."""

    summary = "softmax router: the top-k experts of each token and their probabilities"
    container = Container.DICT

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `gating_output`."""
        tokens, experts, _ = _sizes(workload)
        return (TensorSpec(name="gating_output", dtype=DType.FP32, shape=(tokens, experts)),)

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `topk_weights` and `topk_ids`."""
        tokens, _, top_k = _sizes(workload)
        return (
            TensorSpec(name="topk_weights", dtype=DType.FP32, shape=(tokens, top_k)),
            TensorSpec(name="topk_ids", dtype=DType.INT32, shape=(tokens, top_k)),
        )

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Compute in float64; equal experts in order of their index."""
        top_k = workload.init["top_k"]

        def best(logits: Any) -> Any:
            return _probabilities(workload, logits).sort(dim=-1, descending=True, stable=True)

        logits = inputs["gating_output"]
        return {
            "topk_weights": by_rows(lambda rows: best(rows).values[:, :top_k], logits),
            "topk_ids": by_rows(lambda rows: best(rows).indices[:, :top_k], logits).dense().int(),
        }

    def canonical(
        self, workload: Workload, inputs: Tensors, outputs: Tensors, expected: Tensors
    ) -> Tensors:
        """Accept another order, or another choice, among experts that fp32 finds equal.

        A row of ids that names distinct experts, each as probable as the one expected in its
        place, becomes the expected row; any other row stays as it is, and wrong.
        """
        import torch

        logits = inputs["gating_output"]
        wanted, ids = expected["topk_ids"], outputs["topk_ids"]
        if ids.shape != wanted.shape or ids.dtype != wanted.dtype:
            return outputs

        def accepted(logits: Any, ids: Any, wanted: Any) -> Any:
            p = _probabilities(workload, logits)
            experts = p.shape[-1]
            inside = ((ids >= 0) & (ids < experts)).all(-1)
            safe = ids.long().clamp(0, experts - 1)
            in_order = safe.sort(dim=-1).values
            distinct = (in_order[:, 1:] != in_order[:, :-1]).all(-1)
            named, best = p.gather(1, safe), p.gather(1, wanted.long())
            # Implementations may scale the logits before they subtract the largest one.
            reach = 1 + logits.double().abs().amax(-1, keepdim=True)
            equal = (named - best).abs() <= _TIE * reach * best + _VANISHED
            return inside & distinct & equal.all(-1)

        rows = by_rows(accepted, logits, ids, wanted).dense() > 0
        return {**outputs, "topk_ids": torch.where(rows[:, None], wanted, ids)}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Leave room for fast exponentials: up to about 1e-5 where logits are far from zero."""
        return Tolerance(dtype=output.dtype, relative_l2=512, row_l2=512, element=64, cap=64)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Subtract, sum, and divide what is returned; comparisons are not arithmetic."""
        tokens, experts, top_k = _sizes(workload)
        work = tokens * (2 * experts - 1 + top_k)
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: work})

    def published_flops(self, workload: Workload) -> float:
        """Four for each element of softmax, less one for each row."""
        tokens, experts, _ = _sizes(workload)
        return tokens * (4 * experts - 1)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Lose an expert, the order, the scale, or the precision."""
        import torch

        def changed(**changes: Callable[[Tensors], Any]) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                right = self.honest(workload, inputs)
                return {**right, **{name: change(right) for name, change in changes.items()}}

            return mutant

        def weights(right: Tensors) -> Any:
            return right["topk_weights"]

        def fewer(workload: Workload, inputs: Tensors) -> Tensors:
            right = self.honest(workload, inputs)
            for values in right.values():
                values[:, -1] = 0
            return dict(right)

        def halves(inputs: Tensors) -> Any:
            return inputs["gating_output"].half().float()

        def raw(workload: Workload, inputs: Tensors) -> Tensors:
            best = torch.topk(inputs["gating_output"], workload.init["top_k"])
            return {"topk_weights": best.values, "topk_ids": best.indices.int()}

        def unshifted(workload: Workload, inputs: Tensors) -> Tensors:
            powers = inputs["gating_output"].exp()
            best = torch.topk(powers / powers.sum(-1, keepdim=True), workload.init["top_k"])
            return {"topk_weights": best.values, "topk_ids": best.indices.int()}

        return {
            "fewer_experts": fewer,
            "raw_logits": raw,
            "unshifted_exponentials": unshifted,
            "renormalised": changed(
                topk_weights=lambda r: weights(r) / weights(r).sum(-1, keepdim=True)
            ),
            "ascending": changed(
                topk_weights=lambda r: weights(r).flip(-1),
                topk_ids=lambda r: r["topk_ids"].flip(-1),
            ),
            "ids_off_by_one": changed(topk_ids=lambda r: r["topk_ids"] + 1),
            "repeated_expert": changed(
                topk_ids=lambda r: r["topk_ids"][:, :1].expand_as(weights(r))
            ),
            "rounded_logits": altering(self.honest, gating_output=halves),
        }


def _sizes(workload: Workload) -> tuple[int, int, int]:
    axes = workload.axes
    return axes["token_count"], axes["num_experts"], workload.init["top_k"]


def _probabilities(workload: Workload, logits: Any) -> Any:
    """Return float64 softmax, zero for experts outside the chosen groups."""
    import torch

    p = torch.softmax(logits.double(), dim=-1)
    groups, chosen = (workload.init.get(k, 0) for k in ("num_expert_groups", "topk_group"))
    if groups > 0 and chosen > 0:
        grouped = p.unflatten(-1, (groups, -1))
        best = grouped.amax(-1).sort(dim=-1, descending=True, stable=True).indices[:, :chosen]
        kept = torch.zeros_like(grouped[:, :, 0]).scatter_(1, best, 1.0)
        p = (grouped * kept[:, :, None]).flatten(-2)
    return p
