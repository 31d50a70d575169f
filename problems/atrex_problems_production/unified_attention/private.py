"""Judge `unified_attention`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atrex_problems_production._attention import (
    Attention,
    bottom_right,
    exact,
    plain,
    tolerance,
    work,
)
from atrex_problems_production._attention_mutants import (
    blocks_of,
    common_mutants,
    interleaved_heads,
)
from atrex_problems_production._problem import ProductionProblem
from attrs import evolve

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

_SPARE_BLOCKS = 64


class Operator(ProductionProblem):
    """Queries of a batch, prefill and decode mixed, against a paged cache."""

    summary = "causal attention over a paged key-value cache, prefill and decode alike"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `q`, the two caches, where queries begin, lengths, and `block_table`."""
        a = workload.axes
        _, k_lens = _lengths(workload)
        count, block = a["num_seqs"], a["block_size"]
        width = -(-max(k_lens) // block) + 2
        cache = (width * count + _SPARE_BLOCKS, block, a["num_kv_heads"], a["head_size"])
        return (
            *self._queries(workload, "q"),
            TensorSpec(name="k_cache", dtype=DType.BF16, shape=cache),
            TensorSpec(name="v_cache", dtype=DType.BF16, shape=cache),
            TensorSpec(name="cu_seqlens_q", dtype=DType.INT32, shape=(count + 1,)),
            TensorSpec(name="seqused_k", dtype=DType.INT32, shape=(count,)),
            TensorSpec(name="block_table", dtype=DType.INT32, shape=(count, width)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        return self._queries(workload, "out")

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Attend in float64, some queries at a time."""
        return {"out": attention(workload, inputs).by(exact)}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Leave room for operands of either product rounded to bf16."""
        return tolerance(output.dtype)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count what queries see: live tokens of sequences that have queries, nothing masked."""
        a = workload.axes
        if inputs is None:
            q_lens, k_lens = _lengths(workload)
        else:
            q_lens = inputs["cu_seqlens_q"].diff().tolist()
            k_lens = inputs["seqused_k"].tolist()
        pairs = [(n, k) for n, k in zip(q_lens, k_lens, strict=True) if n]
        rows, seen = (sum(side) for side in zip(*pairs, strict=True))
        scores = sum(n * (k - n) + n * (n + 1) // 2 for n, k in pairs)
        pages = sum(-(-k // a["block_size"]) for _, k in pairs)
        heads, size = a["num_query_heads"], a["head_size"]
        return Cost(
            flops=work(ArithmeticPath.BF16_MATRIX, heads, scores, rows, (size, size)),
            read_bytes=DType.BF16.item_bytes * size * (rows * heads + 2 * seen * a["num_kv_heads"])
            + DType.INT32.item_bytes * (2 * a["num_seqs"] + 1 + pages),
            write_bytes=sum(spec.nbytes for spec in self.outputs(workload)),
        )

    def published_flops(self, workload: Workload) -> float:
        """Counts the two products, of the triangle."""
        a = workload.axes
        triangle = sum(length * (length + 1) for length in a["seq_lens"])
        return float(2 * a["num_query_heads"] * a["head_size"] * triangle)

    def published_cost(self, workload: Workload) -> Cost:
        """Return the published work, and bytes of live tokens and of the blocks in use."""
        a = workload.axes
        rows = sum(a["seq_lens"])
        pages = sum(-(-length // a["block_size"]) for length in a["seq_lens"])
        tokens = rows * (a["num_query_heads"] + 2 * a["num_kv_heads"]) * a["head_size"]
        return Cost(
            flops=self.published_bucket(workload),
            read_bytes=DType.BF16.item_bytes * tokens
            + DType.INT32.item_bytes * (2 * a["num_seqs"] + 1 + pages),
            write_bytes=sum(spec.nbytes for spec in self.outputs(workload)),
        )

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Confuse the table, the lengths, or the mask; and what is wrong for any attention."""
        import torch

        def in_order(inputs: Tensors) -> Any:
            table = inputs["block_table"]
            return torch.arange(table.numel(), device=table.device).view_as(table).int()

        def table_of_next_sequence(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.axes["num_seqs"] == 1:
                raise Inapplicable("there is one sequence")
            table = inputs["block_table"].roll(1, 0)
            return self.honest(workload, {**inputs, "block_table": table})

        def room(inputs: Tensors) -> int:
            block: int = inputs["k_cache"].shape[1]
            return block * int(inputs["block_table"].shape[1])

        def whole_blocks(inputs: Tensors) -> Any:
            block = inputs["k_cache"].shape[1]
            return (inputs["seqused_k"] + block - 1) // block * block

        def one_more(inputs: Tensors) -> Any:
            return (inputs["seqused_k"] + 1).clamp(max=room(inputs))

        def masked(visible: Callable[[Any, Any, Any], Any] | None) -> Implementation:
            return lambda workload, inputs: {
                "out": evolve(attention(workload, inputs), visible=visible).rounded(plain)
            }

        def drops_partial_block(workload: Workload, inputs: Tensors) -> Tensors:
            block = workload.axes["block_size"]

            def visible(row: Any, queries: Any, keys: Any) -> Any:
                seen, full = bottom_right(row, queries, keys), keys // block * block
                return seen - (seen - full) * (seen > full)

            return masked(visible)(workload, inputs)

        def of_prefill(mutant: Implementation) -> Implementation:
            def checked(workload: Workload, inputs: Tensors) -> Tensors:
                if max(workload.axes["seq_lens"]) == 1:
                    raise Inapplicable("the newest token sees all")
                return mutant(workload, inputs)

            return checked

        def top_left(row: Any, *_: Any) -> Any:
            return row + 1

        def only_of_whole_prompts(row: Any, queries: Any, keys: Any) -> Any:
            return keys - (keys - row - 1) * (queries == keys)

        def next_key_too(row: Any, queries: Any, keys: Any) -> Any:
            return bottom_right(row, queries, keys) + 1

        return {
            **common_mutants(attention, lambda _: False, _longest),
            "interleaved_heads": interleaved_heads(attention),
            "blocks_of_16": blocks_of(16, attention, _cache),
            "drops_partial_block": drops_partial_block,
            "ignores_table": altering(self.honest, block_table=in_order),
            "table_of_next_sequence": table_of_next_sequence,
            "values_of_next_slot": altering(self.honest, v_cache=lambda i: i["v_cache"].roll(1, 1)),
            "whole_blocks": altering(self.honest, seqused_k=whole_blocks),
            "one_key_past_the_end": altering(self.honest, seqused_k=one_more),
            "mask_at_top_left": masked(top_left),
            "no_mask": of_prefill(masked(None)),
            "no_mask_but_of_whole_prompts": of_prefill(masked(only_of_whole_prompts)),
            "next_key_too": of_prefill(masked(next_key_too)),
        }

    def _queries(self, workload: Workload, name: str) -> tuple[TensorSpec]:
        a = workload.axes
        shape = (sum(a["seq_lens"]), a["num_query_heads"], a["head_size"])
        return (TensorSpec(name=name, dtype=DType.BF16, shape=shape),)


def attention(_: Workload, inputs: Tensors) -> Attention:
    """Read the inputs: tokens of a sequence are in the blocks that its row of the table names."""
    caches, table = (inputs["k_cache"], inputs["v_cache"]), inputs["block_table"].long()
    block, heads, size = caches[0].shape[1:]

    def fetch(sequences: Any, width: int) -> tuple[Any, Any]:
        blocks = table[sequences, : -(-width // block)]
        k, v = (cache[blocks].flatten(1, 2)[:, :width] for cache in caches)
        return k, v

    return Attention(
        query=inputs["q"],
        query_lens=inputs["cu_seqlens_q"].diff().tolist(),
        key_lens=inputs["seqused_k"].tolist(),
        fetch=fetch,
        heads=heads,
        value_size=size,
        scale=size**-0.5,
        visible=bottom_right,
    )


def _cache(inputs: Tensors) -> tuple[Any, Any, Any]:
    return inputs["k_cache"], inputs["v_cache"], inputs["block_table"]


def _lengths(workload: Workload) -> tuple[list[int], list[int]]:
    a = workload.axes
    return a["seq_lens"], a.get("kv_lens") or a["seq_lens"]


def _longest(workload: Workload) -> int:
    return max(_lengths(workload)[1])
