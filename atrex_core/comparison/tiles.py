"""Walk large tensors in tiles and keep running figures on their device.

For comparison only. Nothing here knows a tolerance or an operator.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from attrs import frozen

from atrex_core.tensors import RowBlocks

Tensor = Any
"""`torch.Tensor`; core never imports torch at module level."""

_TILE = 1 << 22
"""Elements per tile on the host: its temporaries stay in the caches, or nearly."""

_DEVICE_TILE = 1 << 24
"""Elsewhere: large enough to hide launches, small enough for any device."""


class Tally:
    """Running figures of one walk, kept on the device."""

    def __init__(self, device: Any) -> None:
        import torch

        self._figures: dict[str, Tensor] = {}
        self._none = torch.full((), math.inf, dtype=torch.float64, device=device)

    def add(self, name: str, value: Tensor) -> None:
        """Sum."""
        value = value.double()
        old = self._figures.get(name)
        self._figures[name] = value if old is None else old + value

    def least(self, name: str, value: Tensor) -> None:
        """Keep the smallest value."""
        import torch

        self._figures[name] = torch.minimum(self._figures.get(name, self._none), value.double())

    def most(self, name: str, value: Tensor, *, at: Tensor | None = None) -> None:
        """Keep the largest value and, in `name_at`, where it stood first."""
        import torch

        value = value.double()
        old = self._figures.get(name, -self._none)
        self._figures[name] = torch.maximum(old, value)
        if at is not None:
            old_at = self._figures.get(f"{name}_at", torch.zeros_like(value))
            self._figures[f"{name}_at"] = torch.where(value > old, at.double(), old_at)

    def first(self, name: str, wrong: Tensor, positions: Tile) -> None:
        """Keep the smallest flat index where `wrong` holds."""
        import torch

        flat = wrong.reshape(-1)
        at = positions.flat(flat.to(torch.uint8).argmax()).double()
        self.least(name, torch.where(flat.any(), at, self._none))

    def read(self) -> dict[str, float]:
        """Wait for the device, once, and return every figure."""
        import torch

        names = list(self._figures)
        values: list[float] = torch.stack([self._figures[name] for name in names]).tolist()
        return dict(zip(names, values, strict=True))


@frozen(kw_only=True)
class Tile:
    """A rectangle of a tensor seen as rows of its last axis."""

    rows: slice
    columns: slice
    width: int
    """Length of a whole row."""

    def of(self, tensor: Tensor) -> Tensor:
        """Cut this tile out of `tensor`, a matrix."""
        return tensor[self.rows, self.columns]

    def flat(self, position: Tensor) -> Tensor:
        """Turn a flat position inside the tile into one inside the tensor."""
        across = self.columns.stop - self.columns.start
        row, column = position // across, position % across
        return (self.rows.start + row) * self.width + self.columns.start + column


def as_rows(tensor: Any) -> Any:
    """View a tensor, or `RowBlocks`, as a matrix whose rows run along its last axis."""
    if isinstance(tensor, RowBlocks):
        return _Matrix(tensor)
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else tensor.reshape(1, 1)


@frozen
class _Matrix:
    """`RowBlocks` as a matrix: cut by two slices, or asked for one element."""

    tensor: RowBlocks

    def __getitem__(self, key: tuple[Any, Any]) -> Tensor:
        rows, columns = key
        if isinstance(rows, int):
            return self[rows : rows + 1, columns : columns + 1].reshape(())
        if len(self.tensor.shape) == 1:
            return self.tensor.rows(columns.start, columns.stop)[None]
        inner = math.prod(self.tensor.shape[1:-1])
        first, last = rows.start // inner, -(-rows.stop // inner)
        block = self.tensor.rows(first, last)
        matrix = block.reshape(-1, block.shape[-1])
        return matrix[rows.start - first * inner : rows.stop - first * inner, columns]


def blocks(matrix: Tensor) -> Iterator[list[Tile]]:
    """Yield blocks of whole rows of a matrix, each as the tiles it consists of."""
    rows, width = matrix.shape
    size = _TILE if matrix.device.type == "cpu" else _DEVICE_TILE
    across = min(width, size)
    down = max(1, size // across)
    for top in range(0, rows, down):
        yield [
            Tile(
                rows=slice(top, min(top + down, rows)),
                columns=slice(left, min(left + across, width)),
                width=width,
            )
            for left in range(0, width, across)
        ]
