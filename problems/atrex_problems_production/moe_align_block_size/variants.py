"""Honest implementations of `moe_align_block_size`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from atrex_core import Implementation, Tensors, Workload


def _placed(workload: Workload, ids: Any, ranks: Any, counts: Any, *, garbage: int) -> Tensors:
    """Put each slot where its expert's blocks begin plus its rank; leave the rest as it was."""
    block, experts = workload.init["block_size"], workload.init["num_experts"]
    slots = ids.numel()
    most = slots + experts * (block - 1)
    blocks = -(-(min(most, slots * block) if slots < experts else most) // block)
    ends = (counts + block - 1).div(block, rounding_mode="floor").cumsum(0) * block
    starts = ends.roll(1)
    starts[0] = 0
    place = torch.arange(blocks * block, device=ids.device)
    out = torch.full_like(place, garbage).masked_fill(place < ends[-1], slots)
    out[starts[ids] + ranks] = torch.arange(slots, device=ids.device)
    owner = (place[::block, None] >= ends).sum(-1)
    owner = owner.masked_fill(owner == experts, garbage)
    return {
        "sorted_token_ids": out.int(),
        "expert_ids": owner.int(),
        "num_tokens_post_pad": ends[-1:].int(),
    }


def by_atomics(workload: Workload, inputs: Tensors) -> Tensors:
    """Take places within an expert in any order, as racing threads do."""
    ids = inputs["topk_ids"].reshape(-1).long()
    counts = torch.zeros(workload.init["num_experts"], dtype=torch.int64, device=ids.device)
    counts.index_add_(0, ids, torch.ones_like(ids))
    racing = (torch.arange(len(ids), device=ids.device) * 40503) % 65537
    order = racing.argsort(stable=True)
    order = order[ids[order].argsort(stable=True)]
    ranks = torch.empty_like(ids)
    ranks[order] = (
        torch.arange(len(ids), device=ids.device) - (counts.cumsum(0) - counts)[ids[order]]
    )
    return _placed(workload, ids, ranks, counts, garbage=-1)


def backwards(workload: Workload, inputs: Tensors) -> Tensors:
    """Count each expert's slots down from the last, one expert's row of a table at a time."""
    ids = inputs["topk_ids"].reshape(-1).long()
    experts = torch.arange(workload.init["num_experts"], device=ids.device)
    ranks, counts = torch.empty_like(ids), torch.empty_like(experts)
    for some in experts.split(32):
        chosen = ids == some[:, None]
        upto = chosen.flip(-1).cumsum(-1, dtype=torch.int32).flip(-1)
        counts[some] = upto[:, 0].long()
        at, slot = chosen.nonzero(as_tuple=True)
        ranks[slot] = upto[at, slot].long() - 1
    return _placed(workload, ids, ranks, counts, garbage=1 << 30)


VARIANTS: Mapping[str, Implementation] = {
    "by_atomics": by_atomics,
    "backwards": backwards,
}
