"""Which addresses a launch may touch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np


class OutOfBounds(IndexError):
    """A kernel touched memory that none of its arguments owns."""


class Extents:
    """The storages of a launch's arguments.

    An access that leaves one argument's storage and lands in another's is not noticed, as it
    would not be by the hardware's own checker.
    """

    def __init__(self, args: Iterable[Any]) -> None:
        self._spans = sorted(set(_spans(args)))

    def check(self, access: str, pointers: Any, mask: Any) -> None:
        """Check the addresses of the lanes that `mask` leaves active.

        Raises:
            OutOfBounds: a lane is outside every argument's storage.
        """
        addresses = pointers.data
        if mask is not None:
            # Some versions pass the bare array where others pass a handle.
            active = np.asarray(getattr(mask, "data", mask))
            if not active.all():
                shape = np.broadcast_shapes(addresses.shape, active.shape)
                addresses = np.broadcast_to(addresses, shape)[np.broadcast_to(active, shape)]
        if addresses.size == 0:
            return
        width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        low, high = int(addresses.min()), int(addresses.max()) + width
        if any(start <= low and high <= end for start, end in self._spans):
            return
        inside = np.zeros(addresses.shape, dtype=bool)
        for start, end in self._spans:
            inside |= (addresses >= start) & (addresses + np.uint64(width) <= end)
        outside = int(addresses.size - np.count_nonzero(inside))
        if outside:
            raise OutOfBounds(
                f"out-of-bounds {access}: {outside} of {addresses.size} active lanes are outside "
                "the memory of every argument"
            )


def _spans(args: Iterable[Any]) -> Iterator[tuple[int, int]]:
    for arg in args:
        if isinstance(arg, tuple):
            yield from _spans(arg)
        elif hasattr(arg, "untyped_storage"):
            storage = arg.untyped_storage()
            yield storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        elif hasattr(arg, "base"):
            # A tensor descriptor, or a tensor seen as another dtype.
            yield from _spans((arg.base,))
