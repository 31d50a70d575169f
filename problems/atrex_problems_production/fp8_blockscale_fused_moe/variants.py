"""Honest implementations of `fp8_blockscale_fused_moe`, written as kernels are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from atrex_problems_production._fp8 import as_codes
from atrex_problems_production._moe import Expert, swiglu
from atrex_problems_production.fp8_blockscale_fused_moe.private import finished, mixed

from atrex_core import Implementation, Tensors, Workload


def _with(expert: Expert) -> Implementation:
    def variant(workload: Workload, inputs: Tensors) -> Tensors:
        return finished(inputs, mixed(workload, inputs, expert=expert))

    return variant


def _in_groups_of_k(expert: Callable[..., Any]) -> Implementation:
    """Tell the expert how many columns share a scale."""

    def variant(workload: Workload, inputs: Tensors) -> Tensors:
        group = workload.init.get("scale_block_k", 128)
        return _with(partial(expert, group=group))(workload, inputs)

    return variant


def _rounded(values: Any) -> Any:
    return values.bfloat16().float()


def _in_groups(values: Any, dtype: Any, group: int, *, powers: bool = False) -> Any:
    """Round to fp8 with one scale for each group of a row."""
    groups = values.unflatten(-1, (-1, group))
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


def fp8_groups(rows: Any, weights: Any, first: Any, second: Any, *, group: int) -> Any:
    gate, up = (rows @ first.T).chunk(2, dim=-1)
    return _in_groups(swiglu(gate, up), torch.float8_e4m3fn, group) @ second.T * weights


def fp8_groups_weighed_first(
    rows: Any, weights: Any, first: Any, second: Any, *, group: int
) -> Any:
    gate, up = (rows @ first.T).chunk(2, dim=-1)
    a = swiglu(gate, up) * weights
    return _in_groups(a, torch.float8_e4m3fnuz, group, powers=True) @ second.T


VARIANTS: Mapping[str, Implementation] = {
    "split_sums": _with(split_sums),
    "bf16_operands": _with(bf16_operands),
    "fp8_groups": _in_groups_of_k(fp8_groups),
    "fp8_groups_weighed_first": _in_groups_of_k(fp8_groups_weighed_first),
}
