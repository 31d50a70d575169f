"""Honest implementations of `chunk_delta_rule_output`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from atrex_problems_production._delta_rule import chunked, rejoined
from atrex_problems_production._variants import LOG2E

from atrex_core import Implementation, Tensors, Workload


def scaled_early(workload: Workload, inputs: Tensors) -> Tensors:
    """Scale both terms before they are added, by powers of two; round scaled weights."""
    return _output(workload, inputs, narrow=True, parts=1)


def wide_weights(workload: Workload, inputs: Tensors) -> Tensors:
    """Keep the weights in fp32, and sum over four slices of K backwards."""
    return _output(workload, inputs, narrow=False, parts=4)


def row_by_row(workload: Workload, inputs: Tensors) -> Tensors:
    """Walk the rows of all chunks at once: each adds its value to all that read it."""
    g, value = inputs["g"], inputs["v"]
    size, heads = workload.init["chunk_size"], value.shape[2]
    q, k, v = (chunked(inputs[name], size, heads).float() for name in "qkv")
    gates = chunked(g, size, heads)[..., None]
    out = (q * gates.exp()) @ inputs["h"].float()
    for row in range(min(size, value.shape[1])):
        fall = gates[..., row:, :] - gates[..., row, None, :]
        weight = (q[..., row:, :] * k[..., row, None, :]).sum(-1, keepdim=True)
        weight = torch.where(fall <= 0, weight * fall.exp(), 0.0).bfloat16().float()
        out[..., row:, :] += weight * v[..., row, None, :]
    return {"out": rejoined(out * _scale(workload, q), value.shape[1]).bfloat16()}


VARIANTS: Mapping[str, Implementation] = {
    "scaled_early": scaled_early,
    "wide_weights": wide_weights,
    "row_by_row": row_by_row,
}


def _output(workload: Workload, inputs: Tensors, *, narrow: bool, parts: int) -> Tensors:
    """Compute one chunk of every sequence and head at a time."""
    value, h = inputs["v"], inputs["h"]
    size, (tokens, heads) = workload.init["chunk_size"], value.shape[1:3]
    out = torch.empty_like(value)
    for chunk in range(h.shape[1]):
        rows = slice(chunk * size, min((chunk + 1) * size, tokens))
        q, k, v = (chunked(inputs[n][:, rows], size, heads)[:, 0].float() for n in "qkv")
        gates = chunked(inputs["g"][:, rows], size, heads)[:, 0, ..., None] * LOG2E
        scores: Any = 0.0
        state: Any = 0.0
        for part in reversed(range(parts)):
            columns = slice(part, None, parts)
            scores = scores + q[..., columns] @ k[..., columns].transpose(-1, -2)
            state = state + q[..., columns] @ h[:, chunk, :, columns].float()
        fall = gates - gates.transpose(-1, -2)
        weights = torch.where(fall <= 0, scores * torch.exp2(fall), 0.0).tril()
        weights = weights * _scale(workload, q)
        if narrow:
            weights = weights.bfloat16().float()
        result = state * torch.exp2(gates) * _scale(workload, q) + weights @ v
        out[:, rows] = rejoined(result[:, None], rows.stop - rows.start).bfloat16()
    return {"out": out}


def _scale(workload: Workload, q: Any) -> float:
    scale: float | None = workload.init.get("scale")
    return q.shape[-1] ** -0.5 if scale is None else scale
