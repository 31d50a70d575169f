"""Check the `cuda` accelerator on a real GPU, from two processes, against activity records.

    python benchmarks/cuda_accelerator.py [cuda:0]

The referee's process allocates, exports and checks; a forked worker maps, computes and times.
Every check runs even if an earlier one fails; exit status 1 says that one did.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from statistics import median
from typing import Any

from atrex_accelerator_cuda import CudaAccelerator
from attrs import asdict, define, field

from atrex_core import BufferHandle, Device, DeviceContext, DType

MIB = 2**20
LIMIT_S = 240
BUDGET_S = 0.5
PAIRS = 4
ELEMENTS = 32 * MIB
"""Of fp32: a source of 128 MiB, so that one copy overruns any last-level cache."""
TINY_SETS = 64


@define
class Checks:
    """Collects failures, so that one run shows them all."""

    failures: list[str] = field(factory=list)

    def expect(self, holds: bool, what: str) -> None:
        """Note `what` if it does not hold."""
        if not holds:
            self.failures.append(what)
            print(f"  FAILED: {what}")


def main(arguments: list[str]) -> int:
    """Run both halves and return the exit status."""
    accelerator = CudaAccelerator()
    device = accelerator.device(arguments[0] if arguments else "cuda")
    if device is None:
        print(accelerator.absence())
        return 4
    os.environ.update(accelerator.worker_environment(device))
    started_s = time.perf_counter()
    import torch

    print(f"{device.name} ({device.arch}, driver {device.driver}), torch {torch.__version__}")
    print(f"import torch: {time.perf_counter() - started_s:.2f} s")
    ours, theirs = socket.socketpair()
    sys.stdout.flush()  # or the worker prints it again
    worker = os.fork()
    if worker == 0:
        ours.close()
        _run_worker(accelerator, device, theirs)
    theirs.close()
    signal.alarm(LIMIT_S)
    try:
        failures = referee(accelerator.open(device), ours)
        _, status = os.waitpid(worker, 0)
        worker = 0
    finally:
        if worker:
            os.kill(worker, signal.SIGKILL)
    print("worker ended with status", os.waitstatus_to_exitcode(status))
    return 1 if failures or status else 0


def _run_worker(accelerator: CudaAccelerator, device: Device, channel: socket.socket) -> None:
    signal.alarm(LIMIT_S)
    status = 1
    try:
        started_s = time.perf_counter()
        context = accelerator.open(device)
        print(f"open in the forked worker: {time.perf_counter() - started_s:.2f} s")
        status = 1 if worker(context, channel) else 0
    except BaseException:  # noqa: BLE001  this process must not return into its parent's code
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


# -- memory, both ways -----------------------------------------------------------------------------


def referee(context: DeviceContext, channel: socket.socket) -> list[str]:
    """Share two buffers, check what comes back, and check the limits."""
    import torch

    checks = Checks()
    given = context.allocate(4 * ELEMENTS)
    taken = context.allocate(1000)
    given.tensor(DType.INT32, (ELEMENTS,)).copy_(
        torch.arange(ELEMENTS, dtype=torch.int32, device=context.torch_device)
    )
    taken.tensor(DType.UINT8, (1000,)).fill_(0xFF)
    context.synchronize()
    channel.sendall(json.dumps([asdict(b.handle()) for b in (given, taken)]).encode() + b"\n")
    checks.expect(channel.recv(1) == b"w", "the worker wrote its answer")
    answer = taken.tensor(DType.FP32, (250,)).cpu()
    checks.expect(
        answer[:100].tolist() == [3.0 * i + 1.0 for i in range(100)], "the worker's values arrived"
    )
    checks.expect(
        taken.tensor(DType.UINT8, (1000,))[400:].eq(0xFF).all().item() is True,
        "bytes that the worker did not write are untouched",
    )
    try:
        context.allocate(2**46)
        checks.expect(False, "64 TiB are refused")
    except MemoryError as error:
        print(f"64 TiB: {error}")
    channel.sendall(b"c")
    channel.recv(1)
    given.close()
    taken.close()
    taken.close()
    print("versions:", dict(context.versions()))
    return checks.failures


def worker(context: DeviceContext, channel: socket.socket) -> list[str]:
    """Map the referee's buffers, answer in one of them, then time things."""
    import torch

    checks = Checks()
    with channel.makefile("rb") as lines:
        handles = [BufferHandle(**entry) for entry in json.loads(lines.readline())]
    given, taken = (context.open_buffer(handle) for handle in handles)
    values = given.tensor(DType.INT32, (ELEMENTS,))
    expected = torch.arange(ELEMENTS, dtype=torch.int32, device=context.torch_device)
    checks.expect(bool(torch.equal(values, expected)), "128 MiB of the referee's bytes arrived")
    taken.tensor(DType.FP32, (100,)).copy_(values[:100].float() * 3 + 1)
    context.synchronize()
    channel.sendall(b"w")
    channel.recv(1)
    del values, expected
    given.close()
    taken.close()
    taken.close()
    channel.sendall(b"c")
    time_everything(context, checks)
    return checks.failures


# -- time ------------------------------------------------------------------------------------------


def time_everything(context: DeviceContext, checks: Checks) -> None:
    """Print one row per kind of call; compare with activity records where there are any."""
    import torch

    place = context.torch_device
    sources = [torch.rand(ELEMENTS, device=place) for _ in range(PAIRS)]
    targets = [torch.empty_like(source) for source in sources]
    tiny = [torch.rand(1024, device=place) for _ in range(TINY_SETS)]
    tiny_out = [torch.empty_like(source) for source in tiny]
    matrices = [torch.rand(4096, 4096, device=place, dtype=torch.bfloat16) for _ in range(PAIRS)]
    aside: Any = torch.cuda.Stream(place)

    def copy(i: int) -> None:
        targets[i % PAIRS].copy_(sources[i % PAIRS])

    def add(i: int) -> None:
        torch.add(sources[i % PAIRS], 1.0, out=targets[i % PAIRS])

    def small(i: int) -> None:
        torch.add(tiny[i % TINY_SETS], 1.0, out=tiny_out[i % TINY_SETS])

    def product(i: int) -> None:
        torch.mm(matrices[i % PAIRS], matrices[(i + 1) % PAIRS])

    def forty(i: int) -> None:
        for j in range(40):
            small(40 * i + j)

    def reads_back(i: int) -> None:
        tiny[i % TINY_SETS].sum().item()

    def unjoined(i: int) -> None:
        with torch.cuda.stream(aside):
            add(i)

    def joined(i: int) -> None:
        aside.wait_stream(torch.cuda.current_stream())
        unjoined(i)
        torch.cuda.current_stream().wait_stream(aside)

    print(f"{'call':>10} {'sample()':>10} {'records':>10}  us; n, spread, wall, reason")
    copied = row(context, "copy", copy)
    recorded = records_us(context, copy)
    show_records(recorded, note=f"{2 * 4 * ELEMENTS / copied / 1e6:.2f} TB/s" if copied else "")
    checks.expect(agrees(copied, recorded, 0.05, 1.0), "copy: within 5 % of the records")
    added = row(context, "add", add)
    recorded = records_us(context, add)
    show_records(recorded)
    checks.expect(agrees(added, recorded, 0.05, 1.0), "add: within 5 % of the records")
    found = row(context, "small", small)
    recorded = records_us(context, small)
    show_records(recorded)
    checks.expect(
        found is not None and 0.9 * recorded <= found <= recorded + 3.0,
        "small: above the records by no more than the gap between launches",
    )
    found = row(context, "product", product)
    recorded = records_us(context, product)
    show_records(recorded)
    checks.expect(agrees(found, recorded, 0.15, 2.0), "product: within 15 % of the records")
    found = row(context, "forty", forty)
    recorded = records_us(context, forty)
    show_records(recorded)
    checks.expect(
        found is not None and 0.9 * recorded <= found <= recorded + 40 * 3.0,
        "forty: forty small ones, though so many launches overrun the queue",
    )
    joined_us = row(context, "joined", joined)
    checks.expect(
        joined_us is not None and added is not None and added * 0.95 <= joined_us <= added + 15.0,
        "joined: a stream that is joined is timed like the current one",
    )
    expect_reason(context, checks, "reads back", reads_back, "forward synchronises")
    expect_reason(context, checks, "unjoined", unjoined, "outlives the stream")
    expect_reason(context, checks, "nothing", lambda _: None, "no work on its stream")
    again = row(context, "add", add)
    checks.expect(agrees(again, added or 0.0, 0.05, 1.0), "add: the same after all that")
    context.reset_peak_memory()
    torch.empty(64 * MIB, dtype=torch.uint8, device=place)
    print(f"peak memory: {context.peak_memory_bytes()} bytes")


def row(context: DeviceContext, name: str, call: Callable[[int], object]) -> float | None:
    """Sample `call`, print a row and return its median, if it has one."""
    began_s = time.perf_counter()
    found = context.sample(lambda i: void(call(i)), budget_s=BUDGET_S)
    wall_s = time.perf_counter() - began_s
    if not found.samples_us:
        print(f"{name:>10} {'-':>10} {'':>10}  {wall_s:.2f} s, {found.reason}")
        return None
    low, high = min(found.samples_us), max(found.samples_us)
    middle = median(found.samples_us)
    print(
        f"{name:>10} {middle:>10.3f} {'':>10}  {len(found.samples_us)}, "
        f"{low:.3f} to {high:.3f}, {wall_s:.2f} s"
    )
    return middle


def void(_result: object) -> None:
    """Forget what a call returned."""


def show_records(us: float, note: str = "") -> None:
    """Print the second row of a pair."""
    print(f"{'':>10} {'':>10} {us:>10.3f}  {note}")


def records_us(context: DeviceContext, call: Callable[[int], object], *, calls: int = 64) -> float:
    """Return the summed device time of one call, from the profiler's activity records."""
    from torch.profiler import ProfilerActivity, profile

    call(0)
    context.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for index in range(calls):
            call(index)
        context.synchronize()
    events = [e for e in profiler.events() or () if str(e.device_type).endswith("CUDA")]
    return float(sum(e.self_device_time_total for e in events)) / calls


def agrees(found: float | None, expected: float, share: float, slack_us: float) -> bool:
    """Return whether two times are within a share of each other, or within `slack_us`."""
    return found is not None and abs(found - expected) <= max(share * expected, slack_us)


def expect_reason(
    context: DeviceContext, checks: Checks, name: str, call: Callable[[int], object], words: str
) -> None:
    """Check that `call` has no device time, for the reason it should."""
    began_s = time.perf_counter()
    found = context.sample(lambda i: void(call(i)), budget_s=BUDGET_S)
    print(f"{name:>10} {'-':>10} {'':>10}  {time.perf_counter() - began_s:.2f} s, {found.reason}")
    checks.expect(
        not found.samples_us and words in (found.reason or ""),
        f'{name}: no device time, because "{words}"; got {found.samples_us[:3]}',
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
