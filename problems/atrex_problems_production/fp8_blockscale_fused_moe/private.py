"""Judge `fp8_blockscale_fused_moe`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from atrex_problems_production._fp8 import as_codes
from atrex_problems_production._moe import (
    Expert,
    Sizes,
    first_product_in_bf16,
    gated,
    mix,
    swiglu,
    without_last,
    wrong_activations,
    wrong_routes,
)
from atrex_problems_production._problem import ProductionProblem

from atrex_core import (
    ArithmeticPath,
    Cost,
    DType,
    Implementation,
    Inapplicable,
    RowBlocks,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
)
from atrex_core.packs import altering, coarse

_BLOCK = 1 << 26
"""Elements of the truth that are held at once."""

_FEW = 4
"""Columns of thousands that a kernel may forget at the end of a sum."""

_DEFAULT_TILE = (128, 128)
"""Rows and columns of a matrix that share a scale, unless a workload says otherwise."""

_EXPERTS = ("w1", "w2", "fc1_scale", "fc2_scale")
"""What is read of an expert only if a token chose it."""


class Operator(ProductionProblem):
    """Gated experts, some for each token, in fp8 with a scale for each block."""

    summary = "routed SwiGLU experts with block-scaled fp8 weights and activations"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `hidden_states`, both matrices of all experts, the routes, and the scales."""
        s, dtype = Sizes.of(workload), _dtype(workload)
        n, k = _tile(workload)
        first = (s.experts, 2 * s.intermediate, s.hidden)
        second = (s.experts, s.hidden, s.intermediate)
        shapes = {
            "hidden_states": (dtype, (s.tokens, s.hidden)),
            "w1": (dtype, first),
            "w2": (dtype, second),
            "topk_weights": (DType.FP32, (s.tokens, s.top_k)),
            "topk_ids": (DType.INT32, (s.tokens, s.top_k)),
            "a_scale": (DType.FP32, (s.tokens, s.hidden // k)),
            "fc1_scale": (DType.FP32, (s.experts, first[1] // n, first[2] // k)),
            "fc2_scale": (DType.FP32, (s.experts, second[1] // n, second[2] // k)),
        }
        return tuple(
            TensorSpec(name=name, dtype=dtype, shape=shape)
            for name, (dtype, shape) in shapes.items()
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        s = Sizes.of(workload)
        return (TensorSpec(name="out", dtype=_dtype(workload), shape=(s.tokens, s.hidden)),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Compute in float64, expert by expert, for some tokens at a time; clamp to the range."""
        import torch

        sizes = Sizes.of(workload)
        largest = torch.finfo(inputs["hidden_states"].dtype).max

        def compute(start: int, stop: int) -> Any:
            some = slice(start, stop)
            return mixed(workload, inputs, some=some, wide=torch.float64).clamp(-largest, largest)

        step = max(1, _BLOCK // sizes.hidden)
        shape = (sizes.tokens, sizes.hidden)
        return {"out": RowBlocks(shape=shape, step=step, compute=compute)}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Judge by the honest error alone: that of rounding the output to fp8, about 2.6 %.

        Kernels that also round activations to e4m3 in groups are at 1.3 to 1.85 times that, with
        one bit less (as e5m2 has) at 2.15 times and more in one regime at least: the bound lies
        between. The epsilon of fp8 would blur it for outputs of few elements, so that of bf16
        stands in its place. Single elements have more room: columns of one row differ in scale.
        """
        return Tolerance(dtype=DType.BF16, relative_l2=2, row_l2=3, element=6)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count the routes, and the experts that were drawn; every matrix and row once."""
        s = Sizes.of(workload)
        occupied = s.occupied if inputs is None else len(inputs["topk_ids"].unique())
        routes = s.tokens * s.top_k
        return self._cost(
            workload,
            {
                ArithmeticPath.FP8_MATRIX: routes * s.matrix_flops,
                ArithmeticPath.FP32_VECTOR: s.vector_flops(routes),
            },
            occupied,
        )

    def published_flops(self, workload: Workload) -> float:
        """Counts the matrices of the experts once more: a multiplication for each scaled value."""
        s = Sizes.of(workload)
        per_route = s.matrix_flops + 5 * s.intermediate + 2 * s.hidden
        scaling = s.published_occupied * 3 * s.hidden * s.intermediate
        return s.tokens * s.top_k * per_route + scaling

    def published_cost(self, workload: Workload) -> Cost:
        """Read the experts that the tokens are expected to hit."""
        occupied = Sizes.of(workload).published_occupied
        return self._cost(workload, self.published_bucket(workload), occupied)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Confuse experts, routes, scales, or what happens between the two products."""
        import torch

        def with_expert(expert: Expert) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                return finished(inputs, mixed(workload, inputs, expert=expert))

            return mutant

        def one_scale_for_all(workload: Workload, inputs: Tensors) -> Tensors:
            dtype, seen = inputs["w2"].dtype, []

            def look(rows: Any, weights: Any, first: Any, _: Any) -> Any:
                gate, up = (rows @ first.T).chunk(2, dim=-1)
                seen.append(swiglu(gate, up).abs().amax())
                return rows * weights

            mixed(workload, inputs, expert=look)
            scale = torch.stack(seen).amax() / torch.finfo(dtype).max

            def activate(gate: Any, up: Any) -> Any:
                return as_codes(swiglu(gate, up) / scale, dtype).float() * scale

            return with_expert(partial(gated, activate=activate))(workload, inputs)

        def e5m2_activations(gate: Any, up: Any) -> Any:
            return coarse(swiglu(gate, up), 3)

        def routes_added_in_bf16(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.axes["top_k"] < 3:
                raise Inapplicable("a sum of two is rounded once, less than the output is")
            out = mixed(workload, inputs, added_in=torch.bfloat16)
            return finished(inputs, out.float())

        def last_columns_ignored(inputs: Tensors) -> Any:
            hidden = inputs["hidden_states"]
            return without_last(hidden.view(torch.uint8), _FEW).view(hidden.dtype)

        def last_channels_ignored(gate: Any, up: Any) -> Any:
            return without_last(swiglu(gate, up), _FEW)

        def not_clamped(workload: Workload, inputs: Tensors) -> Tensors:
            """Give NaN for what is out of range, as a plain cast may."""
            out = mixed(workload, inputs)
            dtype = inputs["hidden_states"].dtype
            beyond = out.abs() > torch.finfo(dtype).max * 1.04
            return {
                "out": finished(inputs, out)["out"].float().masked_fill(beyond, torch.nan).to(dtype)
            }

        activations = {
            **wrong_activations(),
            "e5m2_activations": e5m2_activations,
            "last_channels_ignored": last_channels_ignored,
        }
        return {
            **{n: with_expert(partial(gated, activate=a)) for n, a in activations.items()},
            **wrong_routes(self.honest),
            "one_scale_for_all_activations": one_scale_for_all,
            **self._wrong_scales(),
            "last_columns_ignored": altering(self.honest, hidden_states=last_columns_ignored),
            "first_product_in_bf16": with_expert(first_product_in_bf16),
            "routes_added_in_bf16": routes_added_in_bf16,
            "not_clamped": not_clamped,
        }

    def _wrong_scales(self) -> Mapping[str, Implementation]:
        """Take another block's scale, one for several blocks, or none."""

        def with_scales(name: str, change: Callable[[Any], Any]) -> Implementation:
            return altering(self.honest, **{name: lambda inputs: change(inputs[name])})

        def next_block(name: str, axis: int) -> Implementation:
            return with_scales(name, lambda scales: scales.roll(-1, axis))

        def last_block_unscaled(scales: Any) -> Any:
            scales = scales.clone()
            scales[..., -1] = 1.0
            return scales

        def of_first_block(scales: Any) -> Any:
            inner = (slice(None), *[slice(1)] * (scales.ndim - 1))
            return scales[inner].expand(scales.shape).contiguous()

        def averaged(scales: Any) -> Any:
            inner = tuple(range(1, scales.ndim))
            return scales.mean(inner, keepdim=True).expand(scales.shape).contiguous()

        def scales_of_next_token(workload: Workload, inputs: Tensors) -> Tensors:
            if workload.axes["token_count"] == 1:
                raise Inapplicable("there is no other token")
            return next_block("a_scale", 0)(workload, inputs)

        def default_size(axis: int, *names: str) -> Implementation:
            """Find the scale of a value as if blocks had the default size along an axis."""

            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                size, assumed = _tile(workload)[axis], _DEFAULT_TILE[axis]
                if size == assumed:
                    raise Inapplicable("the default is right here")

                def change(scales: Any) -> Any:
                    count = scales.shape[axis - 2]
                    found = [min(i * size // assumed, count - 1) for i in range(count)]
                    index = scales.new_tensor(found).long()
                    return scales.index_select(axis - 2, index)

                changed = {name: change(inputs[name]) for name in names}
                return self.honest(workload, {**inputs, **changed})

            return mutant

        every = ("a_scale", "fc1_scale", "fc2_scale")
        return {
            "a_scale_of_next_block": next_block("a_scale", 1),
            "fc1_scale_of_next_rows": next_block("fc1_scale", 1),
            "fc1_scale_of_next_columns": next_block("fc1_scale", 2),
            "fc2_scale_of_next_rows": next_block("fc2_scale", 1),
            "fc2_scale_of_next_columns": next_block("fc2_scale", 2),
            "fc1_scale_of_next_expert": next_block("fc1_scale", 0),
            "last_block_unscaled_in_a": with_scales("a_scale", last_block_unscaled),
            "last_block_unscaled_in_w2": with_scales("fc2_scale", last_block_unscaled),
            "a_scale_of_next_token": scales_of_next_token,
            **{f"{name}_of_first_block": with_scales(name, of_first_block) for name in every},
            **{f"{name}_averaged": with_scales(name, averaged) for name in every},
            "default_scale_block_n": default_size(0, "fc1_scale", "fc2_scale"),
            "default_scale_block_k": default_size(1, *every),
        }

    def _cost(
        self, workload: Workload, flops: Mapping[ArithmeticPath, float], occupied: float
    ) -> Cost:
        """Read everything of each token, and of the experts those that are occupied."""
        experts = workload.axes["num_experts"]
        (out,) = self.outputs(workload)
        return Cost(
            flops=flops,
            read_bytes=sum(
                spec.nbytes // experts * occupied if spec.name in _EXPERTS else spec.nbytes
                for spec in self.inputs(workload)
            ),
            write_bytes=out.nbytes,
        )


def mixed(
    workload: Workload,
    inputs: Tensors,
    *,
    expert: Expert = gated,
    some: slice = slice(None),
    wide: Any = None,
    added_in: Any = None,
) -> Any:
    """Return the sums of some tokens' routes, not clamped, in fp32 or in `wide`.

    Routes may be added up in another dtype than all else.
    """
    import torch

    wide = wide or torch.float32
    hidden, a_scale = inputs["hidden_states"][some], inputs["a_scale"][some]
    tile = _tile(workload)

    def rows(tokens: Any) -> Any:
        own = hidden.view(torch.uint8)[tokens].view(hidden.dtype)
        return scaled(own, a_scale[tokens], (1, tile[1]), wide)

    def matrices(number: int) -> tuple[Any, Any]:
        return (
            scaled(inputs["w1"][number], inputs["fc1_scale"][number], tile, wide),
            scaled(inputs["w2"][number], inputs["fc2_scale"][number], tile, wide),
        )

    return mix(
        inputs["topk_ids"][some],
        inputs["topk_weights"][some],
        Sizes.of(workload),
        rows=rows,
        matrices=matrices,
        expert=expert,
        added_in=added_in,
    )


def scaled(values: Any, scales: Any, tile: tuple[int, int], wide: Any) -> Any:
    """Return a matrix in `wide`, each tile multiplied by its scale."""
    tiles = values.to(wide).view(scales.shape[0], tile[0], scales.shape[1], tile[1])
    return tiles.mul_(scales[:, None, :, None]).view(values.shape)


def finished(inputs: Tensors, out: Any) -> Tensors:
    """Clamp to the range of the output and round."""
    return {"out": as_codes(out, inputs["hidden_states"].dtype)}


def _dtype(workload: Workload) -> DType:
    return DType(workload.axes.get("dtype", DType.FP8_E4M3FNUZ))


def _tile(workload: Workload) -> tuple[int, int]:
    n, k = _DEFAULT_TILE
    return workload.axes.get("scale_block_n", n), workload.axes.get("scale_block_k", k)
