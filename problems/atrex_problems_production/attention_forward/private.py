"""Judge `attention_forward`: float64 truth, cost, and wrong implementations."""

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

_LONG = 1 << 14
"""Keys of one sequence from which on float64 is too slow."""


class Operator(ProductionProblem):
    """Every query of a sequence sees every key of it."""

    summary = "attention within packed sequences, without a mask"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `q`, `k`, `v` and where sequences begin in them."""
        q_lens, k_lens = _lengths(workload)
        heads, size = workload.axes["num_heads"], workload.axes["head_dim"]
        keys = (sum(k_lens), heads, size)
        starts = (len(q_lens) + 1,)
        return (
            *self._queries(workload, "q"),
            TensorSpec(name="k", dtype=DType.BF16, shape=keys),
            TensorSpec(name="v", dtype=DType.BF16, shape=keys),
            TensorSpec(name="cu_seqlens_q", dtype=DType.INT32, shape=starts),
            TensorSpec(name="cu_seqlens_k", dtype=DType.INT32, shape=starts),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        return self._queries(workload, "out")

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Attend in float64, some queries at a time; in fp32 where a sequence is very long.

        There float64 would take seconds. In fp32 the largest error of an element, for scores of 128
        and 65,556 keys, was 1.5e-4 of its row's root mean square: a fiftieth of bf16's epsilon.
        """
        right = attention(workload, inputs)
        is_long = max(right.key_lens) > _LONG
        return {"out": right.by(plain if is_long else exact)}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Leave room for operands of either product rounded to bf16."""
        return tolerance(output.dtype)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count pairs of a query and a key of one sequence; no key that no query sees."""
        if inputs is None:
            q_lens, k_lens = _lengths(workload)
        else:
            q_lens, k_lens = (inputs[f"cu_seqlens_{x}"].diff().tolist() for x in "qk")
        heads, size = workload.axes["num_heads"], workload.axes["head_dim"]
        pairs = list(zip(q_lens, k_lens, strict=True))
        rows, seen = sum(q_lens), sum(keys for queries, keys in pairs if queries)
        scores = sum(queries * keys for queries, keys in pairs)
        return Cost(
            flops=work(ArithmeticPath.BF16_MATRIX, heads, scores, rows, (size, size)),
            read_bytes=DType.BF16.item_bytes * heads * size * (rows + 2 * seen)
            + DType.INT32.item_bytes * 2 * (len(pairs) + 1),
            write_bytes=sum(spec.nbytes for spec in self.outputs(workload)),
        )

    def published_flops(self, workload: Workload) -> float:
        """Counts the two products alone."""
        heads, size = workload.axes["num_heads"], workload.axes["head_dim"]
        scores: int = sum(length**2 for length in workload.axes["seq_lens"])
        return float(4 * heads * size * scores)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Confuse sequences or their keys, or mask; and what is wrong for any attention."""

        def of_several(wrong: Implementation) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                if len(workload.axes["seq_lens"]) == 1:
                    raise Inapplicable("there is one sequence")
                return wrong(workload, inputs)

            return mutant

        def starts(change: Callable[[Any], Any]) -> Implementation:
            def changed(name: str) -> Callable[[Tensors], Any]:
                return lambda inputs: change(inputs[name].clone())

            both = ("cu_seqlens_q", "cu_seqlens_k")
            return of_several(altering(self.honest, **{name: changed(name) for name in both}))

        def one_sequence(starts: Any) -> Any:
            starts[1:-1] = 0
            return starts

        def equal_lengths(starts: Any) -> Any:
            count = len(starts) - 1
            return (starts[-1] * starts.new_tensor(range(count + 1))) // count

        def next_key_too(workload: Workload, inputs: Tensors) -> Tensors:
            right = attention(workload, inputs)
            more = [keys + 1 for keys in right.key_lens]
            more[-1] -= 1
            return {"out": evolve(right, key_lens=more).rounded(plain)}

        def keys_where_queries_are(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.axes.get("kv_lens") is None:
                raise Inapplicable("keys are where queries are")
            where = inputs["cu_seqlens_q"].clamp(max=len(inputs["k"]))
            return self.honest(workload, {**inputs, "cu_seqlens_k": where})

        def causal(workload: Workload, inputs: Tensors) -> Tensors:
            if max(workload.axes["seq_lens"]) == 1:
                raise Inapplicable("the last query sees every key")
            return {"out": evolve(attention(workload, inputs), visible=bottom_right).rounded(plain)}

        def values_of_next_key(workload: Workload, inputs: Tensors) -> Tensors:
            if len(inputs["v"]) == 1:
                raise Inapplicable("there is one key")
            return self.honest(workload, {**inputs, "v": inputs["v"].roll(1, 0)})

        return {
            **common_mutants(attention, _is_single, _longest),
            "one_sequence": starts(one_sequence),
            "equal_lengths": starts(equal_lengths),
            "next_key_too": of_several(next_key_too),
            "keys_where_queries_are": keys_where_queries_are,
            "causal": causal,
            "values_of_next_key": values_of_next_key,
        }

    def _queries(self, workload: Workload, name: str) -> tuple[TensorSpec]:
        a = workload.axes
        shape = (sum(a["seq_lens"]), a["num_heads"], a["head_dim"])
        return (TensorSpec(name=name, dtype=DType.BF16, shape=shape),)


def attention(_: Workload, inputs: Tensors) -> Attention:
    """Read the inputs: sequence i has keys from where `cu_seqlens_k[i]` says."""
    import torch

    k, v, starts = inputs["k"], inputs["v"], inputs["cu_seqlens_k"].long()

    def fetch(sequences: Any, width: int) -> tuple[Any, Any]:
        place = starts[sequences, None] + torch.arange(width, device=k.device)
        place = place.clamp(max=len(k) - 1)
        return k[place], v[place]

    heads, size = k.shape[1:]
    return Attention(
        query=inputs["q"],
        query_lens=inputs["cu_seqlens_q"].diff().tolist(),
        key_lens=starts.diff().tolist(),
        fetch=fetch,
        heads=heads,
        value_size=size,
        scale=size**-0.5,
    )


def _lengths(workload: Workload) -> tuple[list[int], list[int]]:
    a = workload.axes
    return a["seq_lens"], a.get("kv_lens") or a["seq_lens"]


def _longest(workload: Workload) -> int:
    return max(_lengths(workload)[1])


def _is_single(workload: Workload) -> bool:
    return _longest(workload) == 1
