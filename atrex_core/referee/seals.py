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
            if not torch.equal(_raw(tensor), _raw(self.copies[name]))
        ]


def _raw(tensor: Tensor) -> Tensor:
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _sum(tensor: Tensor) -> int:
    """Return a sum of a tensor's bytes in which each place has a weight of its own."""
    import torch

    raw = _raw(tensor)
    total: Any = torch.zeros((), dtype=torch.int64, device=raw.device)
    for start in range(0, raw.numel(), _CHUNK_BYTES):
        chunk = torch.nn.functional.pad(raw[start : start + _CHUNK_BYTES], (0, -raw.numel() % 8))
        words = chunk[: len(chunk) // 8 * 8].clone().view(torch.int64)
        places = torch.arange(len(words), device=raw.device) + start // 8
        total += (words * (2 * places + 1)).sum()
    return int(total)
