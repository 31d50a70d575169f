"""Honest implementations of `fp8_dynamic_per_token_quant`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from atrex_problems_production._fp8 import as_codes, units_off

from atrex_core import DType, Implementation, Tensors, Workload, torch_dtype


def _kind(workload: Workload) -> tuple[Any, float]:
    """Return the fp8 type and its largest value."""
    dtype = torch_dtype(DType(workload.init.get("dtype", DType.FP8_E4M3FNUZ)))
    return dtype, torch.finfo(dtype).max


def divided(workload: Workload, inputs: Tensors) -> Tensors:
    dtype, limit = _kind(workload)
    x = inputs["x"].float()
    scales = torch.maximum(x.amax(-1), -x.amin(-1)).clamp(min=1e-12) / limit
    return {"quantized": (x / scales[:, None]).to(dtype), "scales": scales}


def one_factor(workload: Workload, inputs: Tensors) -> Tensors:
    """Never divide an element, nor a scale: multiply by the limit and its reciprocal."""
    dtype, limit = _kind(workload)
    x = inputs["x"]
    largest = x.abs().amax(-1).float().clamp(min=1e-12)
    quantized = as_codes(x.float() * (limit / largest)[:, None], dtype)
    return {"quantized": quantized, "scales": largest * (1 / limit)}


def reciprocals(workload: Workload, inputs: Tensors) -> Tensors:
    """Multiply by the reciprocal of a scale that came from a reciprocal itself."""
    dtype, limit = _kind(workload)
    x = inputs["x"].float()
    scales = x.abs().amax(-1).clamp(min=1e-12) * (1 / limit)
    quantized = as_codes(x * scales.reciprocal()[:, None], dtype)
    return {"quantized": quantized, "scales": scales}


def _fast(units: int) -> Implementation:
    """Return what gets scales and reciprocals that are off as those of fast divisions are."""

    def run(workload: Workload, inputs: Tensors) -> Tensors:
        dtype, limit = _kind(workload)
        x = inputs["x"].float()
        scales = units_off(x.abs().amax(-1).clamp(min=1e-12) / limit, units)
        factors = units_off(scales.reciprocal(), -units // 2)
        return {"quantized": as_codes(x * factors[:, None], dtype), "scales": scales}

    return run


VARIANTS: Mapping[str, Implementation] = {
    "divided": divided,
    "one_factor": one_factor,
    "reciprocals": reciprocals,
    "fast_up": _fast(2),
    "fast_down": _fast(-2),
}
