"""Honest implementations of `gated_rms_norm`, written as kernels are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from atrex_problems_production._variants import LOG2E, norm, norm_rounded_before_weight

from atrex_core import Implementation, Tensors, Workload


def _gated(
    workload: Workload,
    inputs: Tensors,
    gate: Callable[[Any], Any],
    normalise: Callable[[Any, Any, float], Any],
) -> Tensors:
    """Normalise rows of fp32 and gate them, in the workload's order."""
    wide, weight, eps = inputs["x"].float(), inputs["weight"], workload.init["eps"]
    z = inputs["z"].float()
    factor = gate(z) if workload.init["activation"] == "sigmoid" else z * gate(z)
    if workload.init["norm_before_gate"]:
        return {"out": (normalise(wide, weight, eps).float() * factor).bfloat16()}
    return {"out": normalise(wide * factor, weight, eps).bfloat16()}


def tree(workload: Workload, inputs: Tensors) -> Tensors:
    """Sum as threads do; take the sigmoid as a power of two."""
    return _gated(workload, inputs, lambda z: 1 / (1 + torch.exp2(-LOG2E * z)), norm)


def rounded(workload: Workload, inputs: Tensors) -> Tensors:
    """Round before the weight, and before the gate."""
    return _gated(workload, inputs, torch.sigmoid, norm_rounded_before_weight)


def by_tanh(workload: Workload, inputs: Tensors) -> Tensors:
    """Weigh the gate before the row, and divide by the root."""

    def normalise(wide: Any, weight: Any, eps: float) -> Any:
        total = torch.einsum("rh,rh->r", wide, wide)[:, None]
        return weight.float() * (wide / (total / wide.shape[-1] + eps).sqrt())

    return _gated(workload, inputs, lambda z: 0.5 + 0.5 * (0.5 * z.double()).tanh(), normalise)


VARIANTS: Mapping[str, Implementation] = {
    "tree": tree,
    "rounded": rounded,
    "by_tanh": by_tanh,
}
