"""Judge `chunk_delta_rule_output`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atrex_problems_production._delta_rule import chunked, interleaved, rejoined
from atrex_problems_production._problem import ProductionProblem
from atrex_problems_production._stores import storing, toward_zero

from atrex_core import (
    ArithmeticPath,
    Cost,
    DType,
    Implementation,
    Inapplicable,
    Tensors,
    TensorSpec,
    Workload,
)
from atrex_core.packs import altering, coarse

_BLOCK = 1 << 23
"""Elements of one float64 intermediate, all told."""

Weigh = Callable[[Any, Any, Any], Any]
"""Weights from scores q_i . k_j, from g_i - g_j, and from where j <= i."""


class Operator(ProductionProblem):
    """What the tokens of each chunk read from its state and from each other."""

    summary = "chunkwise output of the gated delta rule, from chunk states and within chunks"
    fp32_truth = ("out",)

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `q`, `k`, `v`, the chunks' states `h`, and `g`."""
        a = workload.axes
        batch, tokens, heads = a["batch_size"], a["token_count"], a["num_v_heads"]
        key_dim, value_dim = a["key_dim"], a["value_dim"]
        keys = (batch, tokens, a["num_q_heads"], key_dim)
        states = (batch, _chunks(workload), heads, key_dim, value_dim)
        return (
            TensorSpec(name="q", dtype=DType.BF16, shape=keys),
            TensorSpec(name="k", dtype=DType.BF16, shape=keys),
            TensorSpec(name="v", dtype=DType.BF16, shape=(batch, tokens, heads, value_dim)),
            TensorSpec(name="h", dtype=DType.BF16, shape=states),
            TensorSpec(name="g", dtype=DType.FP32, shape=(batch, tokens, heads)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        a = workload.axes
        shape = (a["batch_size"], a["token_count"], a["num_v_heads"], a["value_dim"])
        return (TensorSpec(name="out", dtype=DType.BF16, shape=shape),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Compute in float64, some chunks at a time, and hold the result in fp32.

        The weights stay wide: rounding them is a freedom, and the reference takes it. One rounding
        to fp32 is far below the last bit of bf16.
        """
        import torch

        return {"out": _output(workload, inputs, torch.float64, _falling)}

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count rows that read the state, and pairs of rows that count: half of the causal ones.

        Both terms end in one sum; decay of a pair takes a difference and a product, unless a row
        meets itself.
        """
        a = workload.axes
        batch, tokens, heads = a["batch_size"], a["token_count"], a["num_v_heads"]
        rows = batch * tokens * heads
        pairs = _expected_pairs(workload) if inputs is None else _live_pairs(workload, inputs["g"])
        matrix = 2 * rows * a["key_dim"] * a["value_dim"]
        matrix += 2 * pairs * (a["key_dim"] + a["value_dim"])
        vector = 2 * rows * a["value_dim"] + 2 * (pairs - rows)
        return self.count(
            workload,
            {ArithmeticPath.BF16_MATRIX: matrix, ArithmeticPath.FP32_VECTOR: vector},
        )

    def published_flops(self, workload: Workload) -> float:
        """Every chunk is full there, and every pair of its rows counts."""
        a, size = workload.axes, workload.init["chunk_size"]
        key_dim, value_dim = a["key_dim"], a["value_dim"]
        per_chunk = 2 * size * key_dim * value_dim + 2 * size**2 * (key_dim + value_dim + 1)
        per_chunk += 3 * size * value_dim
        return float(a["batch_size"] * a["num_v_heads"] * _chunks(workload) * per_chunk)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Lose a term or a factor, let other pairs of rows count, or read another state."""
        import torch

        def with_weights(weigh: Weigh) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                return {"out": _output(workload, inputs, torch.float32, weigh).bfloat16()}

            return mutant

        def of_pairs(weigh: Weigh, rows: int = 2) -> Implementation:
            wrong = with_weights(weigh)

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                if min(workload.axes["token_count"], workload.init["chunk_size"]) < rows:
                    raise Inapplicable(f"no chunk has {rows} rows")
                return wrong(workload, inputs)

            return mutant

        def rising_too(scores: Any, fall: Any, causal: Any) -> Any:
            return torch.where(causal, scores * fall.exp(), 0.0)

        def rising_undiminished(scores: Any, fall: Any, causal: Any) -> Any:
            return torch.where(causal, scores * fall.clamp(max=0).exp(), 0.0)

        def later_rows_too(scores: Any, fall: Any, _: Any) -> Any:
            return torch.where(fall <= 0, scores * fall.exp(), 0.0)

        def no_ties(scores: Any, fall: Any, causal: Any) -> Any:
            return torch.where(causal & (fall < 0), scores * fall.exp(), 0.0)

        def without_own_row(scores: Any, fall: Any, causal: Any) -> Any:
            return _falling(scores, fall, causal).tril(-1)

        def undiminished(scores: Any, fall: Any, causal: Any) -> Any:
            return torch.where(causal & (fall <= 0), scores, 0.0)

        def factored(scores: Any, fall: Any, causal: Any) -> Any:
            """Multiply by exp(g_i) and by exp(-g_j), which overflows."""
            gates = fall[..., :, :1] - fall[..., :1, :1]
            powers = gates.exp() * (-gates).exp().transpose(-1, -2)
            return torch.where(causal & (fall <= 0), scores * powers, 0.0)

        def coarse_weights(scores: Any, fall: Any, causal: Any) -> Any:
            return coarse(_falling(scores, fall, causal), 3)

        def no_decay_of_state(workload: Workload, inputs: Tensors) -> Tensors:
            state = {**inputs, "g": inputs["g"] * 0, "v": inputs["v"] * 0}
            pairs = {**inputs, "h": inputs["h"] * 0}
            parts = (self.honest(workload, part)["out"] for part in (state, pairs))
            return {"out": sum(parts, torch.zeros_like(inputs["v"]))}

        def unscaled(workload: Workload, inputs: Tensors) -> Tensors:
            return self.run_reference(workload, inputs, **{**workload.init, "scale": 1.0})

        def default_scale(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.init.get("scale") is None:
                raise Inapplicable("it is the right one")
            return self.run_reference(workload, inputs, **{**workload.init, "scale": None})

        def of_other_chunk(shift: int) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                if inputs["h"].shape[1] == 1:
                    raise Inapplicable("there is one chunk")
                return self.honest(workload, {**inputs, "h": inputs["h"].roll(shift, 1)})

            return mutant

        def chunks_twice_as_long(workload: Workload, inputs: Tensors) -> Tensors:
            if inputs["h"].shape[1] == 1:
                raise Inapplicable("there is one chunk")
            longer = {**workload.init, "chunk_size": 2 * workload.init["chunk_size"]}
            states = inputs["h"][:, ::2].contiguous()
            return self.run_reference(workload, {**inputs, "h": states}, **longer)

        def no_short_chunk(workload: Workload, inputs: Tensors) -> Tensors:
            short = workload.axes["token_count"] % workload.init["chunk_size"]
            if not short:
                raise Inapplicable("every chunk is full")
            out = self.honest(workload, inputs)["out"]
            out[:, -short:] = 0
            return {"out": out}

        def transposed(inputs: Tensors) -> Any:
            h = inputs["h"]
            if h.shape[-1] != h.shape[-2]:
                raise Inapplicable("the state has another shape transposed")
            return h.transpose(-1, -2).contiguous()

        def of_other_sequence(inputs: Tensors) -> Any:
            if len(inputs["h"]) == 1:
                raise Inapplicable("there is one sequence")
            return inputs["h"].roll(1, 0)

        return {
            "no_state": altering(self.honest, h=lambda i: i["h"] * 0),
            "no_pairs": altering(self.honest, v=lambda i: i["v"] * 0),
            "rising_too": of_pairs(rising_too),
            "rising_undiminished": of_pairs(rising_undiminished),
            "later_rows_too": of_pairs(later_rows_too),
            "undiminished_pairs": of_pairs(undiminished),
            "factored_decay": of_pairs(factored, rows=16),
            "no_ties": with_weights(no_ties),
            "without_own_row": with_weights(without_own_row),
            "coarse_weights": with_weights(coarse_weights),
            "no_decay_of_state": no_decay_of_state,
            "unscaled": unscaled,
            "state_after_chunk": of_other_chunk(-1),
            "state_of_previous_chunk": of_other_chunk(1),
            "state_of_other_sequence": altering(self.honest, h=of_other_sequence),
            "state_transposed": altering(self.honest, h=transposed),
            "chunks_twice_as_long": chunks_twice_as_long,
            "no_short_chunk": no_short_chunk,
            "truncated": storing(self, toward_zero),
            "default_scale": default_scale,
            "gates_of_next_head": altering(self.honest, g=lambda i: i["g"].roll(1, -1)),
            "interleaved_heads": altering(
                self.honest,
                q=lambda i: interleaved(i["q"], i["v"].shape[2]),
                k=lambda i: interleaved(i["k"], i["v"].shape[2]),
            ),
        }


def _chunks(workload: Workload) -> int:
    chunks: int = -(-workload.axes["token_count"] // workload.init["chunk_size"])
    return chunks


def _falling(scores: Any, fall: Any, causal: Any) -> Any:
    """Weigh as defined: earlier rows and the row itself, where g does not rise."""
    import torch

    return scores * fall.masked_fill(~causal | (fall > 0), -torch.inf).exp()


def _output(workload: Workload, inputs: Tensors, dtype: Any, weigh: Weigh) -> Any:
    """Compute in `dtype` with `weigh` for the pairs of rows; return fp32."""
    import torch

    q, v, h = inputs["q"], inputs["v"], inputs["h"]
    batch, tokens, heads, value_dim = v.shape
    size, key_dim = workload.init["chunk_size"], q.shape[-1]
    scale = workload.init.get("scale")
    causal = torch.ones(size, size, dtype=torch.bool, device=v.device).tril()
    per_chunk = batch * heads * (size * (size + 2 * key_dim + value_dim) + key_dim * value_dim)
    step = max(1, _BLOCK // per_chunk)
    out = v.new_empty(v.shape, dtype=torch.float32)
    for first in range(0, h.shape[1], step):
        some = slice(first * size, min((first + step) * size, tokens))

        def part(name: str, some: slice = some) -> Any:
            return chunked(inputs[name][:, some], size, heads).to(dtype)

        queries, gates = part("q"), part("g")[..., None]
        scores = queries @ part("k").transpose(-1, -2)
        weights = weigh(scores, gates - gates.transpose(-1, -2), causal)
        result = (queries @ h[:, first : first + step].to(dtype)) * gates.exp()
        result += weights @ part("v")
        result *= key_dim**-0.5 if scale is None else scale
        out[:, some] = rejoined(result, some.stop - some.start).float()
    return out


def _live_pairs(workload: Workload, g: Any) -> int:
    """Count pairs j <= i of one chunk whose g does not rise from j to i, over all heads."""
    import torch

    size = workload.init["chunk_size"]
    chunks = chunked(g, size, g.shape[2]).flatten(0, 2)
    rows = torch.arange(size, device=g.device)
    filled = chunked(torch.ones_like(g), size, g.shape[2]).flatten(0, 2).bool()
    live = g.new_zeros((), dtype=torch.int64)
    for row in range(size):
        before = (rows <= row) & (chunks >= chunks[:, row, None]) & filled[:, row, None]
        live += before.sum()
    return int(live)


def _expected_pairs(workload: Workload) -> float:
    """Return how many pairs count on average where g is drawn independently."""
    a, size = workload.axes, workload.init["chunk_size"]
    full, short = divmod(a["token_count"], size)
    pairs = (full * size * (size + 3) + short * (short + 3)) / 4
    return float(a["batch_size"] * a["num_v_heads"] * pairs)
