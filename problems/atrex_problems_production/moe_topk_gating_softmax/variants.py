"""Honest implementations of `moe_topk_gating_softmax`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from atrex_problems_production._variants import LOG2E, partial_sums

from atrex_core import Implementation, Tensors, Workload


def _kept(workload: Workload, scores: Any) -> Any:
    """Return which experts are in the best groups; of equal groups, any."""
    groups, chosen = (workload.init.get(k, 0) for k in ("num_expert_groups", "topk_group"))
    if not groups or not chosen:
        return torch.ones_like(scores, dtype=torch.bool)
    worth = scores.unflatten(-1, (groups, -1)).amax(-1)
    best = worth.topk(chosen, dim=-1).indices
    kept = torch.zeros_like(worth, dtype=torch.bool).scatter_(1, best, True)
    return kept.repeat_interleave(scores.shape[-1] // groups, dim=-1)


def by_exp2(workload: Workload, inputs: Tensors) -> Tensors:
    """Scale the logits before subtracting, and let the higher index win a tie."""
    logits = inputs["gating_output"].flip(-1)
    scaled = logits * LOG2E
    powers = torch.exp2(scaled - scaled.amax(-1, keepdim=True))
    p = powers * (1 / partial_sums(powers, 32))
    p = p * _kept(workload, p)
    best = p.sort(dim=-1, descending=True, stable=True)
    top_k = workload.init["top_k"]
    ids = logits.shape[-1] - 1 - best.indices[:, :top_k]
    return {"topk_weights": best.values[:, :top_k].contiguous(), "topk_ids": ids.int()}


def of_logits(workload: Workload, inputs: Tensors) -> Tensors:
    """Choose by logit, then take the exponentials of the chosen ones only."""
    logits = inputs["gating_output"]
    eligible = logits.masked_fill(~_kept(workload, logits), -torch.inf)
    best = torch.topk(eligible, workload.init["top_k"])
    total = torch.logsumexp(logits, dim=-1, keepdim=True)
    largest = best.values[:, :1]
    weights = torch.exp(best.values - largest) / torch.exp(total - largest)
    return {"topk_weights": weights, "topk_ids": best.indices.int()}


VARIANTS: Mapping[str, Implementation] = {
    "by_exp2": by_exp2,
    "of_logits": of_logits,
}
