"""Reductions and scans, vectorised over the axes that are not reduced.

Triton's interpreter folds element by element. Here the combine function is called on whole
blocks: for a reduction on neighbours, pair by pair, so its operands keep their order; for a
scan on all elements a power of two apart. A combine function that branches on its values cannot
be called on blocks and is folded one lane at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from atrex_backend_triton.virtual.formats import Array, decode, encode

Tensor = Any
Combine = Callable[..., Any]
"""Takes two groups of tensors and returns one group, or a bare tensor."""


class BlockTruth(TypeError):
    """A block was used where the language takes a single condition."""


def reduce(inputs: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **_unused: Any) -> Any:
    """Stand in for `tl.reduce`."""
    group = inputs if isinstance(inputs, (tuple, tl.tuple)) else (inputs,)
    arrays = [_data(tensor) for tensor in group]
    dtypes = [tensor.dtype for tensor in group]
    dimension, keep = _plain(axis), bool(_plain(keep_dims))
    rank = arrays[0].ndim
    if dimension is None:
        arrays = [array.reshape(-1) for array in arrays]
    moved = [np.moveaxis(array, 0 if dimension is None else dimension, -1) for array in arrays]
    reduced = _known_reduction(moved, dtypes, combine_fn) or _fold(moved, dtypes, combine_fn)
    if keep:
        reduced = [
            array.reshape((1,) * rank) if dimension is None else np.expand_dims(array, dimension)
            for array in reduced
        ]
    results = tuple(_tensor(*pair) for pair in zip(reduced, dtypes, strict=True))
    return results if isinstance(inputs, (tuple, tl.tuple)) else results[0]


def scan(inputs: Any, axis: Any, combine_fn: Any, reverse: Any = False, **_unused: Any) -> Any:
    """Stand in for `tl.associative_scan`."""
    group = inputs if isinstance(inputs, (tuple, tl.tuple)) else (inputs,)
    dtypes = [tensor.dtype for tensor in group]
    dimension, backwards = int(_plain(axis)), bool(_plain(reverse))
    moved = [np.moveaxis(_data(tensor), dimension, -1) for tensor in group]
    if backwards:
        moved = [np.flip(array, -1) for array in moved]
    scanned = _known_scan(moved, dtypes, combine_fn) or _inclusive_scan(moved, dtypes, combine_fn)
    if backwards:
        scanned = [np.flip(array, -1) for array in scanned]
    results = tuple(
        _tensor(np.ascontiguousarray(np.moveaxis(array, -1, dimension)), dtype)
        for array, dtype in zip(scanned, dtypes, strict=True)
    )
    return results if isinstance(inputs, (tuple, tl.tuple)) else results[0]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _data(tensor: Tensor) -> Array:
    # A scalar is stored as one element, but has no axes.
    data: Array = tensor.handle.data
    return data if tensor.type.is_block() else data.reshape(-1)


def _tensor(data: Array, dtype: Any) -> Tensor:
    if data.ndim == 0:
        return tl.core.tensor(TensorHandle(data.reshape(1), dtype), dtype)
    return tl.core.tensor(TensorHandle(data, dtype), tl.block_type(dtype, list(data.shape)))


def _known_reduction(
    arrays: Sequence[Array], dtypes: Sequence[Any], combine_fn: Any
) -> list[Array] | None:
    """Reduce the last axis by numpy where that gives what the combine function would."""
    standard, values = tl.standard, arrays[0]
    numbers = decode(values, dtypes[0])
    if combine_fn is standard._sum_combine and dtypes[0].primitive_bitwidth >= 32:
        total = np.ascontiguousarray(values).sum(axis=-1, dtype=values.dtype)
        return [np.asarray(total)]
    if combine_fn is standard._elementwise_max:
        return [np.asarray(encode_like(np.fmax.reduce(numbers, axis=-1), values, dtypes[0]))]
    if combine_fn is standard._elementwise_min:
        return [np.asarray(encode_like(np.fmin.reduce(numbers, axis=-1), values, dtypes[0]))]
    picks: dict[int, Callable[..., Any]] = {
        id(standard._argmax_combine_tie_break_left): np.argmax,
        id(standard._argmax_combine_tie_break_fast): np.argmax,
        id(standard._argmin_combine_tie_break_left): np.argmin,
        id(standard._argmin_combine_tie_break_fast): np.argmin,
    }
    pick = picks.get(id(combine_fn))
    # With NaNs the winner depends on the order of comparisons: leave that to the function.
    if pick is None or (numbers.dtype.kind == "f" and np.isnan(numbers).any()):
        return None
    places = np.expand_dims(pick(numbers, axis=-1), -1)
    return [np.take_along_axis(array, places, axis=-1)[..., 0] for array in arrays]


def encode_like(numbers: Array, stored: Array, dtype: Any) -> Array:
    """Return `numbers` as `stored` holds its own, which are of `dtype`."""
    return encode(numbers, dtype) if numbers.dtype != stored.dtype else numbers


def _known_scan(
    arrays: Sequence[Array], dtypes: Sequence[Any], combine_fn: Any
) -> list[Array] | None:
    if dtypes[0].primitive_bitwidth < 32:
        return None
    if combine_fn is tl.standard._sum_combine:
        return [np.cumsum(arrays[0], axis=-1, dtype=arrays[0].dtype)]
    if combine_fn is tl.standard._prod_combine:
        return [np.cumprod(arrays[0], axis=-1, dtype=arrays[0].dtype)]
    return None


def _fold(arrays: Sequence[Array], dtypes: Sequence[Any], combine_fn: Any) -> list[Array]:
    # Extents of blocks are powers of two, and the language accepts no others on the way.
    while arrays[0].shape[-1] > 1:
        left = [array[..., 0::2] for array in arrays]
        right = [array[..., 1::2] for array in arrays]
        arrays = _combined(left, right, dtypes, combine_fn)
    return [array[..., 0] for array in arrays]


def _inclusive_scan(arrays: Sequence[Array], dtypes: Sequence[Any], combine_fn: Any) -> list[Array]:
    distance = 1
    results = [np.array(array) for array in arrays]
    while distance < results[0].shape[-1]:
        # The first elements are combined with whatever comes around, and then left alone.
        shifted = [np.roll(array, distance, axis=-1) for array in results]
        updated = _combined(shifted, results, dtypes, combine_fn)
        for result, new in zip(results, updated, strict=True):
            result[..., distance:] = new[..., distance:]
        distance *= 2
    return results


def _combined(
    left: Sequence[Array], right: Sequence[Array], dtypes: Sequence[Any], combine_fn: Any
) -> list[Array]:
    try:
        return _call(left, right, dtypes, combine_fn)
    except BlockTruth:
        pass
    results = [np.empty_like(array) for array in left]
    for lane in np.ndindex(left[0].shape):
        answer = _call([a[lane] for a in left], [a[lane] for a in right], dtypes, combine_fn)
        for result, value in zip(results, answer, strict=True):
            result[lane] = value.item()
    return results


def _call(
    left: Sequence[Array], right: Sequence[Array], dtypes: Sequence[Any], combine_fn: Any
) -> list[Array]:
    operands = [
        _tensor(np.asarray(array), dtype)
        for side in (left, right)
        for array, dtype in zip(side, dtypes, strict=True)
    ]
    answer = combine_fn(*operands)
    group = answer if isinstance(answer, (tuple, tl.tuple)) else (answer,)
    shape = np.shape(left[0])
    stored = []
    for value, array in zip(group, left, strict=True):
        data = value.handle.data if isinstance(value, tl.core.tensor) else np.asarray(value)
        data = data.reshape(shape) if data.size == np.size(array) else np.broadcast_to(data, shape)
        stored.append(data.astype(np.asarray(array).dtype, copy=False))
    return stored
