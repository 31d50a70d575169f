"""Element types of tensors, named as kernel authors name them."""

from __future__ import annotations

from enum import StrEnum


class DType(StrEnum):
    """A storage type. How fast a device computes in it is an `ArithmeticPath`, not this."""

    BOOL = "bool"
    UINT8 = "uint8"
    INT32 = "int32"
    INT64 = "int64"
    FP8_E4M3FN = "fp8_e4m3fn"
    FP8_E4M3FNUZ = "fp8_e4m3fnuz"
    FP16 = "fp16"
    BF16 = "bf16"
    FP32 = "fp32"
    FP64 = "fp64"

    @property
    def item_bytes(self) -> int:
        """Size of one element in bytes."""
        return _ITEM_BYTES[self]

    @property
    def is_floating(self) -> bool:
        """Whether values are compared within a tolerance rather than exactly."""
        return self in _EPSILON

    @property
    def epsilon(self) -> float:
        """Distance from 1.0 to the next larger value; 0.0 for exact types."""
        return _EPSILON.get(self, 0.0)


_ITEM_BYTES = {
    DType.BOOL: 1,
    DType.UINT8: 1,
    DType.INT32: 4,
    DType.INT64: 8,
    DType.FP8_E4M3FN: 1,
    DType.FP8_E4M3FNUZ: 1,
    DType.FP16: 2,
    DType.BF16: 2,
    DType.FP32: 4,
    DType.FP64: 8,
}

_EPSILON = {
    DType.FP8_E4M3FN: 2.0**-3,
    DType.FP8_E4M3FNUZ: 2.0**-3,
    DType.FP16: 2.0**-10,
    DType.BF16: 2.0**-7,
    DType.FP32: 2.0**-23,
    DType.FP64: 2.0**-52,
}
