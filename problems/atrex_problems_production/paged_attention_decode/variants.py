"""Honest implementations of `paged_attention_decode`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from atrex_problems_production._variants import LOG2E

from atrex_core import Implementation, Tensors, Workload


def _paged(
    inputs: Tensors, *, tokens_per_step: int, backwards: bool = False, narrow: bool = False
) -> Tensors:
    """Attend by online softmax over steps of tokens, reading only what is live."""
    query, k_cache, v_cache = inputs["query"], inputs["k_cache"], inputs["v_cache"]
    seqs, heads, size = query.shape
    kv_heads, block = v_cache.shape[1], v_cache.shape[3]
    out = torch.zeros_like(query)
    for i in range(seqs):
        length = int(inputs["seq_lens"][i])
        steps = [
            range(s, min(s + tokens_per_step, length)) for s in range(0, length, tokens_per_step)
        ]
        q = query[i].view(kv_heads, -1, size)
        q = q.float() * (size**-0.5 * LOG2E)
        if narrow:
            q = q.to(query.dtype).float()
        top = q.new_full((kv_heads, heads // kv_heads, 1), -torch.inf)
        total = torch.zeros_like(top)
        acc = torch.zeros_like(q)
        for step in reversed(steps) if backwards else steps:
            p = torch.arange(step.start, step.stop, device=q.device)
            where, slot = inputs["block_tables"][i, p // block].long(), p % block
            k = k_cache[where, :, :, slot].flatten(2).float()
            v = v_cache[where, :, :, slot]
            scores = torch.einsum("hgd,thd->hgt", q, k)
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            weight = torch.exp2(scores - new)
            shrink = torch.exp2(top - new)
            total = total * shrink + weight.sum(-1, keepdim=True)
            if narrow:
                weight = weight.to(v.dtype).float()
            acc = acc * shrink + torch.einsum("hgt,thd->hgd", weight, v.float())
            top = new
        if length:
            out[i] = (acc / total).reshape(heads, size).to(out.dtype)
    return {"out": out}


def online(workload: Workload, inputs: Tensors) -> Tensors:
    return _paged(inputs, tokens_per_step=5, backwards=True)


def narrow_operands(workload: Workload, inputs: Tensors) -> Tensors:
    return _paged(inputs, tokens_per_step=16, narrow=True)


VARIANTS: Mapping[str, Implementation] = {
    "online": online,
    "narrow_operands": narrow_operands,
}
