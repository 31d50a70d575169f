"""Honest implementations of `reshape_and_cache`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from atrex_core import Implementation, Tensors, Workload

_CACHES = (("key", "key_cache"), ("value", "value_cache"))


def by_slot(workload: Workload, inputs: Tensors) -> Tensors:
    """Write whole new caches: each slot takes its token, or what it held."""
    mapping = inputs["slot_mapping"]
    blocks, block, *rest = inputs["key_cache"].shape
    # One slot more than there are takes what is skipped.
    source = mapping.new_full((blocks * block + 1,), -1)
    tokens = torch.arange(len(mapping), device=mapping.device)
    source[torch.where(mapping < 0, blocks * block, mapping)] = tokens
    source = source[:-1]

    def merged(new: Any, cache: Any) -> Any:
        old = cache.view(-1, *rest)
        taken = (source >= 0)[:, None, None]
        return torch.where(taken, new[source.clamp(min=0)], old).view_as(cache)

    return {name: merged(inputs[new], inputs[name]) for new, name in _CACHES}


def by_element(workload: Workload, inputs: Tensors) -> Tensors:
    """Address each element on its own, in the order of the caches' memory, as integers."""
    mapping = inputs["slot_mapping"]
    live = (mapping >= 0).nonzero().squeeze(1)
    answer = {}
    for new, name in _CACHES:
        cache = inputs[name].clone()
        width = cache[0, 0].numel()
        places = mapping[live, None] * width + torch.arange(width, device=mapping.device)
        words = inputs[new].view(torch.int16).view(-1, width)[live]
        cache.view(torch.int16).view(-1).scatter_(0, places.reshape(-1), words.reshape(-1))
        answer[name] = cache
    return answer


def by_block(workload: Workload, inputs: Tensors) -> Tensors:
    """Address blocks and places inside them, in order of slots rather than of tokens."""
    order = inputs["slot_mapping"].argsort()
    slots = inputs["slot_mapping"][order]
    order, slots = order[slots >= 0], slots[slots >= 0]
    block = inputs["key_cache"].shape[1]
    answer = {name: inputs[name].clone() for _, name in _CACHES}
    for new, name in _CACHES:
        answer[name][slots // block, slots % block] = inputs[new][order]
    return answer


VARIANTS: Mapping[str, Implementation] = {
    "by_slot": by_slot,
    "by_element": by_element,
    "by_block": by_block,
}
