"""Honest implementations of `moe_sum_reduce`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from atrex_problems_production._variants import partial_sums

from atrex_core import Implementation, Tensors, Workload


def backwards(workload: Workload, inputs: Tensors) -> Tensors:
    """Multiply and add in one step, the last slot first."""
    x, factor = inputs["expert_outputs"], workload.init["routed_scaling_factor"]
    total = torch.zeros_like(x[:, 0], dtype=torch.float32)
    for slot in reversed(range(x.shape[1])):
        total += x[:, slot].float() * factor
    return {"out": total.bfloat16()}


def tree(workload: Workload, inputs: Tensors) -> Tensors:
    """Sum pairs of slots, then pairs of pairs."""
    x, factor = inputs["expert_outputs"], workload.init["routed_scaling_factor"]
    out = torch.empty_like(x[:, 0])
    for rows, into in zip(x.split(1024), out.split(1024), strict=True):
        into.copy_(partial_sums(rows.float().transpose(1, 2), 4)[..., 0] * factor)
    return {"out": out}


def as_product(workload: Workload, inputs: Tensors) -> Tensors:
    """Multiply a row of factors with each token's matrix, as a matrix unit does in fp32."""
    x, factor = inputs["expert_outputs"], workload.init["routed_scaling_factor"]
    factors = torch.full((1, x.shape[1]), factor, device=x.device)
    out = torch.empty_like(x[:, 0])
    for rows, into in zip(x.split(1024), out.split(1024), strict=True):
        into.copy_((factors @ rows.float())[:, 0])
    return {"out": out}


VARIANTS: Mapping[str, Implementation] = {
    "backwards": backwards,
    "tree": tree,
    "as_product": as_product,
}
