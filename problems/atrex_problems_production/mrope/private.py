"""Judge `mrope`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atrex_problems_production._problem import ProductionProblem
from attrs import evolve, frozen

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
from atrex_core.packs import altering, by_rows, coarse


class Operator(ProductionProblem):
    """Rotary embedding of queries and keys, each frequency by one of three positions."""

    summary = "rotary embedding by position in time, height and width"
    container = Container.DICT

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `q`, `k`, `cos` and `sin`."""
        s = _sizes(workload)
        table = (3, s.tokens, s.half)
        return (
            *self.outputs(workload),
            TensorSpec(name="cos", dtype=DType.FP32, shape=table),
            TensorSpec(name="sin", dtype=DType.FP32, shape=table),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `q` and `k`."""
        s = _sizes(workload)
        return (
            TensorSpec(name="q", dtype=DType.BF16, shape=(s.tokens, s.q_heads * s.head_size)),
            TensorSpec(name="k", dtype=DType.BF16, shape=(s.tokens, s.kv_heads * s.head_size)),
        )

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Rotate in float64 by the table entries of each frequency's axis."""
        s = _sizes(workload)
        j, axis = range(s.half), _axes(workload)
        cos, sin = (inputs[name][axis, :, j].T for name in ("cos", "sin"))
        first, second = _pairs(workload)

        def rotate(x: Any, cos: Any, sin: Any) -> Any:
            wide = x.double()
            heads = wide.view(len(x), -1, s.head_size)
            a, b = heads[..., first], heads[..., second]
            c, d = cos.double()[:, None], sin.double()[:, None]
            heads[..., first], heads[..., second] = a * c - b * d, b * c + a * d
            return wide

        return {name: by_rows(rotate, inputs[name], cos, sin) for name in ("q", "k")}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Leave room for tables rounded to bf16: where two products cancel, their errors stay.

        Single elements get that room, rows and the whole do not.
        """
        return Tolerance(dtype=output.dtype, element=4)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count six for each pair; of the tables, one axis for each frequency."""
        s = _sizes(workload)
        moved = sum(spec.nbytes for spec in self.outputs(workload))
        return Cost(
            flops={ArithmeticPath.FP32_VECTOR: self.published_flops(workload)},
            read_bytes=moved + 2 * s.tokens * s.half * DType.FP32.item_bytes,
            write_bytes=moved,
        )

    def published_flops(self, workload: Workload) -> float:
        """Six for each pair."""
        s = _sizes(workload)
        return 6 * s.tokens * (s.q_heads + s.kv_heads) * s.half

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Confuse axes, partners, heads, tokens or the sign."""
        return {
            **self._wrong_axes(),
            **self._wrong_tables(),
            **self._wrong_pairs(),
            "not_rotated": _keeping("q", "k", of=self.honest),
            "keys_not_rotated": _keeping("k", of=self.honest),
            "queries_not_rotated": _keeping("q", of=self.honest),
        }

    def _wrong_axes(self) -> Mapping[str, Implementation]:
        def picking(pick: Callable[[Workload], Sequence[int]], why: str) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                if list(axis := pick(workload)) == _axes(workload):
                    raise Inapplicable(why)
                j = range(len(axis))
                tables = {
                    name: inputs[name][list(axis), :, j].T.expand_as(inputs[name])
                    for name in ("cos", "sin")
                }
                return self.honest(workload, {**inputs, **tables})

            return mutant

        def swapped(workload: Workload) -> Sequence[int]:
            return [(0, 2, 1)[axis] for axis in _axes(workload)]

        def rolled(workload: Workload) -> Sequence[int]:
            first, *rest = _axes(workload)
            return [*rest, first]

        def default_sections(workload: Workload) -> Sequence[int]:
            """Take a quarter of the frequencies for time and share the rest, as published."""
            half = _sizes(workload).half
            time, height = half // 4, (half - half // 4) // 2
            sections = [time, height, half - time - height]
            init = {**workload.init, "mrope_section": sections}
            return _axes(evolve(workload, init=init))

        def other_layout(workload: Workload) -> Sequence[int]:
            return _axes(workload, interleaved=not workload.init.get("mrope_interleaved", False))

        def to_the_end(workload: Workload) -> Sequence[int]:
            if not workload.init.get("mrope_interleaved", False):
                return _axes(workload)
            return [j % 3 for j in range(_sizes(workload).half)]

        return {
            "time_only": picking(lambda w: [0] * _sizes(w).half, "time is the only axis"),
            "height_for_width": picking(swapped, "one axis has every frequency"),
            "axes_off_by_one": picking(rolled, "one axis has every frequency"),
            "default_sections": picking(default_sections, "they are the sections"),
            "other_layout": picking(other_layout, "both layouts agree"),
            "interleaved_to_the_end": picking(to_the_end, "sections cut nothing off"),
        }

    def _wrong_tables(self) -> Mapping[str, Implementation]:
        import torch

        def change(name: str, of: Callable[[Any], Any]) -> Implementation:
            return altering(self.honest, **{name: lambda i: of(i[name])})

        def rounded(inputs: Tensors, name: str) -> Any:
            return coarse(inputs[name], 5)

        def sine_of_cosine(inputs: Tensors) -> Any:
            return (1 - inputs["cos"].square()).clamp(min=0).sqrt()

        def previous_token(workload: Workload, inputs: Tensors) -> Tensors:
            if _sizes(workload).tokens == 1:
                raise Inapplicable("there is one token")
            tables = {name: inputs[name].roll(1, 1) for name in ("cos", "sin")}
            return self.honest(workload, {**inputs, **tables})

        def last_frequency(inputs: Tensors, name: str, value: float) -> Any:
            table = inputs[name].clone()
            table[..., -1] = value
            return table

        return {
            "rotated_back": change("sin", torch.neg),
            "no_sine": change("sin", torch.zeros_like),
            "no_cosine": change("cos", torch.zeros_like),
            "cosine_of_one": change("cos", torch.ones_like),
            "next_frequency": change("sin", lambda table: table.roll(1, -1)),
            "sine_of_cosine": altering(self.honest, sin=sine_of_cosine),
            "previous_token": previous_token,
            "misses_last_frequency": altering(
                self.honest,
                cos=lambda i: last_frequency(i, "cos", 1.0),
                sin=lambda i: last_frequency(i, "sin", 0.0),
            ),
            "coarse_tables": altering(
                self.honest, cos=lambda i: rounded(i, "cos"), sin=lambda i: rounded(i, "sin")
            ),
        }

    def _wrong_pairs(self) -> Mapping[str, Implementation]:
        def other_pairs(workload: Workload, inputs: Tensors) -> Tensors:
            style = not workload.init.get("is_neox_style", True)
            return self.run_reference(workload, inputs, **{**workload.init, "is_neox_style": style})

        def half_a_head_away(workload: Workload, inputs: Tensors) -> Tensors:
            s = _sizes(workload)
            if not workload.init.get("is_neox_style", True) or 2 * s.half == s.head_size:
                raise Inapplicable("no pair reaches beyond rotary_dim")
            right = {name: inputs[name].view(s.tokens, -1, s.head_size) for name in ("q", "k")}
            order = [*range(s.half), *range(s.head_size // 2, s.head_size // 2 + s.half)]
            packed = {name: x[..., order].reshape(s.tokens, -1) for name, x in right.items()}
            init = {**workload.init, "head_size": 2 * s.half}
            turned = self.run_reference(workload, {**inputs, **packed}, **init)
            answer = {}
            for name, x in right.items():
                answer[name] = out = x.clone()
                out[..., order] = turned[name].view(s.tokens, -1, 2 * s.half)
            return {name: out.view_as(inputs[name]) for name, out in answer.items()}

        def zeros_beyond(workload: Workload, inputs: Tensors) -> Tensors:
            s = _sizes(workload)
            if 2 * s.half == s.head_size:
                raise Inapplicable("whole heads are rotated")
            right = self.honest(workload, inputs)
            for x in right.values():
                x.view(s.tokens, -1, s.head_size)[..., 2 * s.half :] = 0
            return right

        def next_head(workload: Workload, inputs: Tensors) -> Tensors:
            size = _sizes(workload).head_size
            right = self.honest(workload, inputs)
            return {**right, "q": right["q"].roll(size, -1)}

        def first_head_only(workload: Workload, inputs: Tensors) -> Tensors:
            size = _sizes(workload).head_size
            right = self.honest(workload, inputs)
            right["q"][:, size:] = inputs["q"][:, size:]
            return right

        return {
            "other_pairs": other_pairs,
            "partners_half_a_head_away": half_a_head_away,
            "zeros_beyond_rotary_dim": zeros_beyond,
            "next_head": next_head,
            "first_head_only": first_head_only,
        }


@frozen
class _Sizes:
    tokens: int
    q_heads: int
    kv_heads: int
    head_size: int
    half: int
    """Frequencies, and pairs of a head that turn: half of `rotary_dim`."""


def _sizes(workload: Workload) -> _Sizes:
    a = workload.axes
    return _Sizes(
        tokens=a["token_count"],
        q_heads=a["num_query_heads"],
        kv_heads=a["num_kv_heads"],
        head_size=a["head_size"],
        half=a["rotary_dim"] // 2,
    )


def _axes(workload: Workload, *, interleaved: bool | None = None) -> list[int]:
    """Return the axis that each frequency belongs to."""
    half = _sizes(workload).half
    sections = workload.init["mrope_section"]
    if interleaved is None:
        interleaved = workload.init.get("mrope_interleaved", False)
    if interleaved:
        return [j % 3 if j <= 3 * sections[j % 3] else 0 for j in range(half)]
    bounds = sections[0], sections[0] + sections[1]
    return [sum(j >= bound for bound in bounds) for j in range(half)]


def _pairs(workload: Workload) -> tuple[slice, slice]:
    """Return the places of both partners of each pair inside a head."""
    half = _sizes(workload).half
    if workload.init.get("is_neox_style", True):
        return slice(0, half), slice(half, 2 * half)
    return slice(0, 2 * half, 2), slice(1, 2 * half, 2)


def _keeping(*names: str, of: Implementation) -> Implementation:
    """Return a mutant that hands back some inputs as they came."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        return {**of(workload, inputs), **{name: inputs[name].clone() for name in names}}

    return mutant
