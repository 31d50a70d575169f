"""The work that is timed: streams over memory, matrix products, and multiply-adds in cache.

Every load has a buffer of its own on every thread, first touched by the thread that uses it, so
that pages lie on the right memory node and no first touch is ever timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from time import perf_counter
from typing import Any, Final

from attrs import define, field, frozen

from atrex_profile_host.stopwatch import Operation

Torch = Any
Tensor = Any

STREAMS: Final = ("read", "write", "copy", "triad", "update")
"""Bytes counted are bytes read plus bytes written; write-allocate traffic is not counted."""

ALONE: Final = "_alone"
"""Suffix of a stream's rate on one thread while the others wait."""

_ARRAYS: Final = 3
_CHUNK_ITEMS: Final = 2**20
_TOUCH_ITEMS: Final = 2**21
_FMA_ITEMS: Final = 2**15
_PROBE_ROWS: Final = 32
_BLOCK_ROWS: Final = 128
_MAX_BLOCKS: Final = 32
_CALL_S: Final = 2e-3


@define
class Arena:
    """Three arrays for each thread. Together they exceed the last-level cache several times."""

    torch: Torch
    items: int
    """fp32 elements of one array of one thread."""
    touch_until_s: float
    _arrays: dict[int, tuple[Tensor, ...]] = field(factory=dict, init=False)

    def arrays(self, thread: int) -> tuple[Tensor, ...]:
        """Return the thread's arrays, touched. Called by that thread."""
        if thread not in self._arrays:
            self._arrays[thread] = self._touch()
        return self._arrays[thread]

    @property
    def nbytes(self) -> int:
        """Size of what was really touched, over all threads."""
        return sum(4 * array.numel() for own in self._arrays.values() for array in own)

    def _touch(self) -> tuple[Tensor, ...]:
        whole = self.torch.empty((_ARRAYS, self.items), dtype=self.torch.float32)
        touched = 0
        # Virtual machines may take a second for the first touch of 200 MB: stop in time, and
        # use what there is.
        while touched < self.items and (perf_counter() < self.touch_until_s or touched == 0):
            whole[:, touched : touched + _TOUCH_ITEMS].fill_(1.0)
            touched += _TOUCH_ITEMS
        return tuple(whole[:, : min(touched, self.items)].unbind(0))


@frozen(kw_only=True)
class Stream:
    """One mix of reads and writes over arrays that do not fit the caches."""

    arena: Arena
    mix: str
    threads: int

    @property
    def figure(self) -> str:
        """One thread alone is a figure of its own."""
        return self.mix if self.threads > 1 else self.mix + ALONE

    @property
    def is_shared(self) -> bool:
        """All cores share the memory."""
        return True

    def prepare(self, thread: int) -> Operation | None:
        """Return an operation that goes one chunk further round the arrays."""
        torch = self.arena.torch
        a, b, c = (array.split(_CHUNK_ITEMS) for array in self.arena.arrays(thread))
        if self.mix == "read":
            return _rotate([(chunk.sum, 1, chunk) for chunk in (*a, *b, *c)])
        if self.mix == "write":
            return _rotate([(_fill(chunk), 1, chunk) for chunk in (*a, *b, *c)])
        if self.mix == "copy":
            return _rotate([(_copy(x, y), 2, x) for x, y in zip((*a, *b), (*b, *c), strict=True)])
        if self.mix == "triad":
            steps = zip((*a, *b), (*b, *c), (*c, *a), strict=True)
            return _rotate([(_triad(torch, x, y, z), 3, x) for x, y, z in steps])
        return _rotate([(chunk.neg_, 2, chunk) for chunk in (*a, *b, *c)])


@frozen(kw_only=True)
class Product:
    """A matrix product of one type through one of torch's routes, operands in cache."""

    torch: Torch
    figure: str
    threads: int
    dtype: str
    route: Callable[[Torch, Tensor, Tensor], Tensor]
    inner: int

    @property
    def is_shared(self) -> bool:
        """Every core has a vector unit of its own."""
        return False

    def prepare(self, thread: int) -> Operation | None:
        """Return one product, or None where torch has no such route on this machine."""
        try:
            rows = self._rows()
            x, w = self._operands(rows)
            self.route(self.torch, x, w)
        except (RuntimeError, AttributeError, NotImplementedError):
            return None
        flops = 2.0 * rows * self.inner * self.inner

        def multiply() -> float:
            self.route(self.torch, x, w)
            return flops

        return multiply

    def _operands(self, rows: int) -> tuple[Tensor, Tensor]:
        dtype = getattr(self.torch, self.dtype)
        shapes = (rows, self.inner), (self.inner, self.inner)
        if dtype is self.torch.int8:
            x, w = (self.torch.randint(-8, 8, shape, dtype=dtype) for shape in shapes)
        else:
            x, w = (self.torch.rand(shape).to(dtype) for shape in shapes)
        return x, w

    def _rows(self) -> int:
        """Return how many rows make a call long enough that threads do not queue for the lock."""
        x, w = self._operands(_PROBE_ROWS)
        seconds: list[float] = []
        for _ in range(3):
            start_s = perf_counter()
            self.route(self.torch, x, w)
            seconds.append(perf_counter() - start_s)
        blocks = round(_CALL_S / min(seconds) * _PROBE_ROWS / _BLOCK_ROWS)
        return min(blocks, _MAX_BLOCKS) * _BLOCK_ROWS or _PROBE_ROWS


@frozen(kw_only=True)
class MultiplyAdd:
    """`out = c + a * b` over vectors that stay in the second-level cache."""

    torch: Torch
    figure: str
    threads: int

    @property
    def is_shared(self) -> bool:
        """Every core has a vector unit of its own."""
        return False

    def prepare(self, thread: int) -> Operation | None:
        """Return one pass over the vectors: two operations for each element."""
        torch = self.torch
        a, b, c, out = (torch.rand(_FMA_ITEMS) for _ in range(4))

        def pass_over() -> float:
            torch.addcmul(c, a, b, out=out)
            return 2.0 * _FMA_ITEMS

        return pass_over


def all_loads(
    torch: Torch, arena: Arena, *, threads: int, cores: int
) -> list[Stream | Product | MultiplyAdd]:
    """Return what one round consists of."""
    counts = sorted({threads, cores, max(1, cores // 2), 1}, reverse=True)
    loads: list[Stream | Product | MultiplyAdd] = [
        Stream(arena=arena, mix=mix, threads=count) for count in counts for mix in STREAMS
    ]
    # A core's siblings share its vector unit, so one thread a core reaches the highest rate.
    loads += [
        Product(torch=torch, figure=figure, threads=cores, dtype=dtype, route=route, inner=inner)
        for figure, dtype, route, inner in _products()
    ]
    loads.append(MultiplyAdd(torch=torch, figure="fp32_fma", threads=cores))
    return loads


def _products() -> Iterator[tuple[str, str, Callable[[Torch, Tensor, Tensor], Tensor], int]]:
    # fp32 both ways: torch's default library may decline a CPU's widest vectors that the other
    # one uses, and the roof is what the CPU can do.
    for inner in (512, 256):
        yield "fp32", "float32", _fused_linear, inner
        yield "bf16", "bfloat16", _mm, inner
    yield "fp32", "float32", _mm, 512
    # Without hardware for it torch multiplies fp16 a hundred times slower: keep it short.
    yield "fp16", "float16", _mm, 256
    yield "fp64", "float64", _mm, 512
    yield "int8", "int8", _int_mm, 512


def _mm(torch: Torch, x: Tensor, w: Tensor) -> Tensor:
    return torch.mm(x, w)


def _int_mm(torch: Torch, x: Tensor, w: Tensor) -> Tensor:
    return torch._int_mm(x, w)


def _fused_linear(torch: Torch, x: Tensor, w: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "")


def _rotate(steps: Sequence[tuple[Callable[[], object], int, Tensor]]) -> Operation:
    calls = cycle([(call, float(passes * 4 * chunk.numel())) for call, passes, chunk in steps])

    def step() -> float:
        call, amount = next(calls)
        call()
        return amount

    return step


def _fill(chunk: Tensor) -> Callable[[], object]:
    return lambda: chunk.fill_(1.0)


def _copy(source: Tensor, target: Tensor) -> Callable[[], object]:
    return lambda: target.copy_(source)


def _triad(torch: Torch, x: Tensor, y: Tensor, z: Tensor) -> Callable[[], object]:
    return lambda: torch.add(x, y, alpha=0.25, out=z)
