"""Honest implementations of `silu_and_mul`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from atrex_problems_production._variants import LOG2E

from atrex_core import Implementation, Tensors, Workload


def unrounded(workload: Workload, inputs: Tensors) -> Tensors:
    gate, up = inputs["x"].float().chunk(2, dim=-1)
    return {"out": (gate / (1 + torch.exp2(-LOG2E * gate)) * up).bfloat16()}


def by_tanh(workload: Workload, inputs: Tensors) -> Tensors:
    gate, up = inputs["x"].double().chunk(2, dim=-1)
    silu = 0.5 * gate * (1 + (0.5 * gate).tanh())
    return {"out": (silu.bfloat16().float() * up.float()).bfloat16()}


VARIANTS: Mapping[str, Implementation] = {
    "unrounded": unrounded,
    "by_tanh": by_tanh,
}
