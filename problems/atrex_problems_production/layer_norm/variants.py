"""Honest implementations of `layer_norm`, written as kernels are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from atrex_problems_production._variants import partial_sums

from atrex_core import Implementation, Tensors, Workload

_EPS = 1e-5


def _by_rows(inputs: Tensors, normalise: Callable[[Any, Any, Any], Any]) -> Tensors:
    """Give rows, weight and bias to `normalise` in fp32; round what it returns."""
    x = inputs["x"]
    rows = x.reshape(-1, x.shape[-1]).float()
    out = normalise(rows, inputs["weight"].float(), inputs["bias"].float())
    return {"out": out.bfloat16().view_as(x)}


def two_passes(workload: Workload, inputs: Tensors) -> Tensors:
    """Sum as 128 threads do, mean first."""

    def normalise(rows: Any, weight: Any, bias: Any) -> Any:
        width = rows.shape[-1]
        rows = rows - partial_sums(rows, 128) / width
        variance = partial_sums(rows * rows, 128) / width
        return rows * (weight / (variance + _EPS).sqrt()) + bias

    return _by_rows(inputs, normalise)


def one_pass(workload: Workload, inputs: Tensors) -> Tensors:
    """Sum values and squares together, and fold the mean into the bias."""

    def normalise(rows: Any, weight: Any, bias: Any) -> Any:
        width = rows.shape[-1]
        mean = partial_sums(rows, 32) / width
        square = partial_sums(rows * rows, 32) / width
        scale = ((square - mean * mean).clamp(min=0) + _EPS).rsqrt() * weight
        return rows * scale + (bias - mean * scale)

    return _by_rows(inputs, normalise)


def merged(workload: Workload, inputs: Tensors) -> Tensors:
    """Take mean and squared differences of each of up to eight parts, and merge the parts."""

    def normalise(rows: Any, weight: Any, bias: Any) -> Any:
        mean, square, count = torch.zeros_like(rows[:, :1]), torch.zeros_like(rows[:, :1]), 0
        for part in rows.chunk(8, dim=-1):
            size = part.shape[-1]
            own = part.mean(-1, keepdim=True)
            apart = own - mean
            square = square + (part - own).square().sum(-1, keepdim=True)
            square = square + apart * apart * (count * size / (count + size))
            mean = mean + apart * (size / (count + size))
            count += size
        scale = (square * (1 / rows.shape[-1]) + _EPS).rsqrt()
        return ((rows - mean) * scale).bfloat16().float() * weight + bias

    return _by_rows(inputs, normalise)


VARIANTS: Mapping[str, Implementation] = {
    "two_passes": two_passes,
    "one_pass": one_pass,
    "merged": merged,
}
