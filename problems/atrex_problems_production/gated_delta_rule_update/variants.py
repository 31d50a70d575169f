"""Honest implementations of `gated_delta_rule_update`, written as kernels are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from atrex_problems_production._delta_rule import chunked
from atrex_problems_production._variants import LOG2E

from atrex_core import Implementation, Tensors, Workload


def stepwise(workload: Workload, inputs: Tensors) -> Tensors:
    """Take one token after another in fp32, with powers of two and reciprocal roots."""
    return _stepwise(workload, inputs, _guarded)


def epsilon_in_the_root(workload: Workload, inputs: Tensors) -> Tensors:
    """Do the same, but add 1e-6 to the sum of squares of queries and keys."""
    return _stepwise(workload, inputs, lambda squares: (squares + 1e-6).rsqrt())


def epsilon_beside_the_root(workload: Workload, inputs: Tensors) -> Tensors:
    """Do the same, but add 1e-6 to the norm of queries and keys."""
    return _stepwise(workload, inputs, lambda squares: 1 / (squares.sqrt() + 1e-6))


def _stepwise(workload: Workload, inputs: Tensors, root: Callable[[Any], Any]) -> Tensors:
    q, k, v, gates, beta = _rows(workload, inputs, root)
    gates = torch.exp2(LOG2E * gates)[..., None]
    m = _states(inputs)
    out = torch.empty_like(v)
    for t in range(v.shape[2]):
        key = k[:, :, t, :, None]
        m = m * gates[:, :, t, None]
        delta = beta[:, :, t] * (v[:, :, t] - (key * m).sum(2))
        m = m + key * delta[:, :, None]
        out[:, :, t] = (q[:, :, t, :, None] * m).sum(2)
    return _results(inputs, out, m)


def short_chunks(workload: Workload, inputs: Tensors) -> Tensors:
    """Take chunks of 16 tokens in fp32, and eliminate row by row; sums of gates are subtracted."""
    q, k, v, gates, beta = _rows(workload, inputs)
    m = _states(inputs)
    out = torch.empty_like(v)
    for start in range(0, v.shape[2], 16):
        some = slice(start, min(start + 16, v.shape[2]))
        sums = (gates[:, :, some] * LOG2E).cumsum(2)[..., None]
        decay = torch.exp2((sums - sums.transpose(-1, -2)).tril()).tril()
        keys, gained = k[:, :, some], torch.exp2(sums)
        delta = beta[:, :, some] * (v[:, :, some] - (gained * keys) @ m)
        mixing = (keys @ keys.transpose(-1, -2)) * decay * beta[:, :, some]
        for row in range(1, some.stop - start):
            above = mixing[:, :, row, None, :row] @ delta[:, :, :row]
            delta[:, :, row] -= above[:, :, 0]
        weights = (q[:, :, some] @ keys.transpose(-1, -2)) * decay
        out[:, :, some] = (q[:, :, some] * gained) @ m + weights @ delta
        to_end = torch.exp2(sums[:, :, -1:] - sums)
        m = gained[:, :, -1:] * m + keys.transpose(-1, -2) @ (to_end * delta)
    return _results(inputs, out, m)


def split_operands(workload: Workload, inputs: Tensors) -> Tensors:
    """Take chunks of 32 tokens and invert; multiply three bf16 parts of every operand."""
    q, k, v, gates, beta = _rows(workload, inputs)
    m = _states(inputs)
    out = torch.empty_like(v)
    for start in range(0, v.shape[2], 32):
        some = slice(start, min(start + 32, v.shape[2]))
        sums = gates[:, :, some].cumsum(2)[..., None]
        decay = (sums - sums.transpose(-1, -2)).tril().exp().tril()
        keys, gained = k[:, :, some], sums.exp()
        pairs = _product(keys, keys.transpose(-1, -2)) * decay
        one = torch.eye(some.stop - start, device=v.device).expand_as(pairs)
        mixing = (pairs * beta[:, :, some]).tril(-1) + one
        inverse = torch.linalg.solve_triangular(mixing, one, upper=False)
        values = _product(inverse, beta[:, :, some] * v[:, :, some])
        w = _product(inverse, beta[:, :, some] * gained * keys)
        delta = values - _product(w, m)
        weights = _product(q[:, :, some], keys.transpose(-1, -2)) * decay
        out[:, :, some] = _product(q[:, :, some], m) * gained + _product(weights, delta)
        to_end = (sums[:, :, -1:] - sums).exp()
        m = gained[:, :, -1:] * m + _product(keys.transpose(-1, -2), delta * to_end)
    return _results(inputs, out, m)


VARIANTS: Mapping[str, Implementation] = {
    "stepwise": stepwise,
    "epsilon_in_the_root": epsilon_in_the_root,
    "epsilon_beside_the_root": epsilon_beside_the_root,
    "short_chunks": short_chunks,
    "split_operands": split_operands,
}


def _product(left: Any, right: Any) -> Any:
    """Multiply as a matrix unit for bf16 can: the six products of parts that fp32 can see."""
    lefts, rights = _parts(left), _parts(right)
    return sum(lefts[i] @ rights[n - i] for n in (2, 1, 0) for i in range(n + 1))


def _parts(x: Any) -> list[Any]:
    """Return three tensors of bf16 values that sum to `x`, the largest first."""
    parts = []
    for _ in range(3):
        parts.append(x.bfloat16().float())
        x = x - parts[-1]
    return parts


def _guarded(squares: Any) -> Any:
    return squares.clamp(min=1e-12).rsqrt()


def _rows(workload: Workload, inputs: Tensors, root: Callable[[Any], Any] = _guarded) -> Any:
    """Return scaled q, k, v, logarithms of gates, and beta: [batch, value heads, tokens, ...]."""
    tokens, heads = inputs["v"].shape[1:3]
    init = workload.init
    x = inputs["a"].float() + inputs["dt_bias"].float()
    beta = init.get("softplus_beta", 1.0)
    bent = (torch.exp(-(beta * x).abs()).log1p() + (beta * x).clamp(min=0)) / beta
    steps = torch.where(beta * x > init.get("softplus_threshold", 20.0), x, bent)
    gates = -torch.exp(inputs["A_log"].float()) * steps
    q, k, v, gates, b = (
        chunked(x, tokens, heads)[:, 0].float()
        for x in (inputs["q"], inputs["k"], inputs["v"], gates, inputs["b"])
    )
    if init.get("use_qk_l2norm", True):
        q, k = (x * root(x.square().sum(-1, keepdim=True)) for x in (q, k))
    scale = init.get("scale")
    q = q * (q.shape[-1] ** -0.5 if scale is None else scale)
    return q, k, v, gates, (1 / (1 + torch.exp(-b)))[..., None]


def _states(inputs: Tensors) -> Any:
    return inputs["initial_state"][inputs["initial_state_indices"].long()]


def _results(inputs: Tensors, out: Any, m: Any) -> Tensors:
    pool = inputs["initial_state"].clone()
    pool[inputs["initial_state_indices"].long()] = m
    return {"out": out.transpose(1, 2).bfloat16().contiguous(), "final_state": pool}
