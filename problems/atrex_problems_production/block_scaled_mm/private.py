"""Judge `block_scaled_mm`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atrex_problems_production._fp8 import flushed
from atrex_problems_production._problem import ProductionProblem

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
    torch_dtype,
)
from atrex_core.packs import altering, by_rows, coarse

_MANY_GROUPS = 16
"""Groups from which sums of eleven bits are told from those of a matrix unit."""


class Operator(ProductionProblem):
    """`a` times the transpose of `b`, scaled by blocks."""

    summary = "fp8 matrix product with scales by blocks, in fp32"

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `a`, `b` and their scales."""
        m, n, k, blocks, groups = _sizes(workload)
        return (
            TensorSpec(name="a", dtype=_dtype(workload), shape=(m, k)),
            TensorSpec(name="b", dtype=_dtype(workload), shape=(n, k)),
            TensorSpec(name="a_scales", dtype=DType.FP32, shape=(m, groups)),
            TensorSpec(name="b_scales", dtype=DType.FP32, shape=(blocks, groups)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `out`."""
        m, n, *_ = _sizes(workload)
        return (TensorSpec(name="out", dtype=DType.FP32, shape=(m, n)),)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Scale the operands and multiply, in float64, some rows at a time."""
        _, n, k, *_ = _sizes(workload)
        right = (inputs["b"].double() * _by_block(workload, inputs["b_scales"]).double()).t()

        def product(a: Any, a_scales: Any) -> Any:
            return (a.double() * _by_column(workload, a_scales)) @ right

        rows = inputs["a"], inputs["a_scales"]
        return {"out": by_rows(product, *rows, row_elements=max(n, k))}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Leave room for a matrix unit that adds fp8 products with 13 bits, 128 at a time.

        Its results, promoted to fp32 after each group, are off by 2.5e-4 (relative L2) at most
        where signs are mixed, and by 6.4e-4 where none is negative; in fp32 throughout, by 6e-7.
        Rounding the result to bf16 costs 1.6e-3, scaling both operands in bf16 2.3e-3, and 13 bits
        over 512 columns 5e-3 where none is negative. The bound, 1e-3, is in epsilons of fp16: the
        type that comes closest to the accumulator of such a unit.
        """
        return Tolerance(dtype=DType.FP16, relative_l2=4, row_l2=5, element=3)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Multiply and add on the matrix unit; scale and add each group's sum in fp32.

        The two scales of a sum are multiplied once for each row and block.
        """
        m, n, k, blocks, groups = _sizes(workload)
        scaling = m * n * (2 * groups - 1) + m * blocks * groups
        return self.count(
            workload,
            {ArithmeticPath.FP8_MATRIX: 2 * m * n * k, ArithmeticPath.FP32_VECTOR: scaling},
        )

    def published_flops(self, workload: Workload) -> float:
        """Count two scales and a sum for each group, all filed under fp8."""
        m, n, k, _, groups = _sizes(workload)
        return m * n * (2 * k + 3 * groups - 1)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Confuse or ignore scales, lose columns, or keep too few bits."""

        def other_type(workload: Workload, inputs: Tensors) -> Tensors:
            import torch

            others = {DType.FP8_E4M3FN, DType.FP8_E4M3FNUZ} - {_dtype(workload)}
            other = torch_dtype(others.pop())
            codes = {name: inputs[name].view(torch.uint8).view(other) for name in ("a", "b")}
            return self.honest(workload, {**inputs, **codes})

        def result_in(dtype: DType) -> Implementation:
            def mutant(workload: Workload, inputs: Tensors) -> Tensors:
                right = self.honest(workload, inputs)["out"]
                return {"out": right.to(torch_dtype(dtype)).float()}

            return mutant

        def scales(name: str, change: Callable[[Any], Any]) -> Implementation:
            return altering(self.honest, **{name: lambda inputs: change(inputs[name])})

        def shifted(name: str, axis: int) -> Implementation:
            wrong = scales(name, lambda t: t.roll(-1, axis))
            return _where(lambda i: i[name].shape[axis] > 1, wrong)

        def transposed(name: str) -> Implementation:
            wrong = scales(name, lambda t: t.t().reshape(t.shape))
            return _where(lambda i: min(i[name].shape) > 1, wrong)

        def averaged(name: str, axis: int) -> Implementation:
            wrong = scales(name, lambda t: t.mean(axis, keepdim=True).expand(t.shape))
            return _where(lambda i: i[name].shape[axis] > 1, wrong)

        return {
            "no_a_scales": scales("a_scales", lambda t: t * 0 + t.mean()),
            "no_b_scales": scales("b_scales", lambda t: t * 0 + 1),
            "one_scale_for_a_row": averaged("a_scales", 1),
            "one_scale_for_a_column": averaged("a_scales", 0),
            "one_scale_for_a_block_of_rows": averaged("b_scales", 1),
            "one_scale_for_a_group": averaged("b_scales", 0),
            "a_scales_of_next_group": shifted("a_scales", 1),
            "a_scales_of_next_row": shifted("a_scales", 0),
            "b_scales_of_next_group": shifted("b_scales", 1),
            "b_scales_of_next_block": shifted("b_scales", 0),
            "a_scales_transposed": transposed("a_scales"),
            "b_scales_transposed": transposed("b_scales"),
            "scales_a_column_late": _where(
                lambda i: i["a_scales"].shape[1] > 1,
                _of_wide(lambda _, a, scale: a * scale.roll(1, 1)),
            ),
            "last_group_dropped": _of_wide(_without_last_group),
            "last_column_dropped": _of_wide(lambda _, a, scale: a[:, :-1] * scale[:, :-1]),
            "three_bits": _of_wide(lambda _, a, scale: coarse(a, 3) * scale),
            "small_codes_of_a_flushed": altering(self.honest, a=lambda i: _small_flushed(i["a"])),
            "small_codes_of_b_flushed": _where(
                lambda i: len(i["b_scales"]) > 1,
                altering(self.honest, b=lambda i: _small_flushed(i["b"])),
            ),
            "scaled_in_bf16": _of_wide(lambda _, a, scale: (a * scale).bfloat16().float()),
            "other_type": other_type,
            "result_in_bf16": result_in(DType.BF16),
            "result_in_fp16": result_in(DType.FP16),
            "sums_in_bf16": _sums_in(DType.BF16),
            "sums_in_fp16": _sums_in(DType.FP16),
            "sums_in_eleven_bits": _where(
                lambda i: i["a_scales"].shape[1] >= _MANY_GROUPS,
                _sums_kept(lambda t: coarse(t, 11)),
            ),
        }


def _sizes(workload: Workload) -> tuple[int, int, int, int, int]:
    """Return m, n, k, and the numbers of blocks of rows of `b` and of groups of columns."""
    axes, init = workload.axes, workload.init
    m, n, k = axes["m"], axes["n"], axes["k"]
    return m, n, k, -(-n // init["group_n"]), -(-k // init["group_k"])


def _dtype(workload: Workload) -> DType:
    return DType(workload.axes.get("dtype", DType.FP8_E4M3FN))


def _by_column(workload: Workload, scales: Any) -> Any:
    return scales.repeat_interleave(workload.init["group_k"], 1)[:, : workload.axes["k"]]


def _by_block(workload: Workload, scales: Any) -> Any:
    by_row = scales.repeat_interleave(workload.init["group_n"], 0)[: workload.axes["n"]]
    return _by_column(workload, by_row)


def _where(matters: Callable[[Tensors], bool], wrong: Implementation) -> Implementation:
    """Return a mutant that steps back where there is nothing to confuse."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        if not matters(inputs):
            raise Inapplicable("there is one scale along the axis")
        return wrong(workload, inputs)

    return mutant


def _of_wide(left: Callable[[Workload, Any, Any], Any]) -> Implementation:
    """Return a mutant that multiplies something else, made from `a` and its spread scales."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        scale = _by_column(workload, inputs["a_scales"])
        wide = left(workload, inputs["a"].float(), scale)
        right = inputs["b"].float() * _by_block(workload, inputs["b_scales"])
        return {"out": wide @ right[:, : wide.shape[1]].t()}

    return mutant


def _sums_in(dtype: DType) -> Implementation:
    """Return a mutant that keeps the scaled sums of the groups in a narrower type."""
    return _sums_kept(lambda total: total.to(torch_dtype(dtype)))


def _sums_kept(kept: Callable[[Any], Any]) -> Implementation:
    """Return a mutant that alters the sum of scaled groups after each of them."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        size = workload.init["group_k"]
        left = inputs["a"].float() * _by_column(workload, inputs["a_scales"])
        right = inputs["b"].float() * _by_block(workload, inputs["b_scales"])
        total: Any = 0
        for a, b in zip(left.split(size, 1), right.split(size, 1), strict=True):
            total = kept(total + a @ b.t())
        return {"out": total.float()}

    return mutant


def _without_last_group(workload: Workload, a: Any, scale: Any) -> Any:
    size = workload.init["group_k"]
    kept = (a.shape[1] - 1) // size * size
    return a[:, :kept] * scale[:, :kept]


def _small_flushed(codes: Any) -> Any:
    return flushed(codes.float(), codes.dtype).to(codes.dtype)
