"""Honest implementations of `moe_count_and_sort`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from atrex_core import Implementation, Tensors, Workload


def _answer(order: Any, counts: Any) -> Tensors:
    ends = counts.cumsum(0)
    return {
        "sorted_token_ids": order.int(),
        "expert_token_counts": counts.int(),
        "cumsum": torch.cat([ends[:1] * 0, ends]).int(),
    }


def by_atomics(workload: Workload, inputs: Tensors) -> Tensors:
    """Take places within an expert in any order, as racing threads do."""
    ids = inputs["topk_ids"].reshape(-1).long()
    counts = ids.bincount(minlength=workload.init.get("num_experts", 128))
    racing = (torch.arange(len(ids), device=ids.device) * 40503) % 65537
    order = racing.argsort(stable=True)
    return _answer(order[ids[order].argsort(stable=True)], counts)


def backwards(workload: Workload, inputs: Tensors) -> Tensors:
    """Count each expert's slots down from the last, some experts' rows of a table at a time."""
    ids = inputs["topk_ids"].reshape(-1).long()
    experts = torch.arange(workload.init.get("num_experts", 128), device=ids.device)
    ranks, counts = torch.empty_like(ids), torch.empty_like(experts)
    for some in experts.split(32):
        chosen = ids == some[:, None]
        upto = chosen.flip(-1).cumsum(-1, dtype=torch.int32).flip(-1)
        counts[some] = upto[:, 0].long()
        at, slot = chosen.nonzero(as_tuple=True)
        ranks[slot] = upto[at, slot].long() - 1
    order = torch.empty_like(ids)
    order[(counts.cumsum(0) - counts)[ids] + ranks] = torch.arange(len(ids), device=ids.device)
    return _answer(order, counts)


VARIANTS: Mapping[str, Implementation] = {
    "by_atomics": by_atomics,
    "backwards": backwards,
}
