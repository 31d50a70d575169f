"""Honest implementations of `fp8_blockscale_fused_moe`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from atrex_problems_production._fp8 import as_codes
from atrex_problems_production._moe import Expert, swiglu
from atrex_problems_production.fp8_blockscale_fused_moe.private import finished, mixed

from atrex_core import Implementation, Tensors, Workload

_GROUP = 128


def _with(expert: Expert) -> Implementation:
    def variant(workload: Workload, inputs: Tensors) -> Tensors:
        return finished(inputs, mixed(workload, inputs, expert=expert))

    return variant


def _rounded(values: Any) -> Any:
    return values.bfloat16().float()


def _in_groups(values: Any, dtype: Any, *, powers: bool = False) -> Any:
    """Round to fp8 with one scale for each group of a row."""
    groups = values.unflatten(-1, (-1, _GROUP))
    scales = groups.abs().amax(-1, keepdim=True).clamp(min=1e-30) / torch.finfo(dtype).max
    if powers:
        scales = scales.log2().ceil().exp2()
    return (as_codes(groups / scales, dtype).float() * scales).flatten(-2)


def split_sums(rows: Any, weights: Any, first: Any, second: Any) -> Any:
    """Keep fp32; sum in another order."""
    z = rows[:, 0::2] @ first[:, 0::2].T + rows[:, 1::2] @ first[:, 1::2].T
    gate, up = z.chunk(2, dim=-1)
    return (gate / (1 + (-gate).exp()) * up * weights) @ second.T


def bf16_operands(rows: Any, weights: Any, first: Any, second: Any) -> Any:
    gate, up = (_rounded(rows) @ _rounded(first).T).chunk(2, dim=-1)
    return _rounded(swiglu(gate, up)) @ _rounded(second).T * weights


def fp8_groups(rows: Any, weights: Any, first: Any, second: Any) -> Any:
    gate, up = (rows @ first.T).chunk(2, dim=-1)
    return _in_groups(swiglu(gate, up), torch.float8_e4m3fn) @ second.T * weights


def fp8_groups_weighed_first(rows: Any, weights: Any, first: Any, second: Any) -> Any:
    gate, up = (rows @ first.T).chunk(2, dim=-1)
    a = swiglu(gate, up) * weights
    return _in_groups(a, torch.float8_e4m3fnuz, powers=True) @ second.T


VARIANTS: Mapping[str, Implementation] = {
    "split_sums": _with(split_sums),
    "bf16_operands": _with(bf16_operands),
    "fp8_groups": _with(fp8_groups),
    "fp8_groups_weighed_first": _with(fp8_groups_weighed_first),
}
