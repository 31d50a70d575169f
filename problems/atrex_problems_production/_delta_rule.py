"""What the private halves of the delta-rule operators share: chunks, heads, and state pools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atrex_core import Implementation, Inapplicable, RowBlocks, Tensors, TensorSpec, Workload
from atrex_core.packs import altering

_BLOCK = 1 << 23
"""Elements of a pool converted at once."""


def chunked(x: Any, size: int, heads: int) -> Any:
    """Cut [batch, tokens, own heads, ...] into [batch, chunks, heads, size, ...], padded by zeros.

    Where there are fewer heads than asked for, contiguous groups share each of them.
    """
    import torch

    trailing = [0, 0] * (x.dim() - 2)
    padded = torch.nn.functional.pad(x, (*trailing, 0, -x.shape[1] % size))
    return padded.unflatten(1, (-1, size)).transpose(2, 3).repeat_interleave(heads // x.shape[2], 2)


def rejoined(x: Any, tokens: int) -> Any:
    """Undo `chunked`: return [batch, tokens, heads, ...]."""
    return x.transpose(2, 3).flatten(1, 2)[:, :tokens]


def interleaved(x: Any, heads: int) -> Any:
    """Let head n share the n-th of fewer heads modulo their number: the wrong way round."""
    if x.shape[2] in (1, heads):
        raise Inapplicable("every way of sharing heads is the same")
    return x.repeat(1, 1, heads // x.shape[2], *[1] * (x.dim() - 3))


def unchanged(x: Any) -> Any:
    """Return a tensor as it is: where a mutant would alter it."""
    return x


def as_bf16(x: Any) -> Any:
    """Round to bf16; keep the dtype."""
    return x.bfloat16().to(x.dtype)


def as_fp16(x: Any) -> Any:
    """Round to fp16; keep the dtype."""
    return x.half().to(x.dtype)


def bytes_beside_pool(specs: Sequence[TensorSpec]) -> int:
    """Add up all tensors but the pool, of which only some rows are in use."""
    return sum(spec.nbytes for spec in specs if spec.name not in ("initial_state", "final_state"))


def pool_after(inputs: Tensors, active: Any) -> RowBlocks:
    """Return the pool of states with the rows in use replaced by `active`, in float64, lazily."""
    import torch

    pool, rows = inputs["initial_state"], inputs["initial_state_indices"].long()
    sequence = torch.full((len(pool),), -1, device=pool.device)
    sequence[rows] = torch.arange(len(rows), device=pool.device)

    def compute(start: int, stop: int) -> Any:
        here = sequence[start:stop]
        used = (here >= 0).view(-1, *[1] * (pool.dim() - 1))
        return torch.where(used, active[here.clamp(min=0)].double(), pool[start:stop].double())

    step = max(1, _BLOCK // pool[0].numel())
    return RowBlocks(shape=tuple(pool.shape), step=step, compute=compute)


def pool_mutants(honest: Implementation) -> Mapping[str, Implementation]:
    """Return what is wrong for any operator that updates rows of a pool of states."""
    import torch

    def rows(inputs: Tensors) -> Any:
        return inputs["initial_state_indices"].long()

    def in_order(inputs: Tensors) -> Any:
        indices = inputs["initial_state_indices"]
        _need_a_choice(inputs)
        return torch.arange(len(indices), dtype=indices.dtype, device=indices.device)

    def next_row(inputs: Tensors) -> Any:
        _need_a_choice(inputs)
        return (inputs["initial_state_indices"] + 1) % len(inputs["initial_state"])

    def read_in_order(inputs: Tensors) -> Any:
        _need_a_choice(inputs)
        pool = inputs["initial_state"].clone()
        pool[rows(inputs)] = inputs["initial_state"][: len(rows(inputs))]
        return pool

    def from_zero(inputs: Tensors) -> Any:
        return inputs["initial_state"].index_fill(0, rows(inputs), 0.0)

    def written_in_order(workload: Workload, inputs: Tensors) -> Tensors:
        _need_a_choice(inputs)
        right = honest(workload, inputs)
        pool = inputs["initial_state"].clone()
        pool[: len(rows(inputs))] = right["final_state"][rows(inputs)]
        return {**right, "final_state": pool}

    def not_written(workload: Workload, inputs: Tensors) -> Tensors:
        right = honest(workload, inputs)
        return {**right, "final_state": inputs["initial_state"].clone()}

    def others_zeroed(workload: Workload, inputs: Tensors) -> Tensors:
        if len(rows(inputs)) == len(inputs["initial_state"]):
            raise Inapplicable("every row of the pool is in use")
        right = honest(workload, inputs)
        pool = torch.zeros_like(inputs["initial_state"])
        pool[rows(inputs)] = right["final_state"][rows(inputs)]
        return {**right, "final_state": pool}

    return {
        "ignores_indices": altering(honest, initial_state_indices=in_order),
        "state_of_next_row": altering(honest, initial_state_indices=next_row),
        "state_read_in_order": altering(honest, initial_state=read_in_order),
        "state_from_zero": altering(honest, initial_state=from_zero),
        "state_written_in_order": written_in_order,
        "state_not_written": not_written,
        "other_rows_zeroed": others_zeroed,
    }


def _need_a_choice(inputs: Tensors) -> None:
    if len(inputs["initial_state"]) == 1:
        raise Inapplicable("the pool has one row")
