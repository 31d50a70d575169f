"""Judge `gated_delta_rule_update`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from atrex_problems_production._delta_rule import (
    as_bf16,
    as_fp16,
    bytes_beside_pool,
    interleaved,
    pool_after,
    pool_mutants,
    unchanged,
)
from atrex_problems_production._problem import ProductionProblem
from atrex_problems_production._stores import storing, toward_zero

from atrex_core import (
    ArithmeticPath,
    Container,
    Cost,
    DType,
    Implementation,
    Inapplicable,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
)
from atrex_core.packs import altering, coarse

_CHUNK = 64
"""Tokens taken at once."""

_BLOCK = 1 << 25
"""Elements of the states taken at once."""

_THRESHOLD = 20.0
"""Where softplus becomes the identity unless `init` says otherwise."""

Change = Callable[[Any], Any]
"""A tensor, altered."""


class Operator(ProductionProblem):
    """Decay, correct and read a state for each token and head."""

    summary = "gated delta rule over tokens, from and to a pool of states"
    fp32_truth = ("out",)
    container = Container.DICT
    in_place: ClassVar[Mapping[str, str]] = {"final_state": "initial_state"}

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return what gates are made of, tokens, the pool `initial_state`, and its rows in use."""
        x = workload.axes
        tokens, heads = (x["batch_size"], x["token_count"]), x["num_v_heads"]
        keys = (*tokens, x["num_q_heads"], x["key_dim"])
        pool = (x["state_count"], heads, x["key_dim"], x["value_dim"])
        return (
            TensorSpec(name="A_log", dtype=DType.FP32, shape=(heads,)),
            TensorSpec(name="a", dtype=DType.BF16, shape=(*tokens, heads)),
            TensorSpec(name="dt_bias", dtype=DType.BF16, shape=(heads,)),
            TensorSpec(name="q", dtype=DType.BF16, shape=keys),
            TensorSpec(name="k", dtype=DType.BF16, shape=keys),
            TensorSpec(name="v", dtype=DType.BF16, shape=(*tokens, heads, x["value_dim"])),
            TensorSpec(name="b", dtype=DType.BF16, shape=(*tokens, heads)),
            TensorSpec(name="initial_state", dtype=DType.FP32, shape=pool),
            TensorSpec(name="initial_state_indices", dtype=DType.INT32, shape=(x["batch_size"],)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out` and the pool `final_state`."""
        x = workload.axes
        heads, value_dim = x["num_v_heads"], x["value_dim"]
        out = (x["batch_size"], x["token_count"], heads, value_dim)
        pool = (x["state_count"], heads, x["key_dim"], value_dim)
        return (
            TensorSpec(name="out", dtype=DType.BF16, shape=out),
            TensorSpec(name="final_state", dtype=DType.FP32, shape=pool),
        )

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Take chunks in float64, some sequences at a time.

        `out` is held in fp32, far below the last bit of bf16.
        """
        import torch

        out, states = _walk(workload, inputs, torch.float64)
        return {"out": out, "final_state": pool_after(inputs, states)}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Leave room for fast exponentials and other orders, step after step: 1e-5 or so.

        Where a query and all keys that count are nearly orthogonal, `out` owes its last bits to
        them too. A state rounded to bf16 once is off by 7e-4, to fp16 by 1e-4.
        """
        if output.name == "final_state":
            return Tolerance(dtype=output.dtype, relative_l2=256, row_l2=256, element=64, cap=64)
        return Tolerance(dtype=output.dtype)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count three products of a row and a state for each token and head, gates, beta and norms.

        By steps or by chunks, a state is read with each key and each query and written with each
        delta. In chunks these are products of matrices, and no way to make them as good as fp32
        beats one product in bf16: counted there, they stay a lower bound. A state decays once at
        least, each delta is scaled, a gate and a beta take five operations, a norm three for each
        element. Only rows of the pool in use are read and written.
        """
        x = workload.axes
        tokens = x["batch_size"] * x["token_count"]
        heads, key_dim, value_dim = x["num_v_heads"], x["key_dim"], x["value_dim"]
        state = x["batch_size"] * heads * key_dim * value_dim
        norms = 6 * x["num_q_heads"] * key_dim if workload.init.get("use_qk_l2norm", True) else 0
        return Cost(
            flops={
                ArithmeticPath.BF16_MATRIX: 6 * tokens * heads * key_dim * value_dim,
                ArithmeticPath.FP32_VECTOR: tokens * (heads * (value_dim + 5) + norms) + state,
            },
            read_bytes=DType.FP32.item_bytes * state + bytes_beside_pool(self.inputs(workload)),
            write_bytes=DType.FP32.item_bytes * state + bytes_beside_pool(self.outputs(workload)),
        )

    def published_flops(self, workload: Workload) -> float:
        """Count steps, of which each also scales the whole state."""
        x = workload.axes
        key_dim = x["key_dim"]
        per_token = 7 * key_dim * x["value_dim"] + 3 * key_dim + 2
        return float(x["batch_size"] * x["token_count"] * x["num_v_heads"] * per_token)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Lose a term or a factor, confuse an order, heads or states, or carry them narrow."""
        import torch

        def walking(**options: Any) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                return _answer(workload, inputs, **options)

            return mutant

        def with_init(**init: Any) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                return self.run_reference(workload, inputs, **{**workload.init, **init})

            return mutant

        def normalised(name: str) -> Implementation:
            """Normalise what should not be, or the other way round."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                wanted = workload.init.get("use_qk_l2norm", True)
                other = "k" if name == "q" else "q"
                mixed = dict(inputs)
                if wanted:
                    mixed[other] = _normalised(inputs[other].float())
                else:
                    mixed[name] = _normalised(inputs[name].float())
                init = {**workload.init, "use_qk_l2norm": False}
                return self.run_reference(workload, mixed, **init)

            return mutant

        def unguarded(workload: Workload, inputs: Tensors) -> Tensors:
            if not workload.init.get("use_qk_l2norm", True):
                raise Inapplicable("nothing is normalised")
            q, k = (
                x / x.norm(dim=-1, keepdim=True) for x in (inputs["q"].float(), inputs["k"].float())
            )
            init = {**workload.init, "use_qk_l2norm": False}
            return self.run_reference(workload, {**inputs, "q": q, "k": k}, **init)

        def clamped(name: str, limit: float) -> Implementation:
            return altering(self.honest, **{name: lambda i: i[name].clamp(-limit, limit)})

        def windows(workload: Workload, inputs: Tensors) -> Tensors:
            """Forget all after eight tokens: with the published gates little is left."""
            if workload.axes["token_count"] <= 8:
                raise Inapplicable("there are eight tokens at most")
            return _answer(workload, inputs, size=8, kept=torch.zeros_like)

        def soft(change: Callable[[Workload, Any], Any]) -> Implementation:
            """Take something else for softplus."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                return _answer(workload, inputs, soft=lambda x: change(workload, x))

            return mutant

        def with_default(name: str, value: float) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                if workload.init.get(name, value) == value:
                    raise Inapplicable("it is the right one")
                return self.run_reference(workload, inputs, **{**workload.init, name: value})

            return mutant

        def bent_by_argument(workload: Workload, x: Any) -> Any:
            """Hold x, not beta times x, against the threshold."""
            beta, threshold = _bend(workload)
            if beta == 1 or threshold == _THRESHOLD:
                raise Inapplicable("no argument lies between")
            bent = torch.nn.functional.softplus(x, beta, _THRESHOLD)
            return torch.where(x > threshold, x, bent)

        def stepless(inputs: Tensors) -> Any:
            """Return what makes exp(A_log) vanish."""
            return torch.full_like(inputs["A_log"], -100.0)

        return {
            "no_decay": altering(self.honest, A_log=stepless),
            "ignores_a_log": altering(self.honest, A_log=lambda i: i["A_log"] * 0),
            "ignores_a": altering(self.honest, a=lambda i: i["a"] * 0),
            "no_dt_bias": altering(self.honest, dt_bias=lambda i: i["dt_bias"] * 0),
            "beta_of_half": altering(self.honest, b=lambda i: i["b"] * 0),
            "beta_of_one": altering(self.honest, b=lambda i: i["b"] * 0 + 100),
            "a_clamped_to_20": clamped("a", 20),
            "b_clamped_to_12": clamped("b", 12),
            "no_values": altering(self.honest, v=lambda i: i["v"] * 0),
            "gates_of_next_head": altering(self.honest, a=lambda i: i["a"].roll(1, -1)),
            "values_of_next_head": altering(self.honest, v=lambda i: i["v"].roll(1, 2)),
            "interleaved_heads": altering(
                self.honest,
                q=lambda i: interleaved(i["q"], i["v"].shape[2]),
                k=lambda i: interleaved(i["k"], i["v"].shape[2]),
            ),
            "relu_for_softplus": walking(soft=lambda x: x.clamp(min=0)),
            "default_softplus_beta": with_default("softplus_beta", 1.0),
            "default_softplus_threshold": with_default("softplus_threshold", _THRESHOLD),
            "threshold_without_beta": soft(bent_by_argument),
            "gates_in_bf16": soft(lambda w, x: as_bf16(_softplus(w, x))),
            "truncated": storing(self, toward_zero, "out"),
            "overflowing_softplus": walking(soft=lambda x: x.exp().log1p()),
            "not_corrected": walking(corrected=False),
            "corrected_before_decay": walking(decayed=False),
            "read_before_update": walking(own_row=False),
            "coarse_delta": walking(written=lambda x: coarse(x, 3)),
            "bf16_operands": walking(rounded=as_bf16),
            "bf16_state": walking(kept=as_bf16, stored=as_bf16),
            "fp16_state": walking(kept=as_fp16, stored=as_fp16),
            "windows_of_eight": windows,
            "unscaled": with_init(scale=1.0),
            "queries_not_normalised": normalised("q"),
            "keys_not_normalised": normalised("k"),
            "norms_unguarded": unguarded,
            **pool_mutants(self.honest),
        }


def _normalised(x: Any) -> Any:
    return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6)


def _softplus(workload: Workload, x: Any) -> Any:
    import torch

    return torch.nn.functional.softplus(x, *_bend(workload))


def _bend(workload: Workload) -> tuple[float, float]:
    """Return beta and the threshold of softplus."""
    init = workload.init
    return init.get("softplus_beta", 1.0), init.get("softplus_threshold", _THRESHOLD)


def _walk(
    workload: Workload,
    inputs: Tensors,
    dtype: Any,
    *,
    size: int = _CHUNK,
    soft: Change | None = None,
    rounded: Change = unchanged,
    written: Change = unchanged,
    kept: Change = unchanged,
    stored: Change = unchanged,
    corrected: bool = True,
    decayed: bool = True,
    own_row: bool = True,
) -> Any:
    """Take chunks in `dtype`; return `out` in fp32 and the states at the end.

    Args:
        workload: Says how gates, scale and norms are meant.
        inputs: Tokens and states.
        dtype: What all is computed in.
        size: Tokens in a chunk.
        soft: Instead of softplus.
        rounded: What happens to operands of products.
        written: What happens to delta before it enters a state or is read.
        kept: What happens to states between chunks.
        stored: What happens to states at the end.
        corrected: Whether delta is the difference from what the key reads.
        decayed: Whether the key reads the state after its decay.
        own_row: Whether a query reads what its own token wrote.
    """
    import torch

    v, init = inputs["v"], workload.init
    tokens, heads = v.shape[1:3]
    scale = init.get("scale")
    scale = inputs["q"].shape[-1] ** -0.5 if scale is None else scale
    steps = inputs["a"].to(dtype) + inputs["dt_bias"].to(dtype)
    steps = _softplus(workload, steps) if soft is None else soft(steps)
    gates = -inputs["A_log"].to(dtype).exp() * steps
    rows = inputs["initial_state_indices"].long()
    pool = inputs["initial_state"]
    out = v.new_empty(v.shape, dtype=torch.float32)
    states = pool.new_empty((len(rows), *pool.shape[1:]), dtype=dtype)
    group = max(1, _BLOCK // pool[0].numel())
    for first in range(0, len(rows), group):
        some = slice(first, first + group)
        m = pool[rows[some]].to(dtype)
        for start in range(0, tokens, size):
            here = slice(start, start + size)

            def part(x: Any, some: slice = some, here: slice = here) -> Any:
                x = x[some, here].transpose(1, 2)
                return x.repeat_interleave(heads // x.shape[1], 1).to(dtype)

            q, k = part(inputs["q"]), part(inputs["k"])
            if init.get("use_qk_l2norm", True):
                q, k = _normalised(q), _normalised(k)
            q, k = rounded(q), rounded(k)
            g, beta = part(gates)[..., None], part(inputs["b"])[..., None].sigmoid()
            sums = g.cumsum(-2)
            decay = (sums - sums.transpose(-1, -2)).tril().exp().tril()
            before = 1.0 if decayed else (-g).exp()
            read = rounded(m)
            delta = beta * part(v)
            if corrected:
                delta = delta - beta * before * sums.exp() * (k @ read)
                mixing = beta * before * (k @ k.transpose(-1, -2)) * decay
                delta = torch.linalg.solve_triangular(
                    mixing, delta, upper=False, unitriangular=True
                )
            delta = written(delta)
            weights = ((q @ k.transpose(-1, -2)) * decay).tril(0 if own_row else -1)
            result = sums.exp() * (q @ read) + rounded(weights) @ rounded(delta)
            out[some, here] = (scale * result).transpose(1, 2)
            pushed = rounded(delta * (sums[..., -1:, :] - sums).exp())
            m = sums[..., -1:, :].exp() * m + k.transpose(-1, -2) @ pushed
            m = (kept if start + size < tokens else stored)(m)
        states[some] = m
    return out, states


def _answer(workload: Workload, inputs: Tensors, **options: Any) -> Tensors:
    """Take chunks in fp32; return the outputs."""
    import torch

    out, states = _walk(workload, inputs, torch.float32, **options)
    pool = inputs["initial_state"].clone()
    pool[inputs["initial_state_indices"].long()] = states
    return {"out": out.bfloat16(), "final_state": pool}
