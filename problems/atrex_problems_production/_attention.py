"""Attention over sequences of any lengths: what the private halves of several operators share.

An operator says where the queries and the keys of each sequence are; how rows are batched, and
what is computed for a batch, is here. Importing this imports no torch.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any

from attrs import Factory, evolve, field, frozen

from atrex_core import (
    ArithmeticPath,
    DType,
    Implementation,
    RowBlocks,
    Tensors,
    Tolerance,
    Workload,
)

_LOG2E = math.log2(math.e)

_LOW = -1e30
"""A maximum of no scores: below any score, and finite, so that it can be subtracted."""

Kernel = Callable[[Any, Any, Any, Any, float], Any]
"""Return outputs [n, h, r, g, e] from q [n, h, r, g, d], k [n, h, t, d], v [n, h, t, e], a mask
[n, 1, r, 1, t] that is true where a key is not seen (or None), and the scale of the scores."""


def bottom_right(row: Any, queries: Any, keys: Any) -> Any:
    """Return how many keys a query sees where the last query is the newest token."""
    return keys - queries + row + 1


@frozen(kw_only=True)
class Attention:
    """One call of an operator. Rows are queries, packed one sequence after the other."""

    query: Any
    """[rows, query heads, size]."""
    query_lens: Sequence[int]
    key_lens: Sequence[int]
    fetch: Callable[[Any, int], tuple[Any, Any]]
    """Return keys and values [n, width, heads, size] of the n sequences named by an index tensor.

    What stands past the end of a sequence is anything finite.
    """
    heads: int
    """Heads of keys and values; query heads share them in contiguous groups."""
    value_size: int
    scale: float
    visible: Callable[[Any, Any, Any], Any] | None = None
    """How many leading keys a query sees, never fewer than the query before it: from its place,
    and how many queries and keys its sequence has. All of them where this is None."""
    scores: int = 1 << 26
    """Scores held at once: half a GiB of float64."""
    fetched: int = 1 << 27
    """Elements of keys and values held at once."""
    packed: int = 1 << 25
    """Elements of queries, or of outputs, held at once."""
    _starts: Sequence[int] = field(
        init=False,
        default=Factory(lambda self: list(accumulate(self.query_lens, initial=0)), takes_self=True),
    )

    def by(self, kernel: Kernel) -> RowBlocks:
        """Return [rows, query heads, value size] as `kernel` computes it, some rows at a time.

        A comparison comes back to rows at the edge of two blocks: both are kept.
        """
        rows, heads, size = self.query.shape
        block = max(1, self.packed // (heads * max(size, self.value_size)))
        step = max(1, self.scores // (heads // self.heads * max(1, *self.key_lens)))

        @lru_cache(maxsize=2)
        def compute(start: int, stop: int) -> Any:
            import torch

            firsts = range(start, stop, step)
            return torch.cat([self._compute(kernel, i, min(i + step, stop)) for i in firsts])

        return RowBlocks(shape=(rows, heads, self.value_size), step=block, compute=compute)

    def rounded(self, kernel: Kernel) -> Any:
        """Return the same as one tensor of the queries' dtype."""
        wide = self.by(kernel)

        def compute(start: int, stop: int) -> Any:
            return wide.compute(start, stop).to(self.query.dtype)

        return evolve(wide, compute=compute).dense()

    def _compute(self, kernel: Kernel, start: int, stop: int) -> Any:
        import torch

        query, device = self.query, self.query.device
        shape = (stop - start + 1, query.shape[1], self.value_size)
        out = torch.zeros(shape, dtype=torch.float64, device=device)  # a last row for padding
        for pieces in _batches(self._pieces(start, stop), self):
            facts = [(p.sequence, p.first, p.rows, *self._lens(p.sequence)) for p in pieces]
            sequence, first, count, queries, keys = torch.tensor(facts, device=device).T[..., None]
            begin = torch.tensor([self._starts[p.sequence] for p in pieces], device=device)
            rows, width = max(p.rows for p in pieces), max(1, *(p.keys for p in pieces))
            row = torch.arange(rows, device=device)[None]
            place = begin[:, None] + first + row.minimum(count - 1)
            q = query[place].unflatten(2, (self.heads, -1)).permute(0, 2, 1, 3, 4)
            k, v = (t.transpose(1, 2) for t in self.fetch(sequence[:, 0], width))
            dead = None
            if self.visible is not None or any(p.keys < width for p in pieces):
                seen = keys
                if self.visible is not None:
                    seen = self.visible(first + row, queries, keys).minimum(keys)
                dead = torch.arange(width, device=device) >= seen[:, None, :, None, None]
            together = max(1, self.scores // (q[:, 0, :, :, 0].numel() * width))
            parts = [
                kernel(q[:, h], k[:, h], v[:, h], dead, self.scale)
                for h in (slice(h, h + together) for h in range(0, self.heads, together))
            ]
            found = torch.cat(parts, 1).permute(0, 2, 1, 3, 4).flatten(2, 3).flatten(0, 1)
            target = torch.where(row < count, place - start, stop - start)
            out.index_copy_(0, target.flatten(), found.double())
        return out[:-1]

    def _pieces(self, start: int, stop: int) -> Iterator[_Piece]:
        """Cut rows `start` to `stop` where sequences end."""
        sequence = bisect_right(self._starts, start) - 1
        while start < stop:
            end = min(stop, self._starts[sequence + 1])
            if end > start:
                first = start - self._starts[sequence]
                queries, keys = self._lens(sequence)
                if self.visible is not None:
                    keys = max(0, min(keys, self.visible(first + end - start - 1, queries, keys)))
                yield _Piece(sequence=sequence, first=first, rows=end - start, keys=keys)
                start = end
            sequence += 1

    def _lens(self, sequence: int) -> tuple[int, int]:
        return self.query_lens[sequence], self.key_lens[sequence]


@frozen(kw_only=True)
class _Piece:
    """Consecutive rows of one sequence, and how many keys the last of them sees."""

    sequence: int
    first: int
    rows: int
    keys: int


def _batches(pieces: Iterator[_Piece], call: Attention) -> Iterator[list[_Piece]]:
    """Put together what pads well and fits."""
    query_heads, size = call.query.shape[1:]
    group = query_heads // call.heads
    row_elements = call.heads * (size + call.value_size)
    batch: list[_Piece] = []
    rows = live = 0
    for piece in sorted(pieces, key=lambda p: (p.keys, p.rows)):
        count = len(batch) + 1
        rows, live = max(rows, piece.rows), live + piece.rows
        fits = (
            count * rows <= 2 * live + 64
            and count * rows * group * piece.keys <= call.scores
            and count * piece.keys * row_elements <= call.fetched
        )
        if batch and not fits:
            yield batch
            batch, rows, live = [], piece.rows, piece.rows
        batch.append(piece)
    if batch:
        yield batch


def exact(q: Any, k: Any, v: Any, dead: Any, scale: float) -> Any:
    """Attend in float64. A query that sees no key gets zeros."""
    weights = _softmax(scores_of(q.double() * scale, k.double(), dead), dead)
    return averages(weights, v.double())


def plain(
    q: Any, k: Any, v: Any, dead: Any, scale: float, *, change: Callable[[Any], Any] | None = None
) -> Any:
    """Attend in fp32; weights may be changed between softmax and the product with values."""
    weights = _softmax(scores_of(q.float() * scale, k.float(), dead), dead)
    return averages(weights if change is None else change(weights), v.float())


def without_maximum(
    q: Any, k: Any, v: Any, dead: Any, scale: float, *, least: float | None = None
) -> Any:
    """Attend in fp32 with exponentials of the scores, less their maximum only above `least`."""
    scores = scores_of(q.float() * scale, k.float(), dead)
    if least is not None:
        scores -= scores.amax(-1, keepdim=True).clamp_min(least)
    weights = scores.exp_()
    return averages(weights, v.float()) / weights.sum(-1, keepdim=True)


def tiled(
    q: Any,
    k: Any,
    v: Any,
    dead: Any,
    scale: float,
    *,
    tiles: int,
    backwards: bool = False,
    narrow: bool = False,
    between: Callable[[Any], Any] | None = None,
) -> Any:
    """Attend by online softmax over tiles of keys, in fp32 and powers of two.

    Where `narrow`, the scaled query and the weights are rounded to the storage type before they
    are multiplied, and the sum of weights is not. `between` changes the accumulator after a tile.
    """
    wide = q.float() * (scale * _LOG2E)
    if narrow:
        wide = wide.to(q.dtype).float()
    top = wide.new_full((*q.shape[:-1], 1), _LOW)
    total, acc = top * 0, wide.new_zeros((*q.shape[:-1], v.shape[-1]))
    cuts = _cuts(k.shape[2], tiles)
    for tile in reversed(cuts) if backwards else cuts:
        scores = scores_of(wide, k[:, :, tile].float(), None if dead is None else dead[..., tile])
        new = scores.amax(-1, keepdim=True).maximum(top)
        weights, shrink = scores.sub_(new).exp2_(), (top - new).exp2_()
        total = total * shrink + weights.sum(-1, keepdim=True)
        if narrow:
            weights = weights.to(q.dtype).float()
        acc = acc * shrink + averages(weights, v[:, :, tile].float())
        acc = acc if between is None else between(acc)
        top = new
    return acc * (1 / total.clamp_min(1e-30))


def split(
    q: Any, k: Any, v: Any, dead: Any, scale: float, *, parts: int, rescaled: bool = True
) -> Any:
    """Attend to parts of the keys by themselves, then weigh the results.

    Scores are scaled after the product; each part's weights are rounded to the storage type. Sums
    of parts have the parts' own maxima unless `rescaled`.
    """
    import torch

    outs, sums = [], []
    for part in _cuts(k.shape[2], parts):
        scores = scores_of(q.float(), k[:, :, part].float(), None) * (scale * _LOG2E)
        if dead is not None:
            scores = scores.masked_fill_(dead[..., part], -torch.inf)
        top = scores.amax(-1, keepdim=True).clamp_min(_LOW)
        weights = scores.sub_(top).exp2_()
        total = weights.sum(-1, keepdim=True)
        weights = weights.to(q.dtype).float()
        outs.append(averages(weights, v[:, :, part].float()) / total.clamp_min(1e-30))
        sums.append(top * rescaled + total.log2().clamp_min(_LOW))
    each = torch.stack(sums)
    share = torch.exp2(each - each.amax(0))
    return (torch.stack(outs) * (share / share.sum(0))).sum(0)


def narrow_softmax(q: Any, k: Any, v: Any, dead: Any, scale: float) -> Any:
    """Attend in fp32 with the result of softmax rounded to the storage type."""
    return plain(q, k, v, dead, scale, change=lambda weights: weights.to(q.dtype).float())


def common_variants(call: Callable[[Workload, Tensors], Attention]) -> Mapping[str, Implementation]:
    """Return honest implementations of an operator that `call` reads, with the one output `out`."""

    def by(kernel: Kernel) -> Implementation:
        return lambda workload, inputs: {"out": call(workload, inputs).rounded(kernel)}

    return {
        "online": by(partial(tiled, tiles=5, backwards=True)),
        "narrow_operands": by(partial(tiled, tiles=3, narrow=True)),
        "split_keys": by(partial(split, parts=4)),
        "narrow_softmax": by(narrow_softmax),
    }


def tolerance(dtype: DType) -> Tolerance:
    """Leave room for operands of either product rounded to `dtype`.

    Rounded weights alone stay within an eighth of what rows are allowed here. Rounding the scaled
    query moves all scores of a row, most where few keys decide between opposite values: the worst
    of 800,000 rows came to half of it. Operands of four bits exceed the bound on the whole tensor
    three times.
    """
    return Tolerance(dtype=dtype, relative_l2=4, row_l2=16, element=6, cap=12)


def work(
    path: ArithmeticPath, heads: int, scores: int, rows: int, sizes: tuple[int, int]
) -> dict[ArithmeticPath, float]:
    """Count two products on a matrix unit; two operations a score, one division an output.

    `scores` are pairs of a query and a key that it sees, `rows` queries that see any, for each of
    `heads` query heads; `sizes` are those of keys and of values.
    """
    return {
        path: 2 * heads * scores * sum(sizes),
        ArithmeticPath.FP32_VECTOR: heads * (2 * scores + rows * sizes[1]),
    }


def scores_of(q: Any, k: Any, dead: Any) -> Any:
    """Return products [n, h, r, g, t] of q and k, minus infinity where a key is not seen."""
    import torch

    scores = (q.flatten(2, 3) @ k.transpose(-1, -2)).unflatten(2, q.shape[2:4])
    return scores if dead is None else scores.masked_fill_(dead, -torch.inf)


def _softmax(scores: Any, dead: Any) -> Any:
    weights = scores.softmax(-1)
    return weights if dead is None else weights.nan_to_num_(0.0)  # where there is no key


def averages(weights: Any, v: Any) -> Any:
    """Return sums [n, h, r, g, e] of values, weighted."""
    return (weights.flatten(2, 3) @ v).unflatten(2, weights.shape[2:4])


def _cuts(width: int, parts: int) -> list[slice]:
    step = -(-width // parts)
    return [slice(start, min(start + step, width)) for start in range(0, width, step)]
