"""Honest implementations of `block_scaled_mm`, written as kernels are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from atrex_core import Implementation, Tensors, Workload

_CHUNK = 1 << 24
"""Elements of the result computed at once."""

_STEP = 32
"""Columns that a matrix unit multiplies and adds in one instruction."""


def _chunks(workload: Workload, inputs: Tensors) -> Iterator[tuple[slice, Any]]:
    """Yield blocks of rows with, for each group, the operands and the scales of their product."""
    a, b, n = inputs["a"], inputs["b"].float(), workload.axes["n"]
    size = workload.init["group_k"]
    by_row = inputs["b_scales"].repeat_interleave(workload.init["group_n"], 0)[:n]
    step = max(1, _CHUNK // n)
    for start in range(0, len(a), step):
        rows = slice(start, start + step)
        parts = zip(
            a[rows].float().split(size, 1),
            b.split(size, 1),
            inputs["a_scales"][rows].split(1, 1),
            by_row.split(1, 1),
            strict=True,
        )
        yield rows, [(left, right, s, t.t()) for left, right, s, t in parts]


def _grouped(
    accumulate: Callable[[Any, list[tuple[Any, Any, Any, Any]]], None],
) -> Implementation:
    """Return what lets `accumulate` add all groups of a block of rows to zeros."""

    def run(workload: Workload, inputs: Tensors) -> Tensors:
        out = torch.zeros(len(inputs["a"]), workload.axes["n"], device=inputs["a"].device)
        for rows, groups in _chunks(workload, inputs):
            accumulate(out[rows], groups)
        return {"out": out}

    return run


def _in_order(out: Any, groups: list[tuple[Any, Any, Any, Any]]) -> None:
    """Sum the products of exact codes, then scale by both scales at once."""
    for left, right, of_left, of_right in groups:
        out += (left @ right.t()) * (of_left * of_right)


def _split(out: Any, groups: list[tuple[Any, Any, Any, Any]]) -> None:
    """Give every other group to another accumulator, last ones first; scale one at a time."""
    other = torch.zeros_like(out)
    for number, (left, right, of_left, of_right) in reversed(list(enumerate(groups))):
        target = other if number % 2 else out
        target += (left @ right.t()) * of_left * of_right
    out += other


def _narrow(out: Any, groups: list[tuple[Any, Any, Any, Any]]) -> None:
    """Keep 13 bits of a group's sum after every step; scale and add in fp32."""
    for left, right, of_left, of_right in groups:
        total = torch.zeros_like(out)
        for a, b in zip(left.split(_STEP, 1), right.split(_STEP, 1), strict=True):
            total += a @ b.t()
            total.view(torch.int32).bitwise_and_(~0x3FF)
        out += total * of_left * of_right


VARIANTS: Mapping[str, Implementation] = {
    "in_order": _grouped(_in_order),
    "split": _grouped(_split),
    "narrow": _grouped(_narrow),
}
