"""The comparison of one output with its expected value."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from atrex_core import DType, HarnessError, TensorSpec, Tolerance
from atrex_core.comparison import Comparison, compare, within

BF16 = Tolerance(dtype=DType.BF16)


def spec(*shape: int, dtype: DType = DType.BF16) -> TensorSpec:
    return TensorSpec(name="out", dtype=dtype, shape=shape)


def truth(*shape: int, seed: int = 0) -> Any:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=rng, dtype=torch.float64)


def judge(actual: Any, expected: Any, **more: Any) -> Comparison:
    shape = tuple(expected.shape)
    return compare(spec(*shape), BF16, actual, expected, expected.bfloat16(), **more)


def test_rounding_once_passes_and_says_nothing() -> None:
    expected = truth(16, 64)

    verdict = judge(expected.bfloat16(), expected)

    assert verdict.passed
    assert verdict.reason is None
    assert verdict.details["wrong"] == 0
    assert verdict.details["relative_l2"] == verdict.details["relative_l2_honest"]
    assert sum(verdict.details["histogram"]["counts"]) == 16 * 64


def test_a_wrong_shape_and_a_wrong_dtype_are_named() -> None:
    expected = truth(2, 3)

    reshaped = judge(expected.bfloat16().view(3, 2), expected)
    widened = judge(expected.float(), expected)

    assert reshaped.reason == "shape is [3, 2], not [2, 3]"
    assert widened.reason == "dtype is float32, not bf16"


def test_the_first_and_the_worst_wrong_element_are_named() -> None:
    expected = torch.ones(2, 3, 4, dtype=torch.float64)
    actual = expected.bfloat16()
    actual[0, 1, 2] = 1.25
    actual[1, 2, 0] = -3.0

    verdict = judge(actual, expected)

    assert verdict.reason == (
        "2 of 24 elements (8.33%) are wrong, first at [0, 1, 2] (got 1.25, expected 1), worst at "
        "[1, 2, 0] (got -3, expected 1); max error 4, relative L2 error 0.818 (allowed 0.00526)"
    )
    assert verdict.details["first_wrong"] == {"index": [0, 1, 2], "actual": 1.25, "expected": 1.0}
    assert verdict.details["worst"] == {"index": [1, 2, 0], "actual": -3.0, "expected": 1.0}
    assert verdict.details["wrong"] == 2
    assert verdict.details["max_abs_error"] == 4.0
    assert verdict.details["histogram"] == {
        "edges": [0.25, 0.5, 1.0, 2.0, 4.0, 16.0],
        "counts": [22, 0, 0, 0, 0, 1, 1],
    }


def test_a_scale_error_too_small_for_any_element_fails_as_a_whole() -> None:
    expected = truth(64, 256)

    verdict = judge((expected * 1.006).bfloat16(), expected)

    assert not verdict.passed
    assert verdict.details["wrong"] == 0
    assert verdict.details["rows_wrong"] == 0
    assert "systematic" in str(verdict.reason)


def test_one_row_off_among_many_fails() -> None:
    expected = truth(512, 256)
    actual = expected.bfloat16()
    actual[300] *= 1.02

    verdict = judge(actual, expected)

    assert verdict.details["wrong"] == 0
    assert verdict.details["rows_wrong"] == 1
    assert verdict.details["worst_row"] == [300]
    assert str(verdict.reason).startswith("1 of 512 rows are off as a whole")


def test_a_quiet_row_beside_a_loud_one_is_judged_by_its_own_scale() -> None:
    expected = truth(2, 64) * torch.tensor([[1e4], [1e-4]], dtype=torch.float64)
    actual = expected.bfloat16()
    actual[1] = 0

    verdict = judge(actual, expected)

    assert not verdict.passed
    assert verdict.details["first_wrong"]["index"][0] == 1


def test_the_bound_follows_the_honest_error() -> None:
    expected = truth(8, 256)
    noise = truth(8, 256, seed=1) * 0.05
    actual = (expected + truth(8, 256, seed=2) * 0.05).bfloat16()

    lenient = compare(spec(8, 256), BF16, actual, expected, (expected + noise).bfloat16())
    strict = judge(actual, expected)

    assert lenient.passed
    assert not strict.passed


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=["nan", "inf", "-inf"])
def test_non_finite_values_must_stand_where_they_are_expected(value: float) -> None:
    expected = truth(4, 8)
    expected[1, 2] = value
    right = expected.bfloat16()
    missing, moved = right.clone(), right.clone()
    missing[1, 2] = 1.0
    moved[3, 3] = value

    assert judge(right, expected).passed
    assert judge(missing, expected).details["non_finite_mismatches"] == 1
    assert judge(moved, expected).details["first_wrong"] == {
        "index": [3, 3],
        "actual": str(value),
        "expected": expected[3, 3].item(),
    }


def test_infinity_of_the_other_sign_is_wrong() -> None:
    expected = torch.tensor([[math.inf, 1.0]], dtype=torch.float64)

    verdict = judge(torch.tensor([[-math.inf, 1.0]]).bfloat16(), expected)

    assert not verdict.passed


def test_what_overflows_the_dtype_must_be_infinite() -> None:
    expected = torch.tensor([[1e6, 1.0]], dtype=torch.float64)
    half, tolerance = spec(1, 2, dtype=DType.FP16), Tolerance(dtype=DType.FP16)

    infinite = compare(half, tolerance, expected.half(), expected, expected.half())
    clamped = torch.tensor([[65504.0, 1.0]]).half()

    assert infinite.passed
    assert not compare(half, tolerance, clamped, expected, expected.half()).passed


def test_a_zero_row_must_be_zero() -> None:
    expected = torch.zeros(2, 4, dtype=torch.float64)
    actual = torch.zeros(2, 4).bfloat16()
    almost = actual.clone()
    almost[0, 0] = 1e-20

    assert judge(actual, expected).passed
    assert not judge(almost, expected).passed


def test_values_flushed_to_zero_are_right() -> None:
    expected = torch.full((2, 4), 1e-39, dtype=torch.float64)

    assert judge(torch.zeros(2, 4).bfloat16(), expected).passed


def test_a_share_of_outliers_is_forgiven_up_to_the_cap() -> None:
    expected = torch.ones(100, 10, dtype=torch.float64)
    flipped = expected.bfloat16()
    flipped[0, 0] = 1.06
    broken = expected.bfloat16()
    broken[0, 0] = 1.5
    rule = Tolerance(dtype=DType.BF16, outlier_fraction=0.01, row_l2=16)

    assert not judge(flipped, expected).passed
    assert compare(spec(100, 10), rule, flipped, expected, expected.bfloat16()).passed
    assert not compare(spec(100, 10), rule, broken, expected, expected.bfloat16()).passed


@pytest.mark.parametrize(
    ("fill", "cause"),
    [
        (0.0, "the output is all zeros"),
        (2.0, "the output is one constant"),
        (math.nan, "256 of the output's elements are NaN"),
        (-777.0, "the wrong ones were never written"),
    ],
    ids=["zeros", "constant", "nan", "poison"],
)
def test_the_look_of_a_wrong_output_is_told(fill: float, cause: str) -> None:
    expected = truth(16, 16)

    verdict = judge(torch.full((16, 16), fill).bfloat16(), expected, poison=-777.0)

    assert str(verdict.reason).endswith(cause)


def test_elements_never_written_are_counted_with_nan_as_poison() -> None:
    expected = truth(16, 16)
    actual = expected.bfloat16()
    actual[12:] = math.nan

    verdict = judge(actual, expected, poison=math.nan)

    assert verdict.details["actual"]["never_written_share"] == 0.25
    assert str(verdict.reason).endswith("the wrong ones were never written")


def test_integers_must_be_equal() -> None:
    expected = torch.tensor([[3, 1], [2, 2**30]])
    right = expected.int()
    wrong = right.clone()
    wrong[1, 1] -= 1

    same = compare(spec(2, 2, dtype=DType.INT32), None, right, expected)
    other = compare(spec(2, 2, dtype=DType.INT32), None, wrong, expected, poison=-1)

    assert same.passed
    assert other.reason == (
        "1 of 4 elements (25%) differ from the exact answer, first at [1, 1] "
        "(got 1073741823, expected 1073741824)"
    )
    assert other.details["max_abs_error"] == 1.0


def test_booleans_and_floats_without_a_tolerance_must_be_equal() -> None:
    flags = torch.tensor([True, False])
    values = torch.tensor([1.0, math.nan, math.inf])
    shifted = values.clone()
    shifted[0] += 1e-6

    assert compare(spec(2, dtype=DType.BOOL), None, flags, flags).passed
    assert not compare(spec(2, dtype=DType.BOOL), None, ~flags, flags).passed
    assert compare(spec(3, dtype=DType.FP32), None, values, values).passed
    assert not compare(spec(3, dtype=DType.FP32), None, shifted, values).passed


def test_a_scalar_and_an_empty_output_can_be_judged() -> None:
    expected = torch.tensor(2.0, dtype=torch.float64)

    assert judge(expected.bfloat16(), expected).passed
    assert judge((expected * 2).bfloat16(), expected).details["first_wrong"]["index"] == []
    assert judge(torch.empty(0, 4).bfloat16(), torch.empty(0, 4).double()).passed


def test_a_row_longer_than_a_tile_keeps_one_scale() -> None:
    size = (1 << 22) + 5
    expected = torch.full((size,), 1e-6, dtype=torch.float64)
    expected[0] = 1e4
    actual = expected.bfloat16()
    actual[-1] = 0.5

    verdict = judge(actual, expected)
    fair = judge(expected.bfloat16(), expected)

    # rms(row) is 1e4 / sqrt(size) = 4.883, and 1e4 itself is off by 16 in bf16: the allowed error
    # is 2 * (4.883 / 128 + 4 * 16 / sqrt(size)) = 0.1388 beside the negligible expected value.
    assert fair.passed
    assert verdict.details["first_wrong"]["index"] == [size - 1]
    assert verdict.details["max_error_over_allowed"] == pytest.approx(0.5 / 0.1388, rel=1e-3)


def test_details_are_strict_json() -> None:
    expected = truth(4, 4)
    actual = torch.full((4, 4), math.nan).bfloat16()

    verdict = judge(actual, expected, poison=math.nan)

    assert json.loads(json.dumps(verdict.details, allow_nan=False)) == verdict.details


def test_a_broken_reference_is_our_fault() -> None:
    expected = truth(4, 64)

    with pytest.raises(HarnessError, match="honest value"):
        compare(spec(4, 64), BF16, expected.bfloat16(), expected, (expected * 2).bfloat16())
    with pytest.raises(HarnessError, match="no honest value"):
        compare(spec(4, 64), BF16, expected.bfloat16(), expected)
    with pytest.raises(HarnessError, match="has shape"):
        compare(spec(4, 64), BF16, expected.bfloat16(), expected[:2], expected.bfloat16())


def test_inputs_are_left_as_they_are() -> None:
    expected = truth(4, 64)
    actual, honest = expected.bfloat16(), expected.bfloat16()
    before = expected.clone(), actual.clone(), honest.clone()

    compare(spec(4, 64), BF16, actual, expected, honest)

    assert torch.equal(expected, before[0])
    assert torch.equal(actual, before[1])
    assert torch.equal(honest, before[2])


def test_terms_that_cancel_are_judged_with_an_absolute_error() -> None:
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(64, 512, generator=rng) * 4
    logits -= torch.logsumexp(logits, -1, keepdim=True)
    logits[::2] += 1

    def of(values: Any, *, by_threads: bool = False) -> Any:
        if by_threads:
            return values.exp().view(64, 8, -1).sum(1).sum(-1, keepdim=True).log()
        return torch.logsumexp(values, -1, keepdim=True)

    def passes(actual: Any, **more: Any) -> bool:
        one, rule = spec(64, 1, dtype=DType.FP32), Tolerance(dtype=DType.FP32, **more)
        return compare(one, rule, actual, of(logits.double()), of(logits)).passed

    other_order, narrow = of(logits, by_threads=True), of(logits.bfloat16().float())

    assert not passes(other_order)
    assert passes(other_order, absolute=4e-7)
    assert not passes(narrow, absolute=4e-7)


def test_a_cap_below_the_element_rule_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cap 1\.0 is below element 2\.0"):
        Tolerance(dtype=DType.BF16, cap=1.0)


def test_few_and_many_elements_are_counted_alike() -> None:
    ratio = torch.tensor([0.0, 0.25, 0.3, 1.0, 1.1, 2.0, 16.0, math.inf], dtype=torch.float64)
    few = within._counts(ratio, (0.25, 1.0), (1.0, 15.0))
    copies = within._AT_ONCE // len(ratio) + 1
    many = within._counts(ratio.repeat(copies), (0.25, 1.0), (1.0, 15.0))

    assert few.tolist() == [7, 5, 4, 2]
    assert many.tolist() == [copies * count for count in few.tolist()]
