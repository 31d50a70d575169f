"""Honest implementations of `causal_conv1d`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from atrex_problems_production._variants import LOG2E

from atrex_core import Implementation, Tensors, Workload


def newest_first(workload: Workload, inputs: Tensors) -> Tensors:
    """Add the bias last, and divide by one plus a power of two."""
    y: Any = 0.0
    taps = list(_taps(inputs))
    for weight, samples in reversed(taps):
        y = y + weight * samples
    y = y + inputs["bias"].float()[:, None]
    if workload.init["activation"] is not None:
        y = y / (1 + torch.exp2(-LOG2E * y))
    return {"out": y.bfloat16()}


def rounded_before_activation(workload: Workload, inputs: Tensors) -> Tensors:
    """Store y as bf16, then activate it in a second pass."""
    y = inputs["bias"].float()[:, None]
    for weight, samples in _taps(inputs):
        y = y + weight * samples
    y = y.bfloat16()
    if workload.init["activation"] is not None:
        y = torch.nn.functional.silu(y)
    return {"out": y}


def by_tanh(workload: Workload, inputs: Tensors) -> Tensors:
    """Add pairs of taps first; take the sigmoid from a hyperbolic tangent."""
    sums: list[Any] = [weight * samples for weight, samples in _taps(inputs)]
    sums.append(inputs["bias"].float()[:, None].expand_as(sums[0]))
    while len(sums) > 1:
        sums = [sum(sums[i + 1 : i + 2], sums[i]) for i in range(0, len(sums), 2)]
    (y,) = sums
    if workload.init["activation"] is not None:
        half = 0.5 * y
        y = half + half * half.tanh()
    return {"out": y.bfloat16()}


VARIANTS: Mapping[str, Implementation] = {
    "newest_first": newest_first,
    "rounded_before_activation": rounded_before_activation,
    "by_tanh": by_tanh,
}


def _taps(inputs: Tensors) -> Any:
    """Yield each tap with the samples it meets, oldest first, in fp32."""
    x, weight = inputs["x"], inputs["weight"].float()
    z = torch.cat([inputs["initial_state"][0], x], dim=1).float()
    for tap in range(weight.shape[1]):
        yield weight[:, tap, None], z[:, tap : tap + x.shape[1]]
