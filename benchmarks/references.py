"""Claim: inputs and references of all 440 published shapes, five cases each, take at most 2 minutes
in one process on an H200, and no shape needs more than twice the memory of its own tensors.

    python benchmarks/references.py [--device cuda:0] [--scale full] [OPERATOR ...]

For each case the inputs are drawn, the reference runs as the honest implementation, and the high
precision expected value is computed block by block, as a comparison walks it. Peak memory is what
torch allocated beyond nothing, divided by the bytes of inputs and outputs, and is shown for the
operator's shapes of at least 1 GiB: below that a fixed workspace dominates. Prints a table.
"""

from __future__ import annotations

import argparse
import platform
import time
from typing import Any

import torch
from atrex_problems_production import atrex_problems

from atrex_core import Origin, RowBlocks, Scale
from atrex_core.referee.bench import correctness_regimes

CASES = 5
LARGE_BYTES = 1 << 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--scale", type=Scale, default=Scale.FULL)
    parser.add_argument("--slow", type=float, default=1.0, help="name cases slower than this, in s")
    arguments = parser.parse_args()
    gpu = torch.device(arguments.device).type == "cuda"
    print(_where(arguments.device))
    warm_up(arguments.device)
    heading = f"{'operator':30} {'shapes':>6} {'draw s':>8} {'honest s':>8} {'truth s':>8} "
    print(heading + f"{'largest GiB':>11} {'peak / own':>10}")
    totals = [0.0, 0.0, 0.0]
    slow: list[str] = []
    shapes, started = 0, time.perf_counter()
    for problem in atrex_problems():
        if arguments.operators and problem.name not in arguments.operators:
            continue
        spent, largest, ratio = [0.0, 0.0, 0.0], 0, 0.0
        chosen = [
            w
            for w in problem.select(arguments.scale)
            if w.origin is Origin.PUBLISHED or arguments.scale is Scale.SMOKE
        ]
        for workload in chosen:
            own = sum(s.nbytes for s in (*problem.inputs(workload), *problem.outputs(workload)))
            largest = max(largest, own)
            for number, regime in enumerate(correctness_regimes(problem, workload, CASES)):
                if gpu:
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                seconds = case(problem, workload, regime, number, arguments.device)
                spent = [a + b for a, b in zip(spent, seconds, strict=True)]
                if gpu and own >= LARGE_BYTES:
                    ratio = max(ratio, torch.cuda.max_memory_allocated() / own)
                if sum(seconds) > arguments.slow:
                    parts = " + ".join(f"{s:.2f}" for s in seconds)
                    slow.append(f"{problem.name}/{workload.id} {regime}: {parts} s")
        shapes += len(chosen)
        totals = [a + b for a, b in zip(totals, spent, strict=True)]
        row = f"{problem.name:30} {len(chosen):6} " + " ".join(f"{s:8.2f}" for s in spent)
        shown = f"{ratio:10.2f}" if ratio else f"{'':>10}"
        print(f"{row} {largest / 2**30:11.2f} {shown}", flush=True)
    print(f"{'all':30} {shapes:6} " + " ".join(f"{s:8.2f}" for s in totals))
    print(f"{shapes} shapes x {CASES} cases or more: {time.perf_counter() - started:.1f} s in all")
    for line in slow:
        print("slow:", line)


def case(
    problem: Any, workload: Any, regime: str, seed: int, device: str
) -> tuple[float, float, float]:
    """Draw, run the reference, walk the truth; return the seconds of each."""
    clock = [_now(device)]
    inputs = problem.draw(workload, regime=regime, seed=seed, device=device)
    clock.append(_now(device))
    honest = problem.honest(workload, inputs)
    clock.append(_now(device))
    for value in problem.expected(workload, inputs).values():
        if isinstance(value, RowBlocks):
            for start in range(0, value.shape[0], value.step):
                value.rows(start, min(start + value.step, value.shape[0]))
    clock.append(_now(device))
    del inputs, honest
    return clock[1] - clock[0], clock[2] - clock[1], clock[3] - clock[2]


def warm_up(device: str) -> None:
    """Load libraries: their first use is no part of any operator."""
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        x = torch.randn(256, 256, device=device, dtype=dtype)
        (x @ x).sort()
    _now(device)


def _now(device: str) -> float:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _where(device: str) -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime())
    name = platform.machine()
    if device.startswith("cuda"):
        from atrex_accelerator_cuda import CudaAccelerator

        found = CudaAccelerator().device(device)
        name = f"{found.name}, driver {found.driver}" if found else device
    return f"{day}, {name}, torch {torch.__version__}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
