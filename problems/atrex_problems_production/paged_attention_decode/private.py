"""Judge `paged_attention_decode`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atrex_problems_production._problem import ProductionProblem

from atrex_core import (
    ArithmeticPath,
    Cost,
    DType,
    Implementation,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
)
from atrex_core.packs import altering, by_rows


class Operator(ProductionProblem):
    """One query per sequence against a paged cache."""

    summary = "decode attention over a paged key-value cache"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `query`, the two caches, `block_tables` and `seq_lens`."""
        a = workload.axes
        dtype, seqs, size, block = _dtype(workload), a["num_seqs"], a["head_size"], a["block_size"]
        width = -(-a["ctx_len"] // block)
        blocks = seqs * width + 16
        pack = 16 // dtype.item_bytes
        heads = a["num_kv_heads"]
        return (
            TensorSpec(name="query", dtype=dtype, shape=(seqs, a["num_query_heads"], size)),
            TensorSpec(
                name="k_cache", dtype=dtype, shape=(blocks, heads, size // pack, block, pack)
            ),
            TensorSpec(name="v_cache", dtype=dtype, shape=(blocks, heads, size, block)),
            TensorSpec(name="block_tables", dtype=DType.INT32, shape=(seqs, width)),
            TensorSpec(name="seq_lens", dtype=DType.INT32, shape=(seqs,)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        a = workload.axes
        shape = (a["num_seqs"], a["num_query_heads"], a["head_size"])
        return (TensorSpec(name="out", dtype=_dtype(workload), shape=shape),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Gather and attend in float64, some sequences at a time."""
        import torch

        k_cache, v_cache = inputs["k_cache"], inputs["v_cache"]
        heads, size, block = v_cache.shape[1:]
        gathered = inputs["block_tables"].shape[1] * block * heads * size

        def attend(query: Any, tables: Any, lengths: Any) -> Any:
            seqs = len(query)
            k = k_cache[tables.long()].permute(0, 1, 4, 2, 3, 5).reshape(seqs, -1, heads, size)
            v = v_cache[tables.long()].permute(0, 1, 4, 2, 3).reshape(seqs, -1, heads, size)
            q = query.double().view(seqs, heads, -1, size)
            scores = torch.einsum("nhgd,nthd->nhgt", q, k.double()) / size**0.5
            dead = torch.arange(k.shape[1], device=k.device) >= lengths[:, None]
            p = scores.masked_fill(dead[:, None, None], -torch.inf).softmax(-1).nan_to_num(0.0)
            return torch.einsum("nhgt,nthd->nhgd", p, v.double()).reshape(query.shape)

        rows = inputs["query"], inputs["block_tables"], inputs["seq_lens"]
        return {"out": by_rows(attend, *rows, row_elements=gathered)}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Leave room for operands of either product rounded to the cache's dtype."""
        return Tolerance(dtype=output.dtype, relative_l2=4, row_l2=8, element=3)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count live tokens only: no spare block, no dead slot, no query without tokens."""
        a = workload.axes
        block, size, heads = a["block_size"], a["head_size"], a["num_query_heads"]
        lengths = [a["ctx_len"]] * a["num_seqs"] if inputs is None else inputs["seq_lens"].tolist()
        live, rows = sum(lengths), sum(length > 0 for length in lengths)
        pages = sum(-(-length // block) for length in lengths)
        dtype = _dtype(workload)
        matrix = {DType.BF16: ArithmeticPath.BF16_MATRIX, DType.FP16: ArithmeticPath.FP16_MATRIX}
        return Cost(
            flops={
                matrix[dtype]: 4 * heads * live * size,
                ArithmeticPath.FP32_VECTOR: heads * (2 * live + rows * size),
            },
            read_bytes=dtype.item_bytes * size * (rows * heads + 2 * live * a["num_kv_heads"])
            + DType.INT32.item_bytes * (pages + len(lengths)),
            write_bytes=sum(spec.nbytes for spec in self.outputs(workload)),
        )

    def published_flops(self, workload: Workload) -> float:
        """Counts two integer operations per token, and files fp16 under bf16."""
        a = workload.axes
        per_token = 4 * a["num_query_heads"] * a["head_size"] + 2
        return float(a["num_seqs"] * a["ctx_len"] * per_token)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Ignore the table, the lengths, or a part of the softmax."""
        import torch

        def in_order(inputs: Tensors) -> Any:
            tables = inputs["block_tables"]
            return torch.arange(tables.numel(), device=tables.device).view_as(tables).int()

        def full(inputs: Tensors) -> Any:
            lengths, block = inputs["seq_lens"], inputs["v_cache"].shape[-1]
            return torch.full_like(lengths, inputs["block_tables"].shape[1] * block)

        def whole_blocks(inputs: Tensors) -> Any:
            block = inputs["v_cache"].shape[-1]
            return (inputs["seq_lens"] + block - 1) // block * block

        def one_less(inputs: Tensors) -> Any:
            return (inputs["seq_lens"] - 1).clamp(min=0)

        def other_heads(workload: Workload, inputs: Tensors) -> Tensors:
            return {"out": self.honest(workload, inputs)["out"].roll(1, 1)}

        return {
            "ignores_table": altering(self.honest, block_tables=in_order),
            "ignores_lengths": altering(self.honest, seq_lens=full),
            "masks_whole_blocks": altering(self.honest, seq_lens=whole_blocks),
            "misses_last_token": altering(self.honest, seq_lens=one_less),
            "values_of_next_slot": altering(
                self.honest, v_cache=lambda i: i["v_cache"].roll(1, -1)
            ),
            "ignores_query": altering(self.honest, query=lambda i: i["query"] * 0),
            "unscaled": altering(
                self.honest, query=lambda i: i["query"] * i["query"].shape[-1] ** 0.5
            ),
            "other_heads": other_heads,
        }


def _dtype(workload: Workload) -> DType:
    return DType(workload.axes["dtype"])
