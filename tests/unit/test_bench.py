"""What the referee recognises as an output that nobody wrote."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from atrex_core import DType
from atrex_core.referee.bench import _poison, is_blank


@pytest.mark.parametrize("dtype", DType)
def test_poison_is_the_value_of_bytes_all_ones(dtype: DType) -> None:
    expected = {
        DType.BOOL: 1.0,
        DType.UINT8: 255.0,
        DType.INT32: -1.0,
        DType.INT64: -1.0,
        DType.FP8_E4M3FNUZ: -240.0,  # a type without a negative NaN
    }

    value = _poison(dtype)

    assert value == expected.get(dtype) or (math.isnan(value) and dtype not in expected)


@pytest.mark.parametrize(
    ("outputs", "blank"),
    [
        ({"out": torch.full((4,), math.nan)}, True),
        ({"out": torch.tensor([math.nan, 0.0])}, False),
        ({"out": torch.zeros(4), "scale": torch.full((2,), math.nan)}, True),
        ({"out": torch.full((4,), -1)}, False),
        ({"out": torch.empty(0)}, False),
        ({"out": torch.full((4,), 0xFF, dtype=torch.uint8).view(torch.float8_e4m3fn)}, False),
    ],
    ids=["nan", "in part", "one of two", "whole numbers", "nothing", "codes are judged"],
)
def test_an_output_of_nan_alone_needs_no_judge(outputs: Any, blank: bool) -> None:
    assert is_blank(outputs) is blank
