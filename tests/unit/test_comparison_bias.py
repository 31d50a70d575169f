"""Errors that lean one way."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from atrex_core import DType, TensorSpec, Tolerance
from atrex_core.comparison import Comparison, compare

BF16 = Tolerance(dtype=DType.BF16)
TRUNCATED = -0x10000
"""Keeps of an fp32 number the bits that bf16 has."""


def truth(rows: int, width: int = 256, seed: int = 0) -> Any:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(rows, width, generator=rng, dtype=torch.float64)


def judge(actual: Any, expected: Any, rule: Tolerance = BF16) -> Comparison:
    spec = TensorSpec(name="out", dtype=DType.BF16, shape=tuple(expected.shape))
    return compare(spec, rule, actual, expected, expected.bfloat16())


def toward_zero(values: Any) -> Any:
    return (values.float().view(torch.int32) & TRUNCATED).view(torch.float32).bfloat16()


def toward_minus_infinity(values: Any) -> Any:
    down = toward_zero(values)
    below = (down.view(torch.int16) + 1).view(torch.bfloat16)
    return torch.where((values < 0) & (down.double() != values), below, down)


def test_truncation_is_a_gain() -> None:
    expected = truth(64)

    verdict = judge(toward_zero(expected), expected)

    assert verdict.reason is not None
    assert verdict.reason.startswith("all is too small by a factor of 0.002")
    assert "truncated instead of rounded" in verdict.reason
    assert verdict.details["wrong"] == verdict.details["rows_wrong"] == 0
    assert verdict.details["relative_l2"] < verdict.details["relative_l2_allowed"]


def test_rounding_down_is_an_offset() -> None:
    expected = truth(64)

    verdict = judge(toward_minus_infinity(expected), expected)

    assert verdict.reason is not None
    assert verdict.reason.startswith("all is too low by 0.00")


@pytest.mark.parametrize("factor", [1.0017, 1 / 1.0017])
def test_a_small_factor_on_everything_is_a_gain(factor: float) -> None:
    expected = truth(64)

    assert not judge((expected * factor).bfloat16(), expected).passed


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8, 32, 256])
def test_a_factor_of_each_row_may_be_rounded(rows: int) -> None:
    for seed in range(100):
        expected = truth(rows, seed=seed)
        factor = 1 + torch.rand(rows, 1, generator=torch.Generator().manual_seed(seed))
        rounded = (expected / factor * factor.bfloat16().double()).bfloat16()

        verdict = judge(rounded, expected)

        assert verdict.passed, (seed, verdict.reason)


def test_rows_that_dominate_are_the_rows_that_count() -> None:
    expected = truth(256)
    expected[0] *= 10_000
    actual = expected.clone()
    actual[0] *= 1.003

    assert judge(actual.bfloat16(), expected).passed


def test_what_an_honest_implementation_leans_is_allowed_twice() -> None:
    expected = truth(64)
    spec = TensorSpec(name="out", dtype=DType.BF16, shape=(64, 256))
    honest, actual = toward_zero(expected), toward_zero(expected * 0.999)

    assert compare(spec, BF16, actual, expected, honest).passed
    assert not compare(spec, BF16, actual, expected, expected.bfloat16()).passed


def test_the_bound_is_the_rule_s() -> None:
    expected = truth(64)
    lenient = Tolerance(dtype=DType.BF16, bias=8)

    assert judge(toward_zero(expected), expected, lenient).passed


def test_nothing_but_zeros_leans_nowhere() -> None:
    expected = torch.zeros(4, 8, dtype=torch.float64)

    verdict = judge(expected.bfloat16(), expected)

    assert verdict.passed
    assert verdict.details["bias_over_allowed"] == 0
