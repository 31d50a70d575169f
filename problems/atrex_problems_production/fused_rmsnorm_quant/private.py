"""Judge `fused_rmsnorm_quant`: float64 truth, cost, and wrong implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atrex_problems_production._problem import ProductionProblem

from atrex_core import (
    ArithmeticPath,
    CodeSteps,
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
    torch_dtype,
)
from atrex_core.packs import altering, by_rows, coarse

_EPS = 1e-5
"""What `Model` adds to the mean square unless told otherwise."""


class Operator(ProductionProblem):
    """Residual addition, RMS normalisation of the rounded sum, fp8 by rows."""

    summary = "residual addition, RMS normalisation and dynamic fp8 quantisation of each token"
    container = Container.TUPLE

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `x`, `residual` and `weight`."""
        tokens, hidden = _sizes(workload)
        return (
            TensorSpec(name="x", dtype=DType.BF16, shape=(tokens, hidden)),
            TensorSpec(name="residual", dtype=DType.BF16, shape=(tokens, hidden)),
            TensorSpec(name="weight", dtype=DType.BF16, shape=(hidden,)),
        )

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Return `quantized`, `scales` and the new `residual`."""
        tokens, hidden = _sizes(workload)
        return (
            TensorSpec(name="quantized", dtype=_dtype(workload), shape=(tokens, hidden)),
            TensorSpec(name="scales", dtype=DType.FP32, shape=(tokens, 1)),
            TensorSpec(name="residual", dtype=DType.BF16, shape=(tokens, hidden)),
        )

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Round the sum and the normalised row to bf16 as stated; the rest is float64."""
        weight, limit = inputs["weight"].double(), _limit(workload)
        eps = _eps(workload)

        def total(x: Any, residual: Any) -> Any:
            return (x.double() + residual.double()).bfloat16().double()

        def normed(x: Any, residual: Any) -> Any:
            wide = total(x, residual)
            wide *= (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
            return (wide * weight).bfloat16().double()

        def scales(x: Any, residual: Any) -> Any:
            return _scales(normed(x, residual), limit)

        def quotients(x: Any, residual: Any) -> Any:
            values = normed(x, residual)
            return (values / _scales(values, limit)).clamp_(-limit, limit)

        both = inputs["x"], inputs["residual"]
        return {
            "quantized": by_rows(quotients, *both),
            "scales": by_rows(scales, *both),
            "residual": by_rows(total, *both),
        }

    def tolerance(self, output: TensorSpec) -> Rule:
        """Leave room for a sum and a normalised row that stay in fp32.

        Both roundings to bf16 left out move a scale by 2^-7 at most and by 0.0025 on average
        (root mean square), and flip about 3 codes in 100.
        """
        if output.name == "scales":
            return Tolerance(dtype=DType.BF16, relative_l2=1.5, element=0.75)
        if output.name == "quantized":
            return CodeSteps(dtype=output.dtype, flips=0.035)
        return Tolerance(dtype=output.dtype)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Add, square, sum, weigh and scale each element once: a code needs no root.

        For each row: mean, epsilon, root times largest, scale, and the factor of the codes.
        """
        tokens, hidden = _sizes(workload)
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: 5 * tokens * hidden + 5 * tokens})

    def published_flops(self, workload: Workload) -> float:
        """Squares and square roots count nothing there, scaling twice does."""
        tokens, hidden = _sizes(workload)
        return tokens * (5 * hidden + 2)

    def own_mutants(self) -> Mapping[str, Implementation]:
        """Leave out a term, take another scale, round otherwise, or hand back a wrong residual."""

        def no_epsilon(workload: Workload, inputs: Tensors) -> Tensors:
            return self.run_reference(workload, inputs, **{**workload.init, "eps": 0.0})

        def old_residual(workload: Workload, inputs: Tensors) -> Tensors:
            return {**self.honest(workload, inputs), "residual": inputs["residual"].clone()}

        def residual_of_x(workload: Workload, inputs: Tensors) -> Tensors:
            return {**self.honest(workload, inputs), "residual": inputs["x"].clone()}

        def shifted_columns(inputs: Tensors) -> Any:
            return inputs["residual"].roll(1, -1)

        return {
            "no_epsilon": no_epsilon,
            "old_residual": old_residual,
            "residual_of_x": residual_of_x,
            "no_residual": altering(self.honest, residual=lambda i: i["residual"] * 0),
            "no_x": altering(self.honest, x=lambda i: i["x"] * 0),
            "no_weight": altering(self.honest, weight=lambda i: i["weight"] * 0 + 1),
            "shifted_columns": altering(self.honest, residual=shifted_columns),
            "not_normalised": _of_normed(lambda _, i: _total(i) * i["weight"].float()),
            "half_of_the_row": _of_normed(lambda w, i: _normed(w, i, (i["x"].shape[1] + 1) // 2)),
            "normed_in_four_bits": _of_normed(lambda w, i: coarse(_normed(w, i))),
            "signed_maximum": _scaled(lambda w, n: n.amax(-1, keepdim=True) / _limit(w)),
            "misses_last_column": _scaled(lambda w, n: _largest(n[:, :-1]) / _limit(w)),
            "no_scale_of_zero_rows": _scaled(lambda w, n: _largest(n) / _limit(w)),
            "least_scale_of_zero_rows": _scaled(
                lambda w, n: _largest(n).clamp(min=1e-12) / _limit(w)
            ),
            "limit_of_another_type": _scaled(lambda w, n: _largest(n) / (688 - _limit(w))),
            "limit_of_224": _scaled(lambda _, n: _largest(n) / 224),
            "one_scale_for_all": _of_several(
                lambda w, n: _scales(n, _limit(w)).amax().expand(len(n), 1).clone()
            ),
            "scale_of_the_next_row": _of_several(lambda w, n: _scales(n, _limit(w)).roll(-1, 0)),
            "three_bits": _rounded(lambda _, quotients: coarse(quotients, 3)),
            "truncated": _rounded(lambda _, quotients: _truncated(quotients)),
            "small_codes_flushed": _rounded(_flushed),
        }


def _sizes(workload: Workload) -> tuple[int, int]:
    return workload.axes["token_count"], workload.axes["hidden_size"]


def _dtype(workload: Workload) -> DType:
    return DType(workload.init.get("dtype", DType.FP8_E4M3FNUZ))


def _limit(workload: Workload) -> float:
    return {DType.FP8_E4M3FNUZ: 240.0, DType.FP8_E4M3FN: 448.0}[_dtype(workload)]


def _eps(workload: Workload) -> float:
    eps: float = workload.init.get("eps", _EPS)
    return eps


def _total(inputs: Tensors) -> Any:
    return (inputs["x"] + inputs["residual"]).float()


def _normed(workload: Workload, inputs: Tensors, columns: int | None = None) -> Any:
    """Normalise by the mean square of the first few columns, or all."""
    total = _total(inputs)
    root = (total[:, :columns].square().mean(-1, keepdim=True) + _eps(workload)).rsqrt()
    return (total * root * inputs["weight"].float()).bfloat16().float()


def _largest(normed: Any) -> Any:
    return normed.abs().amax(-1, keepdim=True)


def _scales(normed: Any, limit: float) -> Any:
    import torch

    largest = _largest(normed)
    return torch.where(largest == 0, 1.0, largest / limit)


def _answer(workload: Workload, inputs: Tensors, quotients: Any, scales: Any) -> Tensors:
    limit = _limit(workload)
    return {
        "quantized": quotients.clamp(-limit, limit).to(torch_dtype(_dtype(workload))),
        "scales": scales,
        "residual": inputs["x"] + inputs["residual"],
    }


def _of_normed(normed: Callable[[Workload, Tensors], Any]) -> Implementation:
    """Return a mutant that quantises other rows than the normalised ones."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        values = normed(workload, inputs)
        scales = _scales(values, _limit(workload))
        return _answer(workload, inputs, values / scales, scales)

    return mutant


def _scaled(scale: Callable[[Workload, Any], Any]) -> Implementation:
    """Return a mutant that takes these scales for those of normalised rows."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        normed = _normed(workload, inputs)
        scales = scale(workload, normed)
        return _answer(workload, inputs, normed / scales, scales)

    return mutant


def _of_several(scale: Callable[[Workload, Any], Any]) -> Implementation:
    """Return the same for scales that are right where there is one row."""
    wrong = _scaled(scale)

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        if len(inputs["x"]) == 1:
            raise Inapplicable("one row has one scale")
        return wrong(workload, inputs)

    return mutant


def _rounded(change: Callable[[Workload, Any], Any]) -> Implementation:
    """Return a mutant with the right scales that rounds its quotients otherwise."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        normed = _normed(workload, inputs)
        scales = _scales(normed, _limit(workload))
        return _answer(workload, inputs, change(workload, normed / scales), scales)

    return mutant


def _truncated(values: Any) -> Any:
    """Drop all but four significant bits."""
    import torch

    mantissa, exponent = torch.frexp(values)
    return torch.ldexp((mantissa * 16).trunc() / 16, exponent)


def _flushed(workload: Workload, values: Any) -> Any:
    """Turn what the type holds with fewer bits into zero."""
    import torch

    normal = torch.finfo(torch_dtype(_dtype(workload))).tiny
    return torch.where(values.abs() < normal, 0.0, values)
