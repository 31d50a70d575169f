"""Honest implementations of `topk_filter`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from atrex_core import Implementation, Tensors, Workload


def bit_by_bit(workload: Workload, inputs: Tensors) -> Tensors:
    """Find each row's threshold among integers in the order of fp32 numbers, a bit at a time."""
    logits, k = _of(workload, inputs)
    # Adding zero makes -0.0 and 0.0 one.
    bits = (logits + 0.0).view(torch.int32)
    keys = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    theta = torch.full((len(keys), 1), -(1 << 31), dtype=torch.int64, device=keys.device)
    for bit in reversed(range(32)):
        higher = theta + (1 << bit)
        enough = (keys >= higher.to(torch.int32)).sum(-1, keepdim=True) >= k
        theta = torch.where(enough, higher, theta)
    return {"out": logits.masked_fill(keys < theta.to(torch.int32), -torch.inf)}


def in_two_stages(workload: Workload, inputs: Tensors) -> Tensors:
    """Take the best of pieces of the row, then the best of those."""
    logits, k = _of(workload, inputs)
    piece = 3001
    padded = torch.nn.functional.pad(logits, (0, -logits.shape[1] % piece), value=-torch.inf)
    best = padded.unflatten(1, (-1, piece)).topk(min(k, piece), dim=-1, sorted=False).values
    theta = best.flatten(1).topk(k, dim=-1).values.amin(-1, keepdim=True)
    return {"out": torch.where(logits < theta, -torch.inf, logits)}


def from_below(workload: Workload, inputs: Tensors) -> Tensors:
    """Select the threshold as the one with that many logits below it."""
    logits, k = _of(workload, inputs)
    theta = logits.kthvalue(logits.shape[1] - k + 1, dim=-1, keepdim=True).values
    out = torch.full_like(logits, -torch.inf)
    kept = logits >= theta
    out[kept] = logits[kept]
    return {"out": out}


def _of(workload: Workload, inputs: Tensors) -> tuple[Any, int]:
    logits = inputs["logits"]
    return logits, min(workload.init.get("top_k", 50), logits.shape[1])


VARIANTS: Mapping[str, Implementation] = {
    "bit_by_bit": bit_by_bit,
    "in_two_stages": in_two_stages,
    "from_below": from_below,
}
