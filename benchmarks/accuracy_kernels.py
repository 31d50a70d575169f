"""The kernels that `timer_accuracy.py` times: 1 us to 100 ms, and what bounds each of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen

HOLD = "spin"
"""The kernel that lets launches queue up behind it; some of the timed ones are the same."""

SOURCE = r"""
extern "C" __global__ void spin(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
}
extern "C" __global__ void nothing() {}
"""

Call = Callable[[int], None]
"""Makes one call; the number says on which of several input sets."""


@frozen(kw_only=True)
class Kind:
    """What a kernel is, and how much time its sampling may take."""

    what: str
    launches: int = 1
    budget_s: float = 0.4

    def __str__(self) -> str:
        return f"{self.what}, {self.launches} launch{'' if self.launches == 1 else 'es'}"


KINDS: Mapping[str, Kind] = {
    "empty": Kind(what="CUDA, latency"),
    "empty x 20": Kind(what="CUDA, latency", launches=20),
    "spin 5 us": Kind(what="CUDA, latency"),
    "spin 5 us x 3": Kind(what="CUDA, latency", launches=3),
    "spin 1 ms": Kind(what="CUDA, latency"),
    "norm 2500 x 1024": Kind(what="Triton, memory"),
    "norm 16200 x 1024": Kind(what="Triton, memory"),
    "add 1 MiB": Kind(what="Triton, memory"),
    "add 1 MiB x 3": Kind(what="Triton, memory", launches=3),
    "add 4 MiB x 20": Kind(what="Triton, memory", launches=20),
    "add 256 MiB": Kind(what="Triton, memory"),
    "add 8 GiB": Kind(what="Triton, memory"),
    "bf16 product 1024": Kind(what="CUDA, matrix"),
    # Power decides their clocks, so more samples are wanted of them, at up to 80 ms each.
    "bf16 product 8192": Kind(what="CUDA, matrix", budget_s=1.0),
    "fp32 product 12288": Kind(what="CUDA, matrix", budget_s=2.0),
}


def kernels(torch: Any) -> Mapping[str, Call]:
    """Return what is timed, by the names of `KINDS`. Takes about 50 GiB of the current device."""
    import cupy
    import triton
    import triton.language as tl

    @triton.jit
    def add_kernel(x_ptr, y_ptr, out_ptr, count, BLOCK: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < count
        x, y = tl.load(x_ptr + at, mask=inside), tl.load(y_ptr + at, mask=inside)
        tl.store(out_ptr + at, x + y, mask=inside)

    @triton.jit
    def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, width: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        at = tl.arange(0, width)
        x = tl.load(x_ptr + row * width + at).to(tl.float32)
        scale = tl.rsqrt(tl.sum(x * x) / width + 1e-6)
        weight = tl.load(weight_ptr + at).to(tl.float32)
        tl.store(out_ptr + row * width + at, (x * scale * weight).to(tl.bfloat16))

    module = cupy.RawModule(code=SOURCE)
    spin, nothing = module.get_function("spin"), module.get_function("nothing")
    stream = current_stream(cupy, torch)

    def spins(microseconds: float, times: int = 1) -> Call:
        def call(_index: int) -> None:
            with stream:
                for _ in range(times):
                    spin((1,), (1,), (cupy.uint64(int(microseconds * 1000)),))

        return call

    def empties(times: int) -> Call:
        def call(_index: int) -> None:
            with stream:
                for _ in range(times):
                    nothing((1,), (1,), ())

        return call

    def adds(megabytes: float, times: int = 1) -> Call:
        count = int(megabytes * 2**20) // 4
        sets = [[torch.randn(count, device="cuda") for _ in range(3)] for _ in range(2)]
        grid = (triton.cdiv(count, 1024),)

        def call(index: int) -> None:
            x, y, out = sets[index % 2]
            for _ in range(times):
                add_kernel[grid](x, y, out, count, BLOCK=1024)

        return call

    def norms(rows: int, width: int) -> Call:
        sets = [torch.randn(rows, width, device="cuda").bfloat16() for _ in range(8)]
        weight, out = torch.ones(width, device="cuda").bfloat16(), torch.empty_like(sets[0])

        def call(index: int) -> None:
            rms_norm_kernel[(rows,)](sets[index % 8], weight, out, width)

        return call

    def products(size: int, dtype: Any) -> Call:
        a, b = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(2))
        out = torch.empty_like(a)

        def call(_index: int) -> None:
            torch.mm(a, b, out=out)

        return call

    return {
        "empty": empties(1),
        "empty x 20": empties(20),
        "spin 5 us": spins(5),
        "spin 5 us x 3": spins(5, 3),
        "spin 1 ms": spins(1000),
        "norm 2500 x 1024": norms(2500, 1024),
        "norm 16200 x 1024": norms(16200, 1024),
        "add 1 MiB": adds(1),
        "add 1 MiB x 3": adds(1, 3),
        "add 4 MiB x 20": adds(4, 20),
        "add 256 MiB": adds(256),
        "add 8 GiB": adds(8192),
        "bf16 product 1024": products(1024, torch.bfloat16),
        "bf16 product 8192": products(8192, torch.bfloat16),
        "fp32 product 12288": products(12288, torch.float32),
    }


def chosen(torch: Any, only: Sequence[str]) -> Mapping[str, Call]:
    """Return the kernels named in `only`, or all, each called often enough to be compiled."""
    found = {name: call for name, call in kernels(torch).items() if not only or name in only}
    for call in found.values():
        for index in range(3):
            call(index)
    torch.cuda.synchronize()
    return found


def current_stream(cupy: Any, torch: Any) -> Any:
    """Return torch's current stream for cupy, whose way of saying so has changed."""
    handle = torch.cuda.current_stream().cuda_stream
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return cupy.cuda.ExternalStream(handle)
