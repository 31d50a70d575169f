"""What the referee recognises as an output that nobody wrote."""

from __future__ import annotations

import math

import pytest

from atrex_core import DType
from atrex_core.referee.bench import _poison


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
