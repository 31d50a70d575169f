"""Honest implementations of `fused_moe`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atrex_problems_production._moe import Expert, Sizes, mix, swiglu

from atrex_core import Implementation, Tensors, Workload


def _with(expert: Expert) -> Implementation:
    def variant(workload: Workload, inputs: Tensors) -> Tensors:
        hidden, w1, w2 = inputs["hidden_states"], inputs["w1"], inputs["w2"]
        out = mix(
            inputs["topk_ids"],
            inputs["topk_weights"],
            Sizes.of(workload),
            rows=lambda tokens: hidden[tokens].float(),
            matrices=lambda number: (w1[number].float(), w2[number].float()),
            expert=expert,
        )
        return {"out": out}

    return variant


def _rounded(values: Any) -> Any:
    return values.bfloat16().float()


def _split(rows: Any, matrix: Any) -> Any:
    """Sum strided halves apart, as two groups of threads would."""
    return rows[:, 0::2] @ matrix[:, 0::2].T + rows[:, 1::2] @ matrix[:, 1::2].T


def rounded_everywhere(rows: Any, weights: Any, first: Any, second: Any) -> Any:
    """Keep nothing between two products and a last sum but bf16."""
    gate, up = _rounded(rows @ first.T).chunk(2, dim=-1)
    return _rounded(_rounded(swiglu(gate, up)) @ second.T * weights)


def rounded_silu(rows: Any, weights: Any, first: Any, second: Any) -> Any:
    """Round everywhere, and SiLU by itself before it is multiplied, as a kernel of its own may."""
    gate, up = _rounded(rows @ first.T).chunk(2, dim=-1)
    activated = _rounded(_rounded(gate * gate.sigmoid()) * up)
    return _rounded(_rounded(activated @ second.T) * weights)


def rounded_activations(rows: Any, weights: Any, first: Any, second: Any) -> Any:
    """Round the operand of the second product only; sum in another order."""
    gate, up = _split(rows, first).chunk(2, dim=-1)
    return _split(_rounded(gate / (1 + (-gate).exp()) * up), second) * weights


def weights_folded(rows: Any, weights: Any, first: Any, second: Any) -> Any:
    """Weigh what the second product is fed, before it is rounded."""
    gate, up = (rows @ first.T).chunk(2, dim=-1)
    return _rounded(swiglu(gate, up) * weights) @ second.T


VARIANTS: Mapping[str, Implementation] = {
    "rounded_everywhere": _with(rounded_everywhere),
    "rounded_silu": _with(rounded_silu),
    "rounded_activations": _with(rounded_activations),
    "weights_folded": _with(weights_folded),
}
