"""What honest implementations of several operators share: sums as a kernel makes them."""

from __future__ import annotations

import math
from typing import Any

import torch

LOG2E = math.log2(math.e)


def partial_sums(values: Any, parts: int) -> Any:
    """Sum rows as a kernel with `parts` threads would: strided partial sums, then a tree."""
    width = values.shape[-1]
    padded = torch.nn.functional.pad(values, (0, -width % parts))
    sums = padded.unflatten(-1, (-1, parts)).sum(-2)
    while sums.shape[-1] > 1:
        sums = sums[..., : sums.shape[-1] // 2] + sums[..., sums.shape[-1] // 2 :]
    return sums


def norm(wide: Any, weight: Any, eps: float) -> Any:
    """Normalise rows of fp32 by their root mean square, weight and scale multiplied first."""
    mean = partial_sums(wide * wide, 32) / wide.shape[-1]
    return wide * (weight.float() / (mean + eps).sqrt())


def norm_rounded_before_weight(wide: Any, weight: Any, eps: float) -> Any:
    """Normalise rows of fp32, rounding to the dtype of `weight` before it is multiplied."""
    scale = (wide.pow(2).mean(-1, keepdim=True) + eps).pow(-0.5)
    return (wide * scale).to(weight.dtype) * weight
