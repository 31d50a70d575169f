"""Wrong attention: mutants that several operators share. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from attrs import evolve

from atrex_core import Implementation, Inapplicable, Tensors, Workload
from atrex_core.packs import coarse
from atrex_problems_production._attention import (
    Attention,
    Kernel,
    averages,
    plain,
    scores_of,
    split,
    tiled,
    without_maximum,
)

_TILE = 16
"""Keys that a wrong kernel takes, or drops, together."""


def common_mutants(
    call: Callable[[Workload, Tensors], Attention],
    is_single: Callable[[Workload], bool],
    longest: Callable[[Workload], int],
) -> Mapping[str, Implementation]:
    """Return what is wrong for any attention: scale, softmax, keys, heads, precision.

    `is_single` says of which workloads no query ever sees two keys: weights do not matter there.
    `longest` says how many keys the longest sequence has where lengths are as given.
    """

    def by(kernel: Kernel, **changes: Callable[[Attention], Any]) -> Implementation:
        def mutant(workload: Workload, inputs: Tensors) -> Tensors:
            right = call(workload, inputs)
            wrong = {name: change(right) for name, change in changes.items()}
            return {"out": evolve(right, **wrong).rounded(kernel)}

        return mutant

    def of_several(mutant: Implementation) -> Implementation:
        def checked(workload: Workload, inputs: Tensors) -> Tensors:
            if is_single(workload):
                raise Inapplicable("each query sees one key")
            return mutant(workload, inputs)

        return checked

    def of_more_than(keys: int, mutant: Implementation) -> Implementation:
        def checked(workload: Workload, inputs: Tensors) -> Tensors:
            if longest(workload) <= keys:
                raise Inapplicable(f"no sequence has more than {keys} keys")
            return mutant(workload, inputs)

        return checked

    def scale_of_padded_head(workload: Workload, inputs: Tensors) -> Tensors:
        size = call(workload, inputs).query.shape[2]
        padded = 1 << (size - 1).bit_length()
        if padded == size:
            raise Inapplicable("the head needs no padding")
        return by(plain, scale=lambda _: padded**-0.5)(workload, inputs)

    def half_of_the_head(q: Any, k: Any, v: Any, dead: Any, scale: float) -> Any:
        half = q.shape[-1] // 2
        return plain(q[..., :half], k[..., :half], v, dead, scale)

    def coarse_cache(q: Any, k: Any, v: Any, dead: Any, scale: float) -> Any:
        return plain(q, coarse(k), coarse(v), dead, scale)

    def one_key_less(right: Attention) -> list[int]:
        return [max(0, keys - 1) for keys in right.key_lens]

    def other_heads(workload: Workload, inputs: Tensors) -> Tensors:
        right = call(workload, inputs)
        if is_single(workload) and right.heads == 1:
            raise Inapplicable("all heads return the one value")
        return {"out": right.rounded(plain).roll(1, 1)}

    return {
        "ignores_query": of_several(by(plain, query=lambda right: right.query * 0)),
        "unscaled": of_several(by(plain, scale=lambda _: 1.0)),
        "scale_of_padded_head": of_several(scale_of_padded_head),
        "scale_off_by_0.4_percent": of_more_than(
            1, by(plain, scale=lambda right: 1.004 * right.scale)
        ),
        "half_of_the_head": of_several(by(half_of_the_head)),
        "misses_last_key": by(plain, key_lens=one_key_less),
        "without_maximum": by(without_maximum),
        "maximum_of_first_tile": of_more_than(2 * _TILE - 1, by(_maximum_of_first_tile)),
        "maximum_from_zero": by(partial(without_maximum, least=0.0)),
        "coarse_weights": of_several(by(partial(plain, change=lambda w: coarse(w, 3)))),
        "narrow_scores": of_more_than(1, by(_narrow_scores)),
        "drops_light_keys": of_more_than(1, by(partial(plain, change=_without_light_keys))),
        "drops_light_tiles": of_more_than(_TILE, by(partial(plain, change=_without_light_tiles))),
        "narrow_accumulator": of_more_than(2 * _TILE - 1, by(_narrow_accumulator)),
        "parts_not_rescaled": of_more_than(1, by(partial(split, parts=2, rescaled=False))),
        "coarse_cache": by(coarse_cache),
        "other_heads": other_heads,
    }


def interleaved_heads(call: Callable[[Workload, Tensors], Attention]) -> Implementation:
    """Return a mutant in which neighbouring query heads use different key heads."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        right = call(workload, inputs)
        count = right.query.shape[1]
        if right.heads in (1, count):
            raise Inapplicable("heads are not grouped, or all are one group")
        order = [h for first in range(right.heads) for h in range(first, count, right.heads)]
        out = evolve(right, query=right.query[:, order]).rounded(plain)
        return {"out": out[:, [order.index(h) for h in range(count)]]}

    return mutant


def blocks_of(
    size: int,
    call: Callable[[Workload, Tensors], Attention],
    read: Callable[[Tensors], tuple[Any, Any, Any]],
) -> Implementation:
    """Return a mutant that takes every block for one of `size` slots.

    `read` returns keys and values [blocks, slots, heads, ...], and the table.
    """

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        import torch

        *caches, table = read(inputs)
        block = caches[0].shape[1]
        if block == size:
            raise Inapplicable(f"blocks have {size} slots")

        def fetch(sequences: Any, width: int) -> tuple[Any, Any]:
            token = torch.arange(width, device=table.device)
            blocks = table[sequences][:, (token // size).clamp(max=table.shape[1] - 1)].long()
            place = (blocks * block + token % size).clamp(max=len(caches[0]) * block - 1)
            k, v = (cache.flatten(0, 1)[place] for cache in caches)
            return k, v

        return {"out": evolve(call(workload, inputs), fetch=fetch).rounded(plain)}

    return mutant


def _without_light_keys(weights: Any) -> Any:
    """Drop keys whose weight is below 0.5 % of the heaviest one's."""
    return _renormalised(weights * (weights >= 5e-3 * weights.amax(-1, keepdim=True)))


def _without_light_tiles(weights: Any) -> Any:
    """Drop tiles of keys none of which has 1 % of the heaviest one's weight."""
    import torch

    width = weights.shape[-1]
    tops = torch.nn.functional.pad(weights, (0, -width % _TILE)).unflatten(-1, (-1, _TILE)).amax(-1)
    kept = tops >= 1e-2 * tops.amax(-1, keepdim=True)
    return _renormalised(weights * kept.repeat_interleave(_TILE, -1)[..., :width])


def _renormalised(weights: Any) -> Any:
    return weights / weights.sum(-1, keepdim=True).clamp_min(1e-30)


def _maximum_of_first_tile(q: Any, k: Any, v: Any, dead: Any, scale: float) -> Any:
    """Never move the maximum that the first tile had."""
    scores = scores_of(q.float() * scale, k.float(), dead)
    weights = scores.sub_(scores[..., :_TILE].amax(-1, keepdim=True)).exp_()
    return averages(weights / weights.sum(-1, keepdim=True), v.float())


def _narrow_scores(q: Any, k: Any, v: Any, dead: Any, scale: float) -> Any:
    """Round scores to the storage type before softmax."""
    import torch

    scores = scores_of(q.float() * scale, k.float(), None).to(q.dtype).float()
    if dead is not None:
        scores = scores.masked_fill_(dead, -torch.inf)
    return averages(scores.softmax(-1).nan_to_num_(0.0), v.float())


def _narrow_accumulator(q: Any, k: Any, v: Any, dead: Any, scale: float) -> Any:
    """Keep the accumulator in the storage type from one tile to the next."""
    tiles = min(64, -(-k.shape[2] // _TILE))
    return tiled(q, k, v, dead, scale, tiles=tiles, between=lambda acc: acc.to(q.dtype).float())
