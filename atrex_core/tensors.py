"""The one place that maps our dtypes to torch's. Imports torch only when called."""

from __future__ import annotations

from typing import Any

from atrex_core.model import DType

_TORCH_NAMES = {
    DType.BOOL: "bool",
    DType.UINT8: "uint8",
    DType.INT32: "int32",
    DType.INT64: "int64",
    DType.FP8_E4M3FN: "float8_e4m3fn",
    DType.FP8_E4M3FNUZ: "float8_e4m3fnuz",
    DType.FP16: "float16",
    DType.BF16: "bfloat16",
    DType.FP32: "float32",
    DType.FP64: "float64",
}


def torch_dtype(dtype: DType) -> Any:
    """Return the `torch.dtype` that stores `dtype`."""
    import torch

    return getattr(torch, _TORCH_NAMES[dtype])


def dtype_of(tensor: Any) -> DType | None:
    """Return the `DType` of a torch tensor, or None when the project has no name for it."""
    name = str(tensor.dtype).removeprefix("torch.")
    return next((dtype for dtype, known in _TORCH_NAMES.items() if known == name), None)
