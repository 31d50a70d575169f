"""Judge `fused_qkv_rope`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atrex_problems_production._problem import ProductionProblem
from attrs import frozen

from atrex_core import (
    Allclose,
    ArithmeticPath,
    Container,
    Cost,
    DType,
    Implementation,
    Inapplicable,
    Rule,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
)
from atrex_core.packs import altering, by_rows, coarse

_BASE = 10000.0
"""`rope_base` of `Model` where `init` names none."""


class Operator(ProductionProblem):
    """Bias, split into heads, rotary embedding of queries and keys."""

    summary = "bias, split and rotary embedding of packed queries, keys and values"
    container = Container.TUPLE

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `qkv`, `positions`, and `qkv_bias` where the workload has one."""
        s = _sizes(workload)
        specs = (
            TensorSpec(name="qkv", dtype=s.dtype, shape=(s.tokens, s.heads * s.head_dim)),
            TensorSpec(name="positions", dtype=DType.INT32, shape=(s.tokens,)),
        )
        bias = TensorSpec(name="qkv_bias", dtype=s.dtype, shape=(s.heads * s.head_dim,))
        return (*specs, bias) if s.with_bias else specs

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `q`, `k` and `v`, by heads."""
        s = _sizes(workload)
        return tuple(
            TensorSpec(name=name, dtype=s.dtype, shape=(s.tokens, heads, s.head_dim))
            for name, heads in (("q", s.q_heads), ("k", s.kv_heads), ("v", s.kv_heads))
        )

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Rotate in float64 by the exact angle; the biased value is rounded before, as stated."""
        import torch

        s, bias = _sizes(workload), inputs.get("qkv_bias")
        j = torch.arange(s.half, dtype=torch.float64, device=inputs["qkv"].device)
        frequency = workload.init.get("rope_base", _BASE) ** (-j / s.half)

        def part(first: int, heads: int, *, turns: bool) -> Any:
            columns = slice(first * s.head_dim, (first + heads) * s.head_dim)

            def compute(qkv: Any, positions: Any) -> Any:
                x = qkv if bias is None else qkv + bias[columns]
                wide = x.view(-1, heads, s.head_dim).double()
                if not turns:
                    return wide
                theta = (positions.double()[:, None] * frequency)[:, None]
                a, b = wide[..., : s.half], wide[..., s.half : 2 * s.half]
                cos, sin, rest = theta.cos(), theta.sin(), wide[..., 2 * s.half :]
                return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1)

            return by_rows(compute, inputs["qkv"][:, columns], inputs["positions"])

        return {
            "q": part(0, s.q_heads, turns=True),
            "k": part(s.q_heads, s.kv_heads, turns=True),
            "v": part(s.q_heads + s.kv_heads, s.kv_heads, turns=False),
        }

    def tolerance(self, output: TensorSpec) -> Rule:
        """Demand v to the bit: it is copied, or summed once in the storage dtype.

        `inputs.py` keeps positions where an fp32 angle is off by about one epsilon at most. That
        moves an element by as much of its partner, which may be several times the root mean
        square of the row: single elements get that room, rows and the whole do not.
        """
        if output.name == "v":
            return Allclose(absolute=0.0, relative=0.0)
        return Tolerance(dtype=output.dtype, element=4)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count six for each pair that turns, one for each angle and one for each biased value."""
        s = _sizes(workload)
        work = s.tokens * s.half * (6 * (s.q_heads + s.kv_heads) + 1)
        work += s.tokens * s.heads * s.head_dim if s.with_bias else 0
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: work})

    def published_flops(self, workload: Workload) -> float:
        """Adds two passes over the frequencies, and files every dtype under fp16."""
        s = _sizes(workload)
        return 2 * s.half + s.tokens * s.half * (1 + 6 * (s.q_heads + s.kv_heads))

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Confuse positions, frequencies, partners, heads or the bias."""
        import torch

        def positions(change: Callable[[Any], Any]) -> Implementation:
            return altering(self.honest, positions=lambda i: change(i["positions"]).int())

        def previous_position(workload: Workload, inputs: Tensors) -> Tensors:
            if _sizes(workload).tokens == 1:
                raise Inapplicable("there is one token")
            return self.honest(workload, {**inputs, "positions": inputs["positions"].roll(1)})

        def other_base(workload: Workload, inputs: Tensors) -> Tensors:
            base = 10 * workload.init.get("rope_base", _BASE)
            return self.run_reference(workload, inputs, **{**workload.init, "rope_base": base})

        def default_base(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.init.get("rope_base", _BASE) == _BASE:
                raise Inapplicable("it is the default")
            init = {**workload.init, "rope_base": _BASE}
            return self.run_reference(workload, inputs, **init)

        def denormals_flushed(workload: Workload, inputs: Tensors) -> Tensors:
            if _sizes(workload).with_bias:
                raise Inapplicable("values are sums, and large")
            right = self.honest(workload, inputs)
            v = right["v"]
            return {**right, "v": v.masked_fill(v.abs() < torch.finfo(v.dtype).tiny, 0.0)}

        def frequency(change: Callable[[Any, Any], Any]) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                s = _sizes(workload)
                j = torch.arange(s.half, dtype=torch.float32, device=inputs["qkv"].device)
                theta = inputs["positions"].float()[:, None] * change(_base(workload), j / s.half)
                return _turned(workload, inputs, theta.cos(), theta.sin())

            return mutant

        def turned(change: Callable[[Any, Any], tuple[Any, Any]], **how: Any) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                theta = _theta(workload, inputs)
                return _turned(workload, inputs, *change(theta.cos(), theta.sin()), **how)

            return mutant

        def partial_only(run: Implementation) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                if 2 * _sizes(workload).half == _sizes(workload).head_dim:
                    raise Inapplicable("whole heads are rotated")
                return run(workload, inputs)

            return mutant

        def zeros_beyond(workload: Workload, inputs: Tensors) -> Tensors:
            right = self.honest(workload, inputs)
            for name in "qk":
                right[name][..., 2 * _sizes(workload).half :] = 0
            return right

        def same(cos: Any, sin: Any) -> tuple[Any, Any]:
            return cos, sin

        def biased(change: Callable[[Workload, Tensors, Tensors], Tensors]) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                if "qkv_bias" not in inputs:
                    raise Inapplicable("there is no bias")
                bare = {name: t for name, t in inputs.items() if name != "qkv_bias"}
                return change(workload, bare, inputs)

            return mutant

        def bias_after(workload: Workload, bare: Tensors, inputs: Tensors) -> Tensors:
            right, bias = self.honest(workload, bare), inputs["qkv_bias"][None]
            return {n: right[n] + part for n, part in _heads(workload, bias).items()}

        def bias_not_on_v(workload: Workload, bare: Tensors, inputs: Tensors) -> Tensors:
            return {**self.honest(workload, inputs), "v": self.honest(workload, bare)["v"]}

        def moved(change: Callable[[Tensors], Tensors]) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                right = self.honest(workload, inputs)
                return {**right, **change(right)}

            return mutant

        return {
            "not_rotated": turned(lambda cos, sin: (cos * 0 + 1, sin * 0)),
            "keys_not_rotated": turned(same, turn="q"),
            "queries_not_rotated": turned(same, turn="k"),
            "values_rotated": turned(same, turn="qkv"),
            "rotated_back": turned(lambda cos, sin: (cos, -sin)),
            "no_minus": turned(same, minus=1.0),
            "coarse_sines": turned(lambda cos, sin: (coarse(cos), coarse(sin))),
            "adjacent_pairs": turned(same, pairs="adjacent"),
            "partners_half_a_head_away": partial_only(turned(same, pairs="half_head")),
            "frequencies_of_whole_head": partial_only(_frequencies_of_whole_head),
            "zeros_beyond_rope_dim": partial_only(zeros_beyond),
            "other_base": other_base,
            "default_base": default_base,
            "half_the_exponent": frequency(lambda base, x: base ** (-x / 2)),
            "next_frequency": frequency(lambda base, x: base ** -(x + x[1])),
            "coarse_frequencies": frequency(lambda base, x: coarse(base**-x, 11)),
            "counts_positions": positions(lambda p: torch.arange(len(p), device=p.device)),
            "positions_off_by_one": positions(lambda p: p + 1),
            "positions_in_fp16": positions(lambda p: coarse(p, 11)),
            "positions_of_16_bits": positions(lambda p: p % 2**16),
            "positions_of_17_bits_at_most": positions(lambda p: p.clamp(max=2**17 - 1)),
            "previous_position": previous_position,
            "no_bias": biased(lambda workload, bare, _: self.honest(workload, bare)),
            "bias_after_rotation": biased(bias_after),
            "bias_not_on_v": biased(bias_not_on_v),
            "denormals_flushed": denormals_flushed,
            "next_head": moved(lambda r: {"q": r["q"].roll(1, 1)}),
            "keys_for_values": moved(lambda r: {"v": r["k"]}),
            "values_for_keys": moved(lambda r: {"k": r["v"]}),
        }


@frozen
class _Sizes:
    tokens: int
    q_heads: int
    kv_heads: int
    head_dim: int
    half: int
    """Pairs of a head that turn: half of `rope_dim`."""
    with_bias: bool
    dtype: DType

    @property
    def heads(self) -> int:
        return self.q_heads + 2 * self.kv_heads


def _sizes(workload: Workload) -> _Sizes:
    axes, init = workload.axes, workload.init
    return _Sizes(
        tokens=axes["total_tokens"],
        q_heads=axes["num_heads"],
        kv_heads=axes["num_kv_heads"],
        head_dim=axes["head_dim"],
        half=init["rope_dim"] // 2,
        with_bias=axes.get("with_bias", False),
        dtype=DType(axes.get("dtype", "bf16")),
    )


def _base(workload: Workload) -> float:
    return float(workload.init.get("rope_base", _BASE))


def _theta(workload: Workload, inputs: Tensors) -> Any:
    import torch

    half = _sizes(workload).half
    j = torch.arange(half, dtype=torch.float32, device=inputs["qkv"].device)
    return inputs["positions"].float()[:, None] * _base(workload) ** (-j / half)


def _heads(workload: Workload, x: Any) -> Tensors:
    """Split columns into the heads of q, k and v."""
    s = _sizes(workload)
    heads = x.view(len(x), -1, s.head_dim)
    parts = heads.split([s.q_heads, s.kv_heads, s.kv_heads], dim=1)
    return dict(zip("qkv", parts, strict=True))


def _turned(
    workload: Workload,
    inputs: Tensors,
    cos: Any,
    sin: Any,
    *,
    turn: str = "qk",
    minus: float = -1.0,
    pairs: str = "halves",
) -> Tensors:
    """Compute in fp32 with `cos` and `sin`; what is not named in `turn` is only split.

    Element j of a head turns with j + rope_dim / 2 (`halves`), with j + head_dim / 2
    (`half_head`), or 2 j with 2 j + 1 (`adjacent`).
    """
    import torch

    s = _sizes(workload)
    x = inputs["qkv"] + inputs["qkv_bias"] if "qkv_bias" in inputs else inputs["qkv"]
    j = torch.arange(s.half, device=x.device)
    partner = {"halves": j + s.half, "half_head": j + s.head_dim // 2, "adjacent": 2 * j + 1}[pairs]
    own = 2 * j if pairs == "adjacent" else j
    answer = {}
    for name, part in _heads(workload, x).items():
        out = part.contiguous().clone()
        if name in turn:
            a, b = part[..., own].float(), part[..., partner].float()
            out[..., own] = (a * cos[:, None] + minus * b * sin[:, None]).to(x.dtype)
            out[..., partner] = (b * cos[:, None] + a * sin[:, None]).to(x.dtype)
        answer[name] = out
    return answer


def _frequencies_of_whole_head(workload: Workload, inputs: Tensors) -> Tensors:
    """Take the exponent's steps from head_dim instead of rope_dim."""
    import torch

    s = _sizes(workload)
    j = torch.arange(s.half, dtype=torch.float32, device=inputs["qkv"].device)
    theta = inputs["positions"].float()[:, None] * _base(workload) ** (-2 * j / s.head_dim)
    return _turned(workload, inputs, theta.cos(), theta.sin())
