"""Claim: device_us is what independently read activity records say, and repeats between processes.

    python benchmarks/timer_accuracy.py [--processes 5] [--device 0] [--only NAME]...

Kernels from 1 us to 100 ms, bound by memory, by the matrix pipe or by latency, of one, three and
twenty launches, in Triton and in CUDA. `ours` is the median over fresh processes of what the
accelerator's `sample` says; `records` is the span from first start to last end as torch's profiler
reports it, in a process of its own, with a spinning kernel in front so that launches queue up.
Exits 1 where they differ by more than 2 % and 0.3 us, or where ours varies by more than 1 % between
processes (2 % below 10 us).
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

RELATIVE, ABSOLUTE_US = 0.02, 0.3
BUDGET_S = 0.4
SPIN_US = 2000
RECORDED_CALLS = 40

SPIN_SOURCE = r"""
extern "C" __global__ void spin(unsigned long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
}
extern "C" __global__ void nothing() {}
"""

Call = Callable[[int], object]


WHAT = {
    "empty": "CUDA, latency, 1 launch",
    "empty x 20": "CUDA, latency, 20 launches",
    "spin 5 us": "CUDA, latency, 1 launch",
    "spin 5 us x 3": "CUDA, latency, 3 launches",
    "spin 1 ms": "CUDA, latency, 1 launch",
    "norm 2500 x 1024": "Triton, memory, 1 launch",
    "norm 16200 x 1024": "Triton, memory, 1 launch",
    "add 1 MiB": "Triton, memory, 1 launch",
    "add 1 MiB x 3": "Triton, memory, 3 launches",
    "add 4 MiB x 20": "Triton, memory, 20 launches",
    "add 256 MiB": "Triton, memory, 1 launch",
    "add 8 GiB": "Triton, memory, 1 launch",
    "bf16 product 1024": "CUDA, matrix, 1 launch",
    "bf16 product 8192": "CUDA, matrix, 1 launch",
    "fp32 product 12288": "CUDA, matrix, 1 launch",
}


def kernels(torch: Any) -> Mapping[str, Call]:
    """Return what is timed."""
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

    module = cupy.RawModule(code=SPIN_SOURCE)
    spin, nothing = module.get_function("spin"), module.get_function("nothing")
    stream = _stream(cupy, torch)

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
        return lambda _index: torch.mm(a, b, out=out)

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


def _stream(cupy: Any, torch: Any) -> Any:
    """Return torch's current stream for cupy, whose way of saying so has changed."""
    handle = torch.cuda.current_stream().cuda_stream
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return cupy.cuda.ExternalStream(handle)


def measure_ours(only: list[str], ordinal: int) -> dict[str, Any]:
    """Return what the accelerator's own sampling says of each kernel."""
    import torch
    from atrex_accelerator_cuda import CudaAccelerator

    accelerator = CudaAccelerator()
    context = accelerator.open(accelerator.devices()[ordinal])
    found = {}
    for name, call in kernels(torch).items():
        if only and name not in only:
            continue
        call(0)
        torch.cuda.synchronize()
        samples = context.sample(call, budget_s=BUDGET_S)
        found[name] = {
            "us": statistics.median(samples.samples_us) if samples.samples_us else None,
            "n": len(samples.samples_us),
            "method": samples.method,
            "reason": samples.reason,
        }
    return found


def measure_records(only: list[str]) -> dict[str, Any]:
    """Return first start to last end as torch's profiler reports it."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.init()
    overrun = torch.zeros(2**25, dtype=torch.int32, device="cuda")
    named = kernels(torch)
    import cupy

    spin = cupy.RawModule(code=SPIN_SOURCE).get_function("spin")
    stream = _stream(cupy, torch)

    def spans(call: Call) -> list[float]:
        def once(index: int) -> None:
            overrun.amax()
            torch.cuda.synchronize()
            with stream:
                spin((1,), (1,), (cupy.uint64(SPIN_US * 1000),))
            call(index)
            torch.cuda.synchronize()

        for index in range(5):
            once(index)
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for index in range(RECORDED_CALLS):
                once(index)
        events = sorted(
            (
                (e.time_range.start, e.time_range.end, e.name)
                for e in profiler.events()
                if e.device_type == torch.autograd.DeviceType.CUDA and "Memset" not in e.name
            ),
        )
        found: list[float] = []
        ours: list[tuple[float, float]] = []
        counting = False
        for start, end, name in [*events, (0.0, 0.0, "at::native::reduce_kernel")]:
            if "at::native::reduce_kernel" in name:  # the next call's overrun
                if ours:
                    found.append(max(e for _, e in ours) - min(s for s, _ in ours))
                ours, counting = [], False
            elif not counting and name == "spin":
                counting = True
            elif counting:
                ours.append((start, end))
        return found

    return {
        name: {"us": statistics.median(found), "n": len(found)}
        for name, call in named.items()
        if (not only or name in only) and (found := spans(call))
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--by", choices=["ours", "records"])
    options = parser.parse_args()
    if options.by == "ours":
        print(json.dumps(measure_ours(options.only, options.device)))
        return 0
    if options.by == "records":
        print(json.dumps(measure_records(options.only)))
        return 0
    import torch

    name, driver = torch.cuda.get_device_name(options.device), _driver()
    print(
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {name}, driver {driver}, "
        f"torch {torch.__version__}, Python {platform.python_version()}"
    )
    ours = [_in_a_process("ours", options) for _ in range(options.processes)]
    records = _in_a_process("records", options)
    row = "{:20} {:28} {:>10} {:>10} {:>8} {:>7} {:>7} {:>4}  {}"
    print(row.format("kernel", "", "ours us", "records", "apart", "%", "cv %", "n", ""))
    bad = 0
    for kernel, what in WHAT.items():
        values = [found[kernel]["us"] for found in ours if found.get(kernel, {}).get("us")]
        if not values or kernel not in records:
            if not options.only or kernel in options.only:
                print(
                    row.format(kernel, what, "-", "-", "-", "-", "-", "-", str(ours[0].get(kernel)))
                )
                bad += 1
            continue
        middle, seen = statistics.median(values), records[kernel]["us"]
        apart = middle - seen
        cv = statistics.stdev(values) / middle if len(values) > 1 else 0.0
        wrong = abs(apart) > max(RELATIVE * seen, ABSOLUTE_US) or cv > (
            0.01 if middle > 10 else 0.02
        )
        bad += wrong
        print(
            row.format(
                kernel,
                what,
                f"{middle:.2f}",
                f"{seen:.2f}",
                f"{apart:+.2f}",
                f"{apart / seen:+.1%}",
                f"{cv:.2%}",
                ours[0][kernel]["n"],
                "WRONG" if wrong else "",
            )
        )
    methods = {found["method"] for run in ours for found in run.values()}
    print(f"{options.processes} processes; {', '.join(sorted(methods))}; {bad} not as claimed")
    return int(bad > 0)


def _in_a_process(by: str, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--by", by, "--device", str(options.device)]
    for name in options.only:
        command += ["--only", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
