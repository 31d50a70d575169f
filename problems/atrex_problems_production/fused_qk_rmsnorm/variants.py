"""Honest implementations of `fused_qk_rmsnorm`, written as kernels are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from atrex_problems_production._variants import norm, norm_rounded_before_weight

from atrex_core import Implementation, Tensors, Workload

_EPS = 1e-6


def _per_head(
    workload: Workload, inputs: Tensors, normalise: Callable[[Any, Any, float], Any]
) -> Tensors:
    """Normalise heads of fp32 with their weight; hand V on."""
    hidden, init = inputs["hidden_states"], workload.init
    queries, keys, eps = init["head_num"], init["kv_head_num"], init.get("eps", _EPS)
    heads = hidden.view(len(hidden), queries + 2 * keys, -1)
    q, k, v = heads.split((queries, keys, keys), dim=1)
    q = normalise(q.float(), inputs["q_weight"], eps).to(v.dtype)
    k = normalise(k.float(), inputs["k_weight"], eps).to(v.dtype)
    return {"out": torch.cat([q, k, v], dim=1).flatten(1)}


def tree(workload: Workload, inputs: Tensors) -> Tensors:
    return _per_head(workload, inputs, norm)


def rounded(workload: Workload, inputs: Tensors) -> Tensors:
    return _per_head(workload, inputs, norm_rounded_before_weight)


def by_division(workload: Workload, inputs: Tensors) -> Tensors:
    """Round once, divide by the root, and take the sum of squares as a product with itself."""

    def normalise(wide: Any, weight: Any, eps: float) -> Any:
        total = torch.einsum("thd,thd->th", wide, wide)[..., None]
        return weight.float() * (wide / (total / wide.shape[-1] + eps).sqrt())

    return _per_head(workload, inputs, normalise)


VARIANTS: Mapping[str, Implementation] = {
    "tree": tree,
    "rounded": rounded,
    "by_division": by_division,
}
