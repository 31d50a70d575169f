"""Our dtypes as torch's, and tensors too large to hold. Imports torch only when called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field

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


@define(eq=False)
class RowBlocks:
    """A tensor that is computed some rows of its first axis at a time, when they are looked at.

    What a problem may return from `expected` where all of it at once would not fit. A comparison
    walks the rows in order, and looks at some of them more than once; two blocks are held, so that
    rows at the edge of both cost nothing more, and each block is computed once.
    """

    shape: tuple[int, ...]
    step: int
    """Rows in a block: as many as the device has room to compute at once."""
    compute: Callable[[int, int], Any]
    """Return rows `start` to `stop` as a tensor of shape (stop - start, *shape[1:])."""
    _held: dict[int, Any] = field(factory=dict, init=False)
    """The last two blocks, by their number."""

    def rows(self, start: int, stop: int) -> Any:
        """Return rows `start` to `stop`, whatever blocks they lie in."""
        import torch

        parts = []
        for index in range(start // self.step, (stop - 1) // self.step + 1):
            first = index * self.step
            block = self._block(index)
            parts.append(block[max(0, start - first) : stop - first])
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def dense(self) -> Any:
        """Return all rows as one tensor."""
        result: Any = None
        for start in range(0, self.shape[0], self.step):
            block = self._block(start // self.step)
            if result is None:
                result = block.new_empty(self.shape)
            result[start : start + len(block)] = block
        self._held.clear()
        return result

    def _block(self, index: int) -> Any:
        if index not in self._held:
            while len(self._held) > 1:  # makes room for the next
                del self._held[next(iter(self._held))]
            start = index * self.step
            self._held[index] = self.compute(start, min(start + self.step, self.shape[0]))
        return self._held[index]


def dense(tensor: Any) -> Any:
    """Return a tensor that may be `RowBlocks` as one torch tensor."""
    return tensor.dense() if isinstance(tensor, RowBlocks) else tensor
