"""What memory gives: arrays read, written, copied and combined, inside the cache and past it."""

from __future__ import annotations

from typing import Any, Final

from attrs import define, field, frozen

from atrex_core.calibration.clock import Clock, Operation, Unmeasured
from atrex_core.interfaces import Tensor
from atrex_core.model.calibration import Load, Measured, Regime

OVER_CACHE: Final = 4
CACHED_SHARE: Final = 4
_MOST_BYTES: Final = 2 * 2**30
_LEAST_BYTES: Final = 64 * 2**20
_FREE_SHARE: Final = 4
_ITEM_BYTES: Final = 4
_ALIGNED_ITEMS: Final = 6 * 1024
"""Halves and thirds of the arrays begin where a vector access may begin."""
_FEW, _MANY = 8, 24
_SCALE: Final = 0.5

Torch = Any

ORDER: Final = (Load.READ, Load.COPY, Load.TRIAD, Load.WRITE)
"""Writing fills the array with one value, so that it comes last: power depends on the data."""


@frozen(kw_only=True)
class Stream:
    """One load over a part of an arena, and how many bytes it moves."""

    operation: Operation
    moved_bytes: int


@define(eq=False)
class Arena:
    """One array of normal draws, which each load of a regime takes for its arrays."""

    torch: Torch
    clock: Clock
    regime: Regime
    cache_bytes: int | None
    is_synchronous: bool
    _array: Tensor | None = field(default=None, init=False)

    def measure(self, load: Load) -> tuple[int, Measured]:
        """Return how many bytes one operation moves, and the rate.

        Raises:
            Unmeasured: there is no room, or no time.
        """
        if self._array is None:
            self._array = self._draw()
        stream = _stream(self.torch, load, self._array)
        if self.regime is Regime.CACHED:
            times = self.clock.warm_times(stream.operation, few=_FEW, many=_MANY)
        else:
            times = self.clock.times(stream.operation)
        return stream.moved_bytes, times.as_rate(stream.moved_bytes)

    def _draw(self) -> Tensor:
        aligned = _ITEM_BYTES * _ALIGNED_ITEMS
        items = self._wanted_bytes() // aligned * _ALIGNED_ITEMS
        if items == 0:
            raise Unmeasured("the last-level cache is too small")
        device = self.clock.context.torch_device
        return self.torch.empty(items, dtype=self.torch.float32, device=device).normal_()

    def _wanted_bytes(self) -> int:
        if self.regime is Regime.CACHED:
            if self.cache_bytes is None:
                raise Unmeasured("the size of the last-level cache is not known")
            return self.cache_bytes // CACHED_SHARE
        # A host draws slowly, and needs no more to be past its cache.
        most = _LEAST_BYTES if self.is_synchronous and self.cache_bytes else _MOST_BYTES
        least = OVER_CACHE * (self.cache_bytes or 0)
        free = self.clock.context.free_bytes()
        room = most + least if free is None else free // _FREE_SHARE
        if room < least:
            raise Unmeasured(
                f"a quarter of the free memory, {room} bytes, is not past the cache of "
                f"{self.cache_bytes} bytes by {OVER_CACHE} times"
            )
        # Rounded up: what is cut off for alignment must not bring it below.
        return max(min(most, room), least + _ITEM_BYTES * _ALIGNED_ITEMS)


def _stream(torch: Torch, load: Load, array: Tensor) -> Stream:
    nbytes = array.numel() * _ITEM_BYTES
    if load is Load.READ:
        return Stream(operation=array.sum, moved_bytes=nbytes)
    if load is Load.WRITE:
        return Stream(operation=lambda: array.fill_(_SCALE), moved_bytes=nbytes)
    if load is Load.COPY:
        source, target = array.chunk(2)
        return Stream(operation=lambda: target.copy_(source), moved_bytes=nbytes)
    a, b, c = array.chunk(3)
    return Stream(operation=lambda: torch.add(b, c, alpha=_SCALE, out=a), moved_bytes=nbytes)
