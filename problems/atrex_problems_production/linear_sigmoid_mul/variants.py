"""Honest implementations of `linear_sigmoid_mul`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from atrex_core import Implementation, Tensors, Workload


def wide_z(workload: Workload, inputs: Tensors) -> Tensors:
    z = inputs["hidden_states"].float() @ inputs["weight"].float().T + inputs["bias"].float()
    return {"out": (z.sigmoid() * inputs["post_mul_mat"].float()).bfloat16()}


def split_k(workload: Workload, inputs: Tensors) -> Tensors:
    hidden, weight = inputs["hidden_states"].float(), inputs["weight"].float()
    z = inputs["bias"].float()
    for part in reversed(range(4)):
        z = z + hidden[:, part::4] @ weight[:, part::4].T
    gate = 1 / (1 + torch.exp(-z.bfloat16().float()))
    return {"out": gate.bfloat16() * inputs["post_mul_mat"]}


VARIANTS: Mapping[str, Implementation] = {
    "wide_z": wide_z,
    "split_k": split_k,
}
