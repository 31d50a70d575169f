"""Honest implementations of `fused_qkv_rope`, written as kernels are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from atrex_core import Implementation, Tensors, Workload

Rotation = Callable[[Any, Any, Any], Any]
"""Turn fp32 heads by cos and sin of [tokens, 1, rope_dim / 2]."""


def exp2_complex(workload: Workload, inputs: Tensors) -> Tensors:
    """Take powers of two, and multiply complex numbers; round the biased values only at the end."""
    half, base = workload.init["rope_dim"] // 2, workload.init.get("rope_base", 10000.0)
    j = torch.arange(half, device=inputs["qkv"].device)
    theta = _positions(inputs) * torch.exp2(j.float() * (-math.log2(base) / half))

    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        pairs = torch.stack(x.chunk(2, dim=-1), dim=-1)
        turned = torch.view_as_complex(pairs.contiguous()) * torch.complex(cos, sin)
        return torch.view_as_real(turned).movedim(-1, -2).flatten(-2)

    return _split(workload, inputs, theta.cos(), theta.sin(), rotate, round_bias=False)


def whole_turns(workload: Workload, inputs: Tensors) -> Tensors:
    """Count angles in turns and drop the whole ones, as approximate sine units want them."""
    size, base = workload.init["rope_dim"], workload.init.get("rope_base", 10000.0)
    j = torch.arange(size // 2, device=inputs["qkv"].device)
    power = torch.tensor(base, device=j.device) ** (2.0 * j / size)
    turns = _positions(inputs) * (1 / (2 * math.pi) / power)
    theta = (turns - turns.round()) * (2 * math.pi)

    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        first, second = x.chunk(2, dim=-1)
        partner = torch.cat([-second, first], dim=-1)
        return x * torch.cat([cos, cos], dim=-1) + partner * torch.cat([sin, sin], dim=-1)

    return _split(workload, inputs, theta.cos(), theta.sin(), rotate, round_bias=True)


def exact_table(workload: Workload, inputs: Tensors) -> Tensors:
    """Look up fp32 sines that were computed in float64; round the biased values only at the end."""
    size, base = workload.init["rope_dim"], workload.init.get("rope_base", 10000.0)
    j = torch.arange(0, size, 2, dtype=torch.float64, device=inputs["qkv"].device)
    theta = _positions(inputs).double() * base ** (-j / size)

    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        first, second = x.chunk(2, dim=-1)
        upper = torch.addcmul(second * cos, first, sin)
        return torch.cat([torch.addcmul(first * cos, second, sin, value=-1), upper], dim=-1)

    return _split(
        workload, inputs, theta.cos().float(), theta.sin().float(), rotate, round_bias=False
    )


def _positions(inputs: Tensors) -> Any:
    return inputs["positions"].float()[:, None]


def _split(
    workload: Workload, inputs: Tensors, cos: Any, sin: Any, rotate: Rotation, *, round_bias: bool
) -> Tensors:
    init, qkv = workload.init, inputs["qkv"]
    x = qkv.float()
    if "qkv_bias" in inputs:
        x = x + inputs["qkv_bias"].float()
    if round_bias:
        x = x.to(qkv.dtype).float()
    heads = x.view(len(x), -1, init["head_dim"])
    q, k, v = heads.split([init["num_heads"], init["num_kv_heads"], init["num_kv_heads"]], dim=1)
    turned = [
        torch.cat(
            [
                rotate(t[..., : init["rope_dim"]], cos[:, None], sin[:, None]),
                t[..., init["rope_dim"] :],
            ],
            dim=-1,
        )
        for t in (q, k)
    ]
    return {n: t.to(qkv.dtype) for n, t in zip("qkv", (*turned, v), strict=True)}


VARIANTS: Mapping[str, Implementation] = {
    "exp2_complex": exp2_complex,
    "whole_turns": whole_turns,
    "exact_table": exact_table,
}
