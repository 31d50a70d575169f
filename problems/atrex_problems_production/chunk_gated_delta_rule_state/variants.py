"""Honest implementations of `chunk_gated_delta_rule_state`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from atrex_problems_production._delta_rule import chunked, rejoined
from atrex_problems_production._variants import LOG2E

from atrex_core import Implementation, Tensors, Workload


def by_exp2(workload: Workload, inputs: Tensors) -> Tensors:
    """Round as defined; take powers of two, and sum halves of K and of the rows apart."""
    return _walk(workload, inputs, narrow=True, decayed_keys=False, parts=2)


def wide(workload: Workload, inputs: Tensors) -> Tensors:
    """Round nothing but results."""
    return _walk(workload, inputs, narrow=False, decayed_keys=False, parts=1)


def decayed_keys(workload: Workload, inputs: Tensors) -> Tensors:
    """Let keys decay instead of values, and round those."""
    return _walk(workload, inputs, narrow=True, decayed_keys=True, parts=3)


VARIANTS: Mapping[str, Implementation] = {
    "by_exp2": by_exp2,
    "wide": wide,
    "decayed_keys": decayed_keys,
}


def _walk(
    workload: Workload, inputs: Tensors, *, narrow: bool, decayed_keys: bool, parts: int
) -> Tensors:
    """Run the recurrence; sums are split into `parts` and added last part first."""
    u, pool = inputs["u"], inputs["initial_state"]
    size, (tokens, heads) = workload.init["chunk_size"], u.shape[1:3]
    rows = inputs["initial_state_indices"].long()
    m = pool[rows]
    states, v_new = [], torch.empty_like(u)

    def rounded(x: Any) -> Any:
        return x.bfloat16().float() if narrow else x

    for start in range(0, tokens, size):
        some = slice(start, min(start + size, tokens))
        length = some.stop - some.start
        k, w, values = (chunked(inputs[n][:, some], length, heads)[:, 0].float() for n in "kwu")
        gates = chunked(inputs["g"][:, some], length, heads)[:, 0, ..., None] * LOG2E
        states.append(m.bfloat16())
        read = rounded(m)
        for part in reversed(range(parts)):
            values = values - w[..., part::parts] @ read[..., part::parts, :]
        v_new[:, some] = rejoined(values[:, None], length).bfloat16()
        fall = gates[:, :, -1:] - gates
        decay = torch.where(fall <= 0, torch.exp2(fall), 0.0)
        if decayed_keys:
            k, values = rounded(k * decay), rounded(values)
        else:
            values = rounded(values * decay)
        m = m * torch.exp2(gates[:, :, -1:])
        for part in reversed(range(parts)):
            m = m + k[..., part::parts, :].transpose(-1, -2) @ values[..., part::parts, :]
    final = pool.clone()
    final[rows] = m
    return {"h": torch.stack(states, 1), "v_new": v_new, "final_state": final}
