"""Were inputs changed by somebody who should only have read them?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from attrs import frozen

from atrex_core.interfaces import Tensor, Tensors

_COPIED_BYTES = 1 << 31
"""Up to this size a copy is kept; beyond, a sum."""
_CHUNK_BYTES = 1 << 25


@frozen
class Seal:
    """What inputs were when they were sealed."""

    copies: Mapping[str, Tensor] | None
    sums: Mapping[str, int]

    @classmethod
    def of(cls, inputs: Tensors) -> Self:
        """Seal inputs as they are now."""
        if sum(tensor.nbytes for tensor in inputs.values()) <= _COPIED_BYTES:
            return cls({name: tensor.clone() for name, tensor in inputs.items()}, {})
        return cls(None, {name: _sum(tensor) for name, tensor in inputs.items()})

    def broken(self, inputs: Tensors) -> list[str]:
        """Return the names of the inputs that are no longer what they were."""
        import torch

        if self.copies is None:
            return [name for name, tensor in inputs.items() if _sum(tensor) != self.sums[name]]
        return [
            name
            for name, tensor in inputs.items()
            if not torch.equal(raw(tensor), raw(self.copies[name]))
        ]


def plain(tensor: Tensor) -> Tensor:
    """Return a tensor whose strides are those of a new one of its shape, copied if need be.

    One of a single element counts as contiguous whatever its strides are, but not as bytes.
    """
    import torch

    if tensor.stride() == torch.empty(tensor.shape, device="meta").stride():
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


def raw(tensor: Tensor) -> Tensor:
    """Return a tensor's bytes."""
    import torch

    return plain(tensor).reshape(-1).view(torch.uint8)


def _sum(tensor: Tensor) -> int:
    """Return a sum of a tensor's bytes in which each place has a weight of its own."""
    import torch

    flat = raw(tensor)
    total: Any = torch.zeros((), dtype=torch.int64, device=flat.device)
    for start in range(0, flat.numel(), _CHUNK_BYTES):
        chunk = flat[start : start + _CHUNK_BYTES]
        words = torch.nn.functional.pad(chunk, (0, -len(chunk) % 8)).clone().view(torch.int64)
        places = torch.arange(len(words), device=flat.device) + start // 8
        total += (words * (2 * places + 1)).sum()
    return int(total)
