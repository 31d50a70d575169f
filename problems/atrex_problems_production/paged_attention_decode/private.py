"""Judge `paged_attention_decode`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atrex_problems_production._attention import (
    Attention,
    exact,
    tolerance,
    work,
)
from atrex_problems_production._attention_mutants import (
    blocks_of,
    common_mutants,
    interleaved_heads,
)
from atrex_problems_production._problem import ProductionProblem

from atrex_core import (
    ArithmeticPath,
    Cost,
    DType,
    Implementation,
    Inapplicable,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
)
from atrex_core.packs import altering


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
        """Attend in float64, some sequences at a time."""
        return {"out": attention(workload, inputs).by(exact)}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Leave room for operands of either product rounded to the cache's dtype."""
        return tolerance(output.dtype)

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
            flops=work(matrix[dtype], heads, live, rows, (size, size)),
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
        """Ignore the table or the lengths; and what is wrong for any attention."""
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

        def full_blocks(inputs: Tensors) -> Any:
            block = inputs["v_cache"].shape[-1]
            return inputs["seq_lens"] // block * block

        def table_of_next_sequence(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.axes["num_seqs"] == 1:
                raise Inapplicable("there is one sequence")
            tables = inputs["block_tables"].roll(1, 0)
            return self.honest(workload, {**inputs, "block_tables": tables})

        return {
            **common_mutants(attention, _is_single, _longest),
            "interleaved_heads": interleaved_heads(attention),
            "blocks_of_16": blocks_of(16, attention, _cache),
            "drops_partial_block": altering(self.honest, seq_lens=full_blocks),
            "ignores_table": altering(self.honest, block_tables=in_order),
            "table_of_next_sequence": table_of_next_sequence,
            "ignores_lengths": altering(self.honest, seq_lens=full),
            "masks_whole_blocks": altering(self.honest, seq_lens=whole_blocks),
            "values_of_next_slot": altering(
                self.honest, v_cache=lambda i: i["v_cache"].roll(1, -1)
            ),
        }


def attention(_: Workload, inputs: Tensors) -> Attention:
    """Read the inputs: tokens of a sequence are in the blocks that its row of the table names."""
    k_cache, v_cache = inputs["k_cache"], inputs["v_cache"]
    tables, query = inputs["block_tables"].long(), inputs["query"]
    heads, size, block = v_cache.shape[1:]

    def fetch(sequences: Any, width: int) -> tuple[Any, Any]:
        blocks = tables[sequences, : -(-width // block)]
        k = k_cache[blocks].permute(0, 1, 4, 2, 3, 5).flatten(4).flatten(1, 2)
        v = v_cache[blocks].permute(0, 1, 4, 2, 3).flatten(1, 2)
        return k[:, :width], v[:, :width]

    return Attention(
        query=query,
        query_lens=[1] * len(query),
        key_lens=inputs["seq_lens"].tolist(),
        fetch=fetch,
        heads=heads,
        value_size=size,
        scale=size**-0.5,
    )


def _cache(inputs: Tensors) -> tuple[Any, Any, Any]:
    """Return the caches token by token, and the table."""
    k = inputs["k_cache"].permute(0, 3, 1, 2, 4).flatten(3)
    return k, inputs["v_cache"].permute(0, 3, 1, 2), inputs["block_tables"]


def _longest(workload: Workload) -> int:
    return int(workload.axes["ctx_len"])


def _is_single(workload: Workload) -> bool:
    return _longest(workload) == 1


def _dtype(workload: Workload) -> DType:
    return DType(workload.axes["dtype"])
