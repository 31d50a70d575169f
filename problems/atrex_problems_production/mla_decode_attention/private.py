"""Judge `mla_decode_attention`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from atrex_problems_production._attention import (
    Attention,
    exact,
    plain,
    tolerance,
    work,
)
from atrex_problems_production._attention_mutants import common_mutants
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


class Operator(ProductionProblem):
    """One query per sequence and head against rows that all heads share."""

    summary = "latent attention of one new token per sequence over a packed cache"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `q`, `kv_cache` and `seq_lens`."""
        a = workload.axes
        count, row = a["batch_size"], a["kv_lora_rank"] + a["qk_rope_head_dim"]
        return (
            TensorSpec(name="q", dtype=DType.BF16, shape=(count, a["nhead"], row)),
            TensorSpec(name="kv_cache", dtype=DType.BF16, shape=(count * a["ctx_len"], 1, row)),
            TensorSpec(name="seq_lens", dtype=DType.INT32, shape=(count,)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        a = workload.axes
        shape = (a["batch_size"], a["nhead"], a["kv_lora_rank"])
        return (TensorSpec(name="out", dtype=DType.BF16, shape=shape),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Attend in float64, some sequences at a time."""
        return {"out": attention(workload, inputs).by(exact)}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Leave room for operands of either product rounded to bf16."""
        return tolerance(output.dtype)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count each live row once: as key and as value, for all heads."""
        a = workload.axes
        count, heads, values = a["batch_size"], a["nhead"], a["kv_lora_rank"]
        row = values + a["qk_rope_head_dim"]
        live = count * a["ctx_len"] if inputs is None else int(inputs["seq_lens"].sum())
        return Cost(
            flops=work(ArithmeticPath.BF16_MATRIX, heads, live, count, (row, values)),
            read_bytes=DType.BF16.item_bytes * row * (count * heads + live)
            + DType.INT32.item_bytes * count,
            write_bytes=sum(spec.nbytes for spec in self.outputs(workload)),
        )

    def published_flops(self, workload: Workload) -> float:
        """Counts a multiplication for each element of the query, and of the row for each head."""
        a = workload.axes
        heads, tokens, values = a["nhead"], a["ctx_len"], a["kv_lora_rank"]
        row = values + a["qk_rope_head_dim"]
        products = 2 * heads * tokens * (row + values)
        return float(a["batch_size"] * (products + heads * row * (tokens + 1)))

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Confuse the lengths, or the parts of a row; and what is wrong for any attention."""
        import torch

        def of_several(wrong: Implementation, axis: str, why: str) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                if workload.axes[axis] == 1:
                    raise Inapplicable(why)
                return wrong(workload, inputs)

            return mutant

        def of_rows(wrong: Implementation) -> Implementation:
            return of_several(wrong, "ctx_len", "each sequence has one row")

        def equal_lengths(workload: Workload, inputs: Tensors) -> Tensors:
            lengths = torch.full_like(inputs["seq_lens"], workload.axes["ctx_len"])
            return self.honest(workload, {**inputs, "seq_lens": lengths})

        def starts_at_multiples(workload: Workload, inputs: Tensors) -> Tensors:
            right = attention(workload, inputs)
            fetch = _fetch(workload, inputs, [workload.axes["ctx_len"]] * len(right.key_lens))
            return {"out": evolve(right, fetch=fetch).rounded(plain)}

        def next_row_too(workload: Workload, inputs: Tensors) -> Tensors:
            right = attention(workload, inputs)
            more = [keys + 1 for keys in right.key_lens]
            return {"out": evolve(right, key_lens=more).rounded(plain)}

        def values_from(first: Callable[[Workload], int]) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                right = attention(workload, inputs)

                def fetch(sequences: Any, width: int) -> tuple[Any, Any]:
                    keys, _ = right.fetch(sequences, width)
                    return keys, keys.roll(-first(workload), -1)[..., : right.value_size]

                return {"out": evolve(right, fetch=fetch).rounded(plain)}

            return mutant

        def latent_alone(workload: Workload, inputs: Tensors) -> Tensors:
            query = inputs["q"].clone()
            query[:, :, workload.axes["kv_lora_rank"] :] = 0
            return self.honest(workload, {**inputs, "q": query})

        def scale_of_latent(workload: Workload, inputs: Tensors) -> Tensors:
            scale = workload.axes["kv_lora_rank"] ** -0.5
            return {"out": evolve(attention(workload, inputs), scale=scale).rounded(plain)}

        return {
            **common_mutants(attention, _is_single, _longest),
            "equal_lengths": of_rows(equal_lengths),
            "starts_at_multiples": of_rows(
                of_several(starts_at_multiples, "batch_size", "there is one sequence")
            ),
            "next_row": of_rows(
                altering(self.honest, kv_cache=lambda inputs: inputs["kv_cache"].roll(-1, 0))
            ),
            "next_row_too": of_rows(next_row_too),
            "values_from_the_end": values_from(lambda w: w.axes["qk_rope_head_dim"]),
            "latent_alone": of_rows(latent_alone),
            "scale_of_latent": of_rows(scale_of_latent),
        }


def attention(workload: Workload, inputs: Tensors) -> Attention:
    """Read the inputs: rows of sequences stand back to back; one head of keys."""
    lengths = inputs["seq_lens"].tolist()
    query = inputs["q"]
    return Attention(
        query=query,
        query_lens=[1] * len(query),
        key_lens=lengths,
        fetch=_fetch(workload, inputs, lengths),
        heads=1,
        value_size=workload.axes["kv_lora_rank"],
        scale=query.shape[2] ** -0.5,
    )


def _fetch(
    workload: Workload, inputs: Tensors, lengths: Sequence[int]
) -> Callable[[Any, int], tuple[Any, Any]]:
    import torch

    cache, values = inputs["kv_cache"], workload.axes["kv_lora_rank"]
    starts = torch.tensor([0, *accumulate(lengths)], device=cache.device)

    def fetch(sequences: Any, width: int) -> tuple[Any, Any]:
        place = starts[sequences, None] + torch.arange(width, device=cache.device)
        keys = cache[place.clamp(max=len(cache) - 1)]
        return keys, keys[..., :values]

    return fetch


def _longest(workload: Workload) -> int:
    return int(workload.axes["ctx_len"])


def _is_single(workload: Workload) -> bool:
    return _longest(workload) == 1
