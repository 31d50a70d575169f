"""Walk large tensors in tiles and keep running figures on their device.

For comparison only. Nothing here knows a tolerance or an operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attrs import frozen

from atrex_core.tensors import RowBlocks

Tensor = Any
"""`torch.Tensor`; core never imports torch at module level."""

_TILE = 1 << 22
"""Elements per tile: its temporaries stay in the caches, or nearly, and it hides launches."""


class Tally:
    """Figures of one walk: kept on the device tile by tile, folded here once all are known."""

    def __init__(self) -> None:
        self._values: list[Tensor] = []
        self._folds: dict[str, list[_Fold]] = {}

    def add(self, name: str, value: Tensor) -> None:
        """Sum."""
        self._keep(name, _Sum, value)

    def add_each(self, names: Sequence[str], values: Tensor) -> None:
        """Sum each of a row of values under a name of its own."""
        for name, value in zip(names, values.unbind(), strict=True):
            self.add(name, value)

    def least(self, name: str, value: Tensor) -> None:
        """Keep the smallest value."""
        self._keep(name, _Least, value)

    def most(
        self,
        name: str,
        value: Tensor,
        *,
        at: Tensor | None = None,
        within: Callable[[int], int] = int,
    ) -> None:
        """Keep the largest value and, in `name_at`, where it stood first.

        Args:
            name: Of the figure.
            value: Of this tile.
            at: Its position in the tile.
            within: Turns that position into one in the whole.
        """
        self._keep(name, _Most, value, *([] if at is None else [at]), within=within)

    def first(self, name: str, wrong: Tensor, positions: Tile) -> None:
        """Keep the smallest flat index where `wrong` holds; infinity where it never does."""
        import torch

        flat = wrong.reshape(-1)
        self._keep(name, _First, flat.any(), flat.to(torch.uint8).argmax(), within=positions.flat)

    def read(self) -> dict[str, float]:
        """Wait for the device, and return every figure."""
        values = _fetched(self._values)
        found: dict[str, float] = {}
        for name, folds in self._folds.items():
            figure = folds[0].fold([fold.taken(values) for fold in folds])
            found[name] = figure[0]
            if len(figure) > 1:
                found[f"{name}_at"] = figure[1]
        return found

    def _keep(
        self,
        name: str,
        kind: type[_Fold],
        *values: Tensor,
        within: Callable[[int], int] = int,
    ) -> None:
        fold = kind(place=len(self._values), count=len(values), within=within)
        self._folds.setdefault(name, []).append(fold)
        self._values += values


def _fetched(values: Sequence[Tensor]) -> list[float]:
    """Return scalars of any types, in as few transfers as there are types."""
    import torch

    by_type: dict[Any, list[int]] = {}
    for number, value in enumerate(values):
        by_type.setdefault(value.dtype, []).append(number)
    found = [0.0] * len(values)
    for numbers in by_type.values():
        fetched: list[float] = torch.stack([values[n] for n in numbers]).tolist()
        for number, value in zip(numbers, fetched, strict=True):
            found[number] = value
    return found


_Taken = tuple[float, float | None]
"""A value of one tile, and where it stood in the whole."""


@frozen(kw_only=True)
class _Fold:
    """One tile's share of a figure: which fetched values it is."""

    place: int
    count: int
    within: Callable[[int], int]

    def taken(self, values: Sequence[float]) -> _Taken:
        at = self.within(int(values[self.place + 1])) if self.count > 1 else None
        return values[self.place], at

    def fold(self, tiles: Sequence[_Taken]) -> tuple[float, ...]:
        """Return the figure of all tiles, and perhaps a position."""
        raise NotImplementedError


class _Sum(_Fold):
    def fold(self, tiles: Sequence[_Taken]) -> tuple[float, ...]:
        return (sum(value for value, _ in tiles),)


class _Least(_Fold):
    def fold(self, tiles: Sequence[_Taken]) -> tuple[float, ...]:
        values = [value for value, _ in tiles]
        return (math.nan if any(map(math.isnan, values)) else min(values),)


class _Most(_Fold):
    def fold(self, tiles: Sequence[_Taken]) -> tuple[float, ...]:
        best, best_at = tiles[0]
        for value, at in tiles[1:]:
            if value > best:
                best, best_at = value, at
        if any(math.isnan(value) for value, _ in tiles):
            best = math.nan
        return (best,) if best_at is None else (best, best_at)


class _First(_Fold):
    def fold(self, tiles: Sequence[_Taken]) -> tuple[float, ...]:
        return (min((at for found, at in tiles if found and at is not None), default=math.inf),)


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

    def flat(self, position: int) -> int:
        """Turn a flat position inside the tile into one inside the tensor."""
        row, column = divmod(position, self.columns.stop - self.columns.start)
        flat: int = (self.rows.start + row) * self.width + self.columns.start + column
        return flat


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
    across = min(width, _TILE)
    down = max(1, _TILE // across)
    for top in range(0, rows, down):
        yield [
            Tile(
                rows=slice(top, min(top + down, rows)),
                columns=slice(left, min(left + across, width)),
                width=width,
            )
            for left in range(0, width, across)
        ]
