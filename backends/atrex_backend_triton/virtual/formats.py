"""Exact conversion between numpy arrays and the bits of formats that numpy lacks.

Triton's interpreter keeps bfloat16 and the fp8 formats as unsigned integers. Here is what those
bits mean, and how a value is rounded into them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import triton.language as tl
from attrs import frozen
from numpy.typing import NDArray

Array = NDArray[Any]

_BF16_SHIFT = np.uint32(16)
_BF16_NAN = np.uint16(0x7FC0)
_TF32_KEPT_BITS = np.uint32(0xFFFFE000)


@frozen
class _Fp8Codec:
    """The values of one fp8 format by code, and how to round into it."""

    values: Array
    """Indexed by code."""
    positive: Array
    """Finite values from +0 up, in order of their codes, in float64."""
    halfway: Array
    """The midpoint above each of them but the last."""
    nan_code: int
    signed_zero: bool

    def encode(self, data: Array, *, toward_zero: bool) -> Array:
        # Saturates: both vendors' conversions clamp to the largest finite value.
        magnitude = np.abs(data.astype(np.float64))
        if toward_zero:
            code = np.searchsorted(self.positive, magnitude, side="right") - 1
        else:
            code = np.searchsorted(self.halfway, magnitude, side="left")
            tie = magnitude == self.halfway[np.minimum(code, len(self.halfway) - 1)]
            code = code + (tie & (code % 2 == 1))
        code = np.clip(code, 0, len(self.positive) - 1)
        negative = np.signbit(data)
        if not self.signed_zero:
            negative &= code != 0
        bits = np.where(negative, code | 0x80, code)
        return np.where(np.isnan(data), self.nan_code, bits).astype(np.uint8)


def is_bf16(handle: Any) -> bool:
    """Return whether `handle` holds bfloat16 bits. Comparisons keep the dtype of their inputs."""
    return handle.data.dtype == np.uint16 and bool(handle.dtype.scalar == tl.bfloat16)


def is_fp8(dtype: Any) -> bool:
    """Return whether a triton dtype is one of the fp8 formats."""
    return bool(dtype.is_fp8())


def decode(data: Array, dtype: Any) -> Array:
    """Return the numbers that `data`, the interpreter's storage of `dtype`, stands for."""
    if dtype == tl.bfloat16:
        return (data.astype(np.uint32) << _BF16_SHIFT).view(np.float32)
    if is_fp8(dtype):
        return _fp8_codec(dtype).values[data]
    return data


def encode(data: Array, dtype: Any, *, toward_zero: bool = False) -> Array:
    """Round numbers to `dtype`, ties to even, and return the interpreter's storage of it."""
    if dtype == tl.bfloat16:
        return _encode_bf16(data, toward_zero=toward_zero)
    if is_fp8(dtype):
        return _fp8_codec(dtype).encode(data, toward_zero=toward_zero)
    rounded = data.astype(_NUMPY_FLOATS[dtype.name])
    if toward_zero:
        overshoot = np.abs(rounded.astype(np.float64)) > np.abs(data.astype(np.float64))
        rounded = np.where(overshoot, np.nextafter(rounded, rounded.dtype.type(0)), rounded)
    return rounded


def to_tf32(data: Array) -> Array:
    """Drop the mantissa bits that a tf32 matrix unit does not read."""
    return (data.view(np.uint32) & _TF32_KEPT_BITS).view(np.float32)


_NUMPY_FLOATS: dict[str, Any] = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}


def _encode_bf16(data: Array, *, toward_zero: bool) -> Array:
    # Not ascontiguousarray: that would turn a scalar into a vector.
    single = np.asarray(data, dtype=np.float32, order="C")
    bits = single.view(np.uint32)
    if not toward_zero:
        bits = bits + (np.uint32(0x7FFF) + ((bits >> _BF16_SHIFT) & np.uint32(1)))
    rounded = (bits >> _BF16_SHIFT).astype(np.uint16)
    nan = np.isnan(single)
    return np.where(nan, _BF16_NAN, rounded) if nan.any() else rounded


@cache
def _fp8_codec(dtype: Any) -> _Fp8Codec:
    mantissa_bits = int(dtype.fp_mantissa_width)
    bias = int(dtype.exponent_bias)
    codes = np.arange(128)
    exponent, mantissa = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits)
    positive = np.where(
        exponent == 0, fraction * 2.0 ** (1 - bias), (1.0 + fraction) * 2.0 ** (exponent - bias)
    )
    unsigned_zero = dtype.name in ("fp8e4b8", "fp8e5b16")
    finite = 128
    if dtype.name == "fp8e4nv":
        positive[127], finite = np.nan, 127
    elif dtype.name == "fp8e5":
        positive[124:], finite = [np.inf, np.nan, np.nan, np.nan], 124
    values = np.concatenate([positive, -positive]).astype(np.float32)
    if unsigned_zero:
        values[128] = np.nan
    representable = positive[:finite]
    return _Fp8Codec(
        values,
        representable,
        (representable[:-1] + representable[1:]) / 2,
        0x80 if unsigned_zero else 0x7F,
        not unsigned_zero,
    )
