"""Honest implementations of `per_token_group_quant_fp8`, written as kernels are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from atrex_problems_production._fp8 import as_codes, units_off

from atrex_core import DType, Implementation, Tensors, Workload, torch_dtype

_LIMITS = {"fp8_e4m3fn": 448.0, "fp8_e4m3fnuz": 224.0}

_ROWS = 1 << 14
"""Rows quantised at once."""


def _by_rows(quantise: Callable[[Any, float], tuple[Any, Any]]) -> Implementation:
    """Return what quantises grouped bf16 rows to fp32 quotients and scales, some at a time."""

    def run(workload: Workload, inputs: Tensors) -> Tensors:
        name = workload.init.get("dtype", "fp8_e4m3fn")
        limit, dtype = _LIMITS[name], torch_dtype(DType(name))
        x, size = inputs["x"], workload.init["group_size"]
        quantized = torch.empty(x.shape, dtype=dtype, device=x.device)
        scales = torch.empty(len(x), x.shape[1] // size, device=x.device)
        for start in range(0, len(x), _ROWS):
            rows = slice(start, start + _ROWS)
            quotients, scales[rows] = quantise(x[rows].unflatten(1, (-1, size)), limit)
            quantized[rows] = as_codes(quotients.flatten(1), dtype, limit)
        return {"quantized": quantized, "scales": scales}

    return run


def _divided(x: Any, limit: float) -> tuple[Any, Any]:
    """Take the largest magnitude of bf16 values: no rounding, no fp32 copy."""
    scales = (torch.maximum(x.amax(-1), -x.amin(-1)).float() / limit).clamp(min=1e-10)
    return x.float() / scales[..., None], scales


def _by_reciprocal(x: Any, limit: float) -> tuple[Any, Any]:
    scales = (x.float().abs().amax(-1) * (1 / limit)).clamp(min=1e-10)
    return x.float() * (1 / scales)[..., None], scales


def _by_one_factor(x: Any, limit: float) -> tuple[Any, Any]:
    """Let the floor act on the largest magnitude, and never divide an element."""
    largest = x.float().abs().amax(-1).clamp(min=1e-10 * limit)
    return x.float() * (limit / largest)[..., None], largest / limit


def _fast(units: int) -> Callable[[Any, float], tuple[Any, Any]]:
    """Return what gets scales and reciprocals that are off as those of fast divisions are."""

    def quantise(x: Any, limit: float) -> tuple[Any, Any]:
        scales = units_off((x.float().abs().amax(-1) / limit).clamp(min=1e-10), units)
        return x.float() * units_off(scales.reciprocal(), -units // 2)[..., None], scales

    return quantise


VARIANTS: Mapping[str, Implementation] = {
    "divided": _by_rows(_divided),
    "by_reciprocal": _by_rows(_by_reciprocal),
    "by_one_factor": _by_rows(_by_one_factor),
    "fast_up": _by_rows(_fast(2)),
    "fast_down": _by_rows(_fast(-2)),
}
