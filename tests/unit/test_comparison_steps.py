"""The comparison of 8-bit floating outputs with their expected values, in codes."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from atrex_core import CodeSteps, DType, HarnessError, RowBlocks, TensorSpec, torch_dtype
from atrex_core.comparison import Comparison, compare

FN, FNUZ = DType.FP8_E4M3FN, DType.FP8_E4M3FNUZ

BOTH = pytest.mark.parametrize("dtype", [FN, FNUZ], ids=str)


def codes(*values: int, dtype: DType = FN) -> Any:
    """Return one row of these very codes."""
    return torch.tensor([values], dtype=torch.uint8).view(torch_dtype(dtype))


def values(*shape: int, seed: int = 0) -> Any:
    """Draw values over most of the range of either type."""
    rng = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=rng, dtype=torch.float64) * 40).clamp(-240, 240)


def moved(tensor: Any, *places: int, by: int = 1) -> Any:
    """Return a copy whose codes at these flat places are larger by `by`."""
    copy = tensor.clone()
    copy.view(torch.uint8).view(-1)[list(places)] += by
    return copy


def judge(
    actual: Any,
    expected: Any,
    *,
    dtype: DType = FN,
    flips: float = 0.0,
    cap: int = 1,
    poison: float | None = None,
) -> Comparison:
    spec = TensorSpec(name="q", dtype=dtype, shape=tuple(actual.shape))
    rule = CodeSteps(dtype=dtype, flips=flips, cap=cap)
    return compare(spec, rule, actual, expected, poison=poison)


@BOTH
def test_every_value_is_its_own_nearest_code(dtype: DType) -> None:
    everything = torch.arange(256, dtype=torch.uint8).view(1, 256).view(torch_dtype(dtype))

    verdict = judge(everything, everything.double(), dtype=dtype)

    assert verdict.passed
    assert verdict.reason is None
    assert verdict.details["flipped"] == 0
    assert verdict.details["most_steps"] == 0


def test_codes_are_counted_over_exponents_and_through_zero() -> None:
    # 0x37 0.9375, 0x38 1.0, 0x3A 1.25; 0x02 and 0x82 are two denormals from zero.
    expected = torch.tensor([[0.9375, 1.0, 2.0**-8]], dtype=torch.float64)

    verdict = judge(codes(0x3A, 0x38, 0x82), expected, cap=8)

    assert verdict.details["flipped"] == 2
    assert verdict.details["most_steps"] == 4
    assert verdict.details["worst"] == {
        "index": [0, 2],
        "actual": -(2.0**-8),
        "expected": 2.0**-8,
    }


def test_both_zeros_are_one_code() -> None:
    expected = torch.tensor([[0.0, -0.0, 1e-9, -1e-9]], dtype=torch.float64)

    assert judge(codes(0x80, 0x00, 0x80, 0x00), expected).passed
    # e4m3fnuz has one zero; 0x80 is its NaN.
    assert judge(codes(0, 0, 0, 0, dtype=FNUZ), expected, dtype=FNUZ).passed
    assert not judge(codes(0x80, 0, 0, 0, dtype=FNUZ), expected, dtype=FNUZ).passed


@pytest.mark.parametrize(
    ("dtype", "nan"), [(FN, 0x7F), (FN, 0xFF), (FNUZ, 0x80)], ids=["fn", "fn-negative", "fnuz"]
)
def test_nan_must_stand_where_it_is_expected(dtype: DType, nan: int) -> None:
    one = 0x38 if dtype is FN else 0x40
    expected = torch.tensor([[math.nan, 1.0]], dtype=torch.float64)

    right = judge(codes(nan, one, dtype=dtype), expected, dtype=dtype)
    missing = judge(codes(one, one, dtype=dtype), expected, dtype=dtype, flips=1.0, cap=255)
    surplus = judge(codes(nan, nan, dtype=dtype), expected, dtype=dtype, flips=1.0, cap=255)

    assert right.passed
    assert missing.reason == (
        "1 of 2 elements (50%) are more than 255 codes from the nearest one, worst at [0, 0] "
        "(got 1, expected nan): a NaN; the output is one constant"
    )
    assert surplus.details["wrong"] == 1
    assert surplus.details["worst"] == {"index": [0, 1], "actual": "nan", "expected": 1.0}


def test_the_largest_code_of_fnuz_is_a_number() -> None:
    expected = torch.tensor([[240.0, -240.0, 224.0]], dtype=torch.float64)

    verdict = judge(codes(0x7F, 0xFF, 0x7F, dtype=FNUZ), expected, dtype=FNUZ, flips=1.0)

    assert verdict.passed
    assert verdict.details["flipped"] == 1


def test_halfway_between_two_codes_both_are_the_nearest() -> None:
    # 1.0625 lies halfway between 0x38 and 0x39, 2^-10 between zero and the least denormal.
    expected = torch.tensor([[1.0625, 1.0625, -(2.0**-10), -(2.0**-10)]], dtype=torch.float64)

    assert judge(codes(0x38, 0x39, 0x80, 0x81), expected).details["flipped"] == 0
    assert judge(codes(0x37, 0x3A, 0x80, 0x82), expected, cap=8).details["flipped"] == 3


@BOTH
@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["positive", "negative"])
def test_what_fp32_arithmetic_may_turn_is_no_flip_and_what_it_may_not_is_one(
    dtype: DType, sign: float
) -> None:
    middle = torch.full((1, 64), sign * 1.0625, dtype=torch.float64)
    one = torch.full((1, 64), sign, dtype=torch.float64).to(torch_dtype(dtype))
    above = moved(one, *range(64))

    for relative, flips in ((2.0**-21, 0), (2.0**-18, 64)):
        upper, lower = middle * (1 + relative), middle * (1 - relative)

        assert judge(one, upper, dtype=dtype).details["flipped"] == flips
        assert judge(above, lower, dtype=dtype).details["flipped"] == flips
        assert judge(above, upper, dtype=dtype).details["flipped"] == 0
        assert judge(one, lower, dtype=dtype).details["flipped"] == 0


@BOTH
def test_a_reciprocal_instead_of_a_division_flips_nothing(dtype: DType) -> None:
    rng = torch.Generator().manual_seed(3)
    x = torch.randn(400, 500, generator=rng).bfloat16()
    limit = torch.finfo(torch_dtype(dtype)).max
    scale = x.float().abs().amax(-1, keepdim=True) / limit
    expected = x.double() / (x.double().abs().amax(-1, keepdim=True) / limit)

    for quotient in (x / scale, x * (1 / scale), x * (limit / x.float().abs().amax(-1)[:, None])):
        actual = quotient.clamp(-limit, limit).to(torch_dtype(dtype))
        plain = expected.float().to(torch_dtype(dtype))
        changed = int((actual.view(torch.uint8) != plain.view(torch.uint8)).sum())
        verdict = judge(actual, expected, dtype=dtype)

        assert verdict.details["flipped"] == 0
        assert changed <= 250
    assert changed > 0


@BOTH
def test_more_flips_than_their_share_fail(dtype: DType) -> None:
    expected = values(100, 100)
    right = expected.float().to(torch_dtype(dtype))
    # 1 + 3 / sqrt(100) times 0.02 is 260, and 4 * sqrt(260) by chance: 324.
    spread = [int(i) for i in torch.randperm(10_000, generator=torch.Generator().manual_seed(1))]
    few, many = moved(right, *spread[:320]), moved(right, *spread[:330])

    passed = judge(few, expected, dtype=dtype, flips=0.02)
    failed = judge(many, expected, dtype=dtype, flips=0.02)

    assert passed.passed
    assert passed.details["flipped"] == 320
    assert passed.details["flipped_share"] == 0.032
    assert passed.details["flips_allowed"] == 324
    assert str(failed.reason).startswith(
        "330 of 10000 elements (3.3%) are not the nearest code (allowed 324): a wrong scale, or "
        "too low a precision; first at ["
    )


def test_a_row_off_by_itself_fails_though_flips_are_few() -> None:
    expected = values(100, 100)
    right = expected.float().to(torch.float8_e4m3fn)
    # A row may have 8, and 4 * sqrt(8) by chance: 19.
    inside = moved(right, *range(3700, 3719))
    beyond = moved(right, *range(3700, 3720))

    assert judge(inside, expected, flips=0.02).passed
    assert judge(beyond, expected, flips=0.02).reason == (
        "1 of 100 rows are off as a whole: in row 37, 20 of 100 elements are not the nearest code "
        "(allowed 19), such as after a wrong scale"
    )


def test_a_single_row_may_stray_as_a_row_among_many_may() -> None:
    expected = values(1, 1000)
    right = expected.float().to(torch.float8_e4m3fn)
    # 4 * 0.02 is 80, and 4 * sqrt(80) by chance: 115.
    inside, beyond = moved(right, *range(115)), moved(right, *range(116))

    assert judge(inside, expected, flips=0.02).passed
    assert judge(beyond, expected, flips=0.02).details["flips_allowed"] == 115
    assert not judge(beyond, expected, flips=0.02).passed


def test_no_element_may_be_beyond_the_cap() -> None:
    expected = values(100, 100)
    right = expected.float().to(torch.float8_e4m3fn)
    far = moved(right, 123, by=2)

    assert judge(moved(right, 123), expected, flips=0.05).passed
    assert judge(far, expected, flips=0.05, cap=2).passed
    assert str(judge(far, expected, flips=0.05).reason).startswith(
        "1 of 10000 elements (0.01%) are more than 1 code from the nearest one, worst at [1, 23] ("
    )


@BOTH
def test_a_narrower_type_a_truncation_and_a_wrong_scale_fail(dtype: DType) -> None:
    expected = values(64, 256)
    kind = torch_dtype(dtype)
    mantissa, exponent = torch.frexp(expected.float())
    wrong = {
        "three bits": torch.ldexp((mantissa * 8).round() / 8, exponent),
        "truncated": torch.ldexp((mantissa * 16).trunc() / 16, exponent),
        "scale": expected.float() * 0.99,
    }

    verdicts = {
        name: judge(w.to(kind), expected, dtype=dtype, flips=0.05) for name, w in wrong.items()
    }

    assert {name for name, verdict in verdicts.items() if verdict.passed} == set()


def test_row_blocks_are_judged_as_the_tensor_they_stand_for() -> None:
    expected = values(100, 3, 70)
    actual = moved(expected.float().to(torch.float8_e4m3fn), *range(0, 21_000, 7), by=2)
    lazy = RowBlocks(shape=(100, 3, 70), step=7, compute=lambda i, j: expected[i:j])

    dense = judge(actual, expected)

    assert judge(actual, lazy) == dense
    assert dense.details["wrong"] == 3000
    assert not dense.passed


def test_a_row_longer_than_a_tile_is_counted_as_one() -> None:
    width = (1 << 22) + 100
    expected = torch.ones(2, width, dtype=torch.float64)
    right = expected.float().to(torch.float8_e4m3fn)
    actual = moved(right, *range(2 * width - 200, 2 * width), *range(width, width + 100))

    verdict = judge(actual, expected, flips=1e-5)

    # Only 100 of the flips are in the last tile. A row may have 167, and 4 * sqrt(167) by chance.
    assert verdict.details["rows_wrong"] == 1
    assert verdict.details["flipped"] == 300
    assert not verdict.passed


def test_an_expected_value_in_bf16_is_judged_as_it_is() -> None:
    expected = torch.tensor([[1.0, 1.125, 96.0]]).bfloat16()

    assert judge(codes(0x38, 0x39, 0x6C), expected).passed


def test_the_look_of_a_wrong_output_is_told() -> None:
    expected = values(16, 16)
    zeros = torch.zeros(16, 16).to(torch.float8_e4m3fn)
    nans = torch.full((16, 16), math.nan).to(torch.float8_e4m3fn)

    assert str(judge(zeros, expected).reason).endswith("the output is all zeros")
    assert str(judge(nans, expected).reason).endswith("256 of the output's elements are NaN")
    assert str(judge(nans, expected, poison=math.nan).reason).endswith(
        "the wrong ones were never written"
    )


def test_details_are_strict_json() -> None:
    expected = values(4, 4)
    actual = torch.full((4, 4), math.nan).to(torch.float8_e4m3fn)

    details = judge(actual, expected, poison=math.nan).details

    assert json.loads(json.dumps(details, allow_nan=False)) == details


def test_a_rule_for_another_type_is_our_fault() -> None:
    spec = TensorSpec(name="q", dtype=FN, shape=(1, 2))
    actual, expected = codes(0x38, 0x38), torch.ones(1, 2).double()
    half = TensorSpec(name="q", dtype=DType.FP16, shape=(1, 2))

    with pytest.raises(HarnessError, match="its rule counts codes of fp8_e4m3fnuz"):
        compare(spec, CodeSteps(dtype=FNUZ), actual, expected)
    with pytest.raises(HarnessError, match="its rule counts codes of fp16"):
        compare(half, CodeSteps(dtype=DType.FP16), expected.half(), expected)


def test_inputs_are_left_as_they_are() -> None:
    expected = values(4, 64)
    actual = expected.float().to(torch.float8_e4m3fn)
    before = expected.clone(), actual.view(torch.uint8).clone()

    judge(actual, expected)

    assert torch.equal(expected, before[0])
    assert torch.equal(actual.view(torch.uint8), before[1])
