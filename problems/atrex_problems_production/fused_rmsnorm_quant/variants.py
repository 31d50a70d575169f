"""Honest implementations of `fused_rmsnorm_quant`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from atrex_problems_production._fp8 import as_codes
from atrex_problems_production._variants import norm, norm_rounded_before_weight

from atrex_core import DType, Implementation, Tensors, Workload, torch_dtype


def _quantised(workload: Workload, normed: Any, residual: Any, *, divide: bool) -> Tensors:
    dtype = torch_dtype(DType(workload.init.get("dtype", DType.FP8_E4M3FNUZ)))
    limit = torch.finfo(dtype).max
    largest = normed.abs().amax(-1, keepdim=True)
    scales = torch.where(largest == 0, 1.0, largest / limit if divide else largest * (1 / limit))
    quotients = normed / scales if divide else normed * (1 / scales)
    codes = as_codes(quotients, dtype)
    return {"quantized": codes, "scales": scales, "residual": residual.bfloat16()}


def tree(workload: Workload, inputs: Tensors) -> Tensors:
    """Round where it is stated, sum in another order, divide."""
    total = (inputs["x"].float() + inputs["residual"].float()).bfloat16()
    normed = norm(total.float(), inputs["weight"], workload.init.get("eps", 1e-5))
    return _quantised(workload, normed.bfloat16().float(), total, divide=True)


def wide_rows(workload: Workload, inputs: Tensors) -> Tensors:
    """Round the sum, but quantise the normalised row as it is."""
    total = (inputs["x"].float() + inputs["residual"].float()).bfloat16()
    normed = norm(total.float(), inputs["weight"], workload.init.get("eps", 1e-5))
    return _quantised(workload, normed, total, divide=False)


def unrounded(workload: Workload, inputs: Tensors) -> Tensors:
    """Round nothing but what is returned."""
    total = inputs["x"].float() + inputs["residual"].float()
    normed = norm(total, inputs["weight"], workload.init.get("eps", 1e-5))
    return _quantised(workload, normed, total, divide=False)


def rounded_twice(workload: Workload, inputs: Tensors) -> Tensors:
    """Round before the weight too, as a normalisation that returns bf16 first would."""
    total = inputs["x"] + inputs["residual"]
    eps = workload.init.get("eps", 1e-5)
    normed = norm_rounded_before_weight(total.float(), inputs["weight"], eps)
    return _quantised(workload, normed.float(), total, divide=True)


VARIANTS: Mapping[str, Implementation] = {
    "tree": tree,
    "wide_rows": wide_rows,
    "unrounded": unrounded,
    "rounded_twice": rounded_twice,
}
