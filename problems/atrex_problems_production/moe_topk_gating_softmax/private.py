"""Judge `moe_topk_gating_softmax`: float64 truth, ties, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from atrex_problems_production._problem import ProductionProblem

from atrex_core import (
    ArithmeticPath,
    Container,
    Cost,
    DType,
    Implementation,
    Inapplicable,
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
        """Accept another order, or another choice, among what fp32 finds equal.

        A row of ids that names distinct experts, each as probable as the best one for its place,
        becomes the expected row; any other row stays as it is, and wrong. Where groups that fp32
        finds equal compete, best is judged within the groups that the row shows to be chosen, and
        its weights are moved by as much as those of the expected groups are larger.
        """
        import torch

        wanted, ids = expected["topk_ids"], outputs["topk_ids"]
        if ids.shape != wanted.shape or ids.dtype != wanted.dtype:
            return outputs

        def judged(logits: Any, ids: Any) -> Any:
            """Return whether each row is accepted, and how far to move each of its weights."""
            softmax = torch.softmax(logits.double(), dim=-1)
            experts, top_k = softmax.shape[-1], ids.shape[-1]
            inside = ((ids >= 0) & (ids < experts)).all(-1)
            safe = ids.long().clamp(0, experts - 1)
            in_order = safe.sort(dim=-1).values
            distinct = (in_order[:, 1:] != in_order[:, :-1]).all(-1)
            # Implementations may scale the logits before they subtract the largest one.
            reach = _TIE * (1 + logits.double().abs().amax(-1, keepdim=True))
            p = softmax * _groups_shown(workload, softmax, reach, safe)
            best = p.sort(dim=-1, descending=True).values[:, :top_k]
            equal = (p.gather(1, safe) - best).abs() <= reach * best + _VANISHED
            accepted = inside & distinct & equal.all(-1)
            true = softmax * _groups_kept(workload, logits)
            moved = true.sort(dim=-1, descending=True).values[:, :top_k] - best
            return torch.cat([accepted[:, None].double(), moved], dim=-1)

        rows = by_rows(judged, inputs["gating_output"], ids).dense()
        accepted, moved = rows[:, :1] > 0, rows[:, 1:]
        settled = {**outputs, "topk_ids": torch.where(accepted, wanted, ids)}
        weights = outputs.get("topk_weights")
        if weights is not None and weights.shape == moved.shape:
            fair = (weights.double() + moved).to(weights.dtype)
            settled["topk_weights"] = torch.where(accepted, fair, weights)
        return settled

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

        def grouped(honest: Callable[[Workload, Tensors, int, int], Tensors]) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                groups, chosen = _groups(workload)
                if groups == 1:
                    raise Inapplicable("experts are in no groups")
                return honest(workload, inputs, groups, chosen)

            return mutant

        def with_groups(workload: Workload, inputs: Tensors, groups: int, chosen: int) -> Tensors:
            init = {**workload.init, "num_expert_groups": groups, "topk_group": chosen}
            return self.run_reference(workload, inputs, **init)

        def interleaved(workload: Workload, inputs: Tensors, groups: int, _: int) -> Tensors:
            experts = workload.axes["num_experts"]
            order = torch.arange(experts, device=inputs["gating_output"].device)
            order = order.view(-1, groups).T.reshape(-1)
            right = self.honest(workload, {"gating_output": inputs["gating_output"][:, order]})
            return {**right, "topk_ids": order[right["topk_ids"].long()].int()}

        def by_sum(workload: Workload, inputs: Tensors, groups: int, chosen: int) -> Tensors:
            p = torch.softmax(inputs["gating_output"], dim=-1)
            worth = p.unflatten(-1, (groups, -1)).topk(2, dim=-1).values.sum(-1)
            p = p * _experts_of(worth.topk(chosen, dim=-1).indices, worth, p)
            best = torch.topk(p, workload.init["top_k"])
            return {"topk_weights": best.values, "topk_ids": best.indices.int()}

        def ranked_by_upper_bits(workload: Workload, inputs: Tensors) -> Tensors:
            """Rank p without the eight bits that some kernels need for the expert's number."""
            p = torch.softmax(inputs["gating_output"], dim=-1)
            p = p * _groups_kept(workload, inputs["gating_output"]).float()
            keys = p.view(torch.int32) >> 8
            ids = keys.sort(dim=-1, descending=True, stable=True).indices
            ids = ids[:, : workload.init["top_k"]]
            return {"topk_weights": p.gather(1, ids), "topk_ids": ids.int()}

        def best_of_each_lane(workload: Workload, inputs: Tensors, *, strided: bool) -> Tensors:
            """Take one or two of the experts of each lane, then the best of those."""
            _, experts, top_k = _sizes(workload)
            if _groups(workload) != (1, 1):
                raise Inapplicable("groups say which experts take part")
            logits, lanes = inputs["gating_output"], _lanes(experts)
            p = torch.softmax(logits, dim=-1)
            padded = torch.nn.functional.pad(p, (0, -experts % lanes), value=-1.0)
            pieces = padded.unflatten(1, (-1, lanes) if strided else (lanes, -1))
            few, axis = max(1, min(2, top_k // 2 - 1)), 1 if strided else 2
            chosen = pieces.topk(few, dim=axis).indices
            kept = torch.zeros_like(pieces).scatter_(axis, chosen, 1.0).flatten(1)
            best = torch.topk((padded + 1) * kept, top_k).indices
            return {"topk_weights": padded.gather(1, best), "topk_ids": best.int()}

        return {
            "ranked_by_upper_bits": ranked_by_upper_bits,
            "best_of_each_lane": partial(best_of_each_lane, strided=True),
            "best_of_each_stretch": partial(best_of_each_lane, strided=False),
            "no_groups": grouped(lambda w, i, *_: with_groups(w, i, 0, 0)),
            "a_group_less": grouped(lambda w, i, g, chosen: with_groups(w, i, g, chosen - 1)),
            "a_group_more": grouped(lambda w, i, g, chosen: with_groups(w, i, g, chosen + 1)),
            "interleaved_groups": grouped(interleaved),
            "groups_by_sum_of_two": grouped(by_sum),
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


def _lanes(experts: int) -> int:
    """Return how many lanes share a row: a warp's, or as many as hold four experts each."""
    return min(32, 1 << (experts // 4).bit_length() - 1)


def _groups(workload: Workload) -> tuple[int, int]:
    """Return how many groups there are and how many of them take part; one where none are named."""
    groups, chosen = (workload.init.get(k, 0) for k in ("num_expert_groups", "topk_group"))
    return (groups, chosen) if groups > 0 and chosen > 0 else (1, 1)


def _probabilities(workload: Workload, logits: Any) -> Any:
    """Return float64 softmax, zero for experts outside the chosen groups."""
    import torch

    return torch.softmax(logits.double(), dim=-1) * _groups_kept(workload, logits)


def _groups_kept(workload: Workload, logits: Any) -> Any:
    """Return 1.0 for each expert of the groups with the largest logits, the lower group first."""
    groups, chosen = _groups(workload)
    worth = logits.double().unflatten(-1, (groups, -1)).amax(-1)
    order = worth.sort(dim=-1, descending=True, stable=True).indices
    return _experts_of(order[:, :chosen], worth, logits)


def _groups_shown(workload: Workload, softmax: Any, reach: Any, ids: Any) -> Any:
    """Return 1.0 for each expert of the groups that a right answer naming `ids` has chosen.

    Groups clearly among the best are; of those that cannot be told from the last one chosen, first
    those of which an expert is named.
    """
    groups, chosen = _groups(workload)
    worth = softmax.unflatten(-1, (groups, -1)).amax(-1)
    order = worth.sort(dim=-1, descending=True, stable=True).indices
    last = worth.gather(1, order[:, chosen - 1 : chosen])
    slack = reach * last + _VANISHED
    named = worth.new_zeros(worth.shape).scatter_(1, ids // (softmax.shape[-1] // groups), 1.0)
    near = (worth - last).abs() <= slack
    rank = 4.0 * (worth > last + slack) + near * (1.0 + named)
    again = rank.gather(1, order).sort(dim=-1, descending=True, stable=True).indices
    return _experts_of(order.gather(1, again)[:, :chosen], worth, softmax)


def _experts_of(groups: Any, worth: Any, experts: Any) -> Any:
    kept = worth.new_zeros(worth.shape).scatter_(1, groups, 1.0)
    return kept.repeat_interleave(experts.shape[-1] // worth.shape[-1], dim=-1)
