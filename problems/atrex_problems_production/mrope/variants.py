"""Honest implementations of `mrope`, written as kernels are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from atrex_core import Implementation, Tensors, Workload

Rotation = Callable[[Any, Any, Any, Any], Any]
"""Turn fp32 heads, given each element's partner, cosine and sine."""


def complex_numbers(workload: Workload, inputs: Tensors) -> Tensors:
    """Multiply complex numbers, an axis at a time."""
    init = workload.init
    half = init["rotary_dim"] // 2
    cos, sin = torch.empty_like(inputs["cos"][0]), torch.empty_like(inputs["sin"][0])
    for axis, columns in enumerate(_columns(workload)):
        cos[:, columns] = inputs["cos"][axis][:, columns]
        sin[:, columns] = inputs["sin"][axis][:, columns]
    turn = torch.complex(cos, sin)[:, None]
    neox = init.get("is_neox_style", True)
    answer = {}
    for name in ("q", "k"):
        x = inputs[name].view(len(cos), -1, init["head_size"])
        pairs = x[..., : 2 * half].unflatten(-1, (2, half) if neox else (half, 2)).float()
        numbers = torch.view_as_complex((pairs.mT if neox else pairs).contiguous())
        turned = torch.view_as_real(numbers * turn)
        turned = (turned.mT if neox else turned).flatten(-2)
        out = x.clone()
        out[..., : 2 * half] = turned.to(out.dtype)
        answer[name] = out.view_as(inputs[name])
    return answer


def whole_rows(workload: Workload, inputs: Tensors) -> Tensors:
    """Spread cosine and sine over whole heads and blend the axes by masks."""
    return _spread(workload, inputs, lambda x, other, cos, sin: torch.addcmul(x * cos, other, sin))


def narrow_tables(workload: Workload, inputs: Tensors) -> Tensors:
    """Round cosine and sine to bf16, as where production keeps its tables."""
    tables = {name: inputs[name].bfloat16().float() for name in ("cos", "sin")}
    return _spread(workload, {**inputs, **tables}, lambda x, other, cos, sin: other * sin + x * cos)


def _columns(workload: Workload) -> Sequence[Any]:
    """Return which frequencies belong to each of the three axes, as indices."""
    init, half = workload.init, workload.init["rotary_dim"] // 2
    t, h, w = init["mrope_section"]
    if not init.get("mrope_interleaved", False):
        return torch.arange(t), torch.arange(t, t + h), torch.arange(t + h, half)
    height = torch.arange(1, min(half, 3 * h + 1), 3)
    width = torch.arange(2, min(half, 3 * w + 1), 3)
    taken = torch.zeros(half, dtype=torch.bool)
    taken[height] = taken[width] = True
    return torch.arange(half)[~taken], height, width


def _spread(workload: Workload, inputs: Tensors, rotate: Rotation) -> Tensors:
    init, device = workload.init, inputs["q"].device
    half, size = init["rotary_dim"] // 2, init["head_size"]
    masks = torch.zeros(3, 1, half, device=device)
    for axis, columns in enumerate(_columns(workload)):
        masks[axis, 0, columns.to(device)] = 1.0
    cos, sin = ((inputs[name] * masks).sum(0) for name in ("cos", "sin"))
    element = torch.arange(size, device=device)
    if init.get("is_neox_style", True):
        frequency, is_second = element % half, element >= half
        partner = (element + half) % (2 * half)
    else:
        frequency, is_second, partner = element // 2, element % 2 == 1, element ^ 1
    turns = element < 2 * half
    frequency = frequency.clamp(max=half - 1)
    partner = torch.where(turns, partner, element)
    wide_cos = torch.where(turns, cos[:, frequency], 1.0)[:, None]
    wide_sin = torch.where(turns, sin[:, frequency] * (2.0 * is_second - 1), 0.0)[:, None]
    answer = {}
    for name in ("q", "k"):
        x = inputs[name].view(len(cos), -1, size).float()
        out = rotate(x, x[..., partner], wide_cos, wide_sin)
        answer[name] = out.to(inputs[name].dtype).view_as(inputs[name])
    return answer


VARIANTS: Mapping[str, Implementation] = {
    "complex_numbers": complex_numbers,
    "whole_rows": whole_rows,
    "narrow_tables": narrow_tables,
}
