"""Question: on a CPU, does pinning a worker make its times repeat better?

    python benchmarks/cpu_pinning.py [--rounds N] [--budget-s S]

Each round times two loops, a small and a large one, in a fresh process for each way of placing
threads, in random order. Printed for each: the median over processes of the median time, how far
these medians vary between processes (standard deviation / mean), and how wide the middle half of
the samples of one process is (median over processes, in per cent of their median); below, the
medians themselves. What else ran on the machine decides: the load average is printed too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

SIZES = {"small": 2**14, "large": 2**21}
"""Elements of fp32: 64 KiB and 8 MiB."""


PLACED = "as a worker is timed"


def placements() -> dict[str, tuple[set[int], dict[str, str]]]:
    allowed = os.sched_getaffinity(0)
    spare = set(sorted(allowed)[1:]) or allowed
    threads = str(len(allowed))
    bound = {"OMP_NUM_THREADS": threads, "OMP_PROC_BIND": "true", "OMP_PLACES": "threads"}
    return {
        "free": (allowed, {"OMP_NUM_THREADS": threads}),
        "each thread on a CPU": (allowed, bound),
        PLACED: (allowed, {"OMP_NUM_THREADS": threads}),
        "one CPU left over": (spare, {"OMP_NUM_THREADS": str(len(spare))}),
        "free, as many threads": (allowed, {"OMP_NUM_THREADS": str(len(spare))}),
    }


def measure(budget_s: float, *, is_placed: bool) -> dict[str, tuple[float, float]]:
    """Return median and width of the middle half, in microseconds, by size."""
    import torch
    from atrex_accelerator_cpu import threads, timing

    allowed = sorted(os.sched_getaffinity(0))
    found = {}
    for name, count in SIZES.items():
        x = torch.rand(count)
        call = partial(_exp, torch.exp, x, torch.empty_like(x))
        call(0)  # starts the threads
        with threads.placed(allowed) if is_placed else nullcontext():
            samples_us = timing.sample(call, budget_s=budget_s).samples_us
        low, middle, high = statistics.quantiles(samples_us, n=4)
        found[name] = (middle, high - low)
    return found


def _exp(exp: Callable[..., Any], x: Any, y: Any, _index: int) -> None:
    exp(x, out=y)


def run(name: str, budget_s: float) -> dict[str, Any]:
    cpus, environment = placements()[name]
    is_placed = ["--placed"] if name == PLACED else []
    done = subprocess.run(
        [sys.executable, __file__, "--child", "--budget-s", str(budget_s), *is_placed],
        env={**os.environ, "GOMP_SPINCOUNT": "1000", **environment},
        preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--budget-s", type=float, default=0.25)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--placed", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.budget_s, is_placed=options.placed)))
        return 0
    ways = placements()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name in random.sample(list(ways), len(ways)):
            found[name].append(run(name, options.budget_s))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{time.strftime('%Y-%m-%d', time.gmtime())}, {platform.machine()}, load {load}")
    print(f"{len(os.sched_getaffinity(0))} CPUs, {options.rounds} processes each")
    row = "{:24} {:6} {:>10} {:>16} {:>14}"
    print(row.format("placement", "loop", "us", "between proc. %", "within one %"))
    for name, runs in found.items():
        for size in SIZES:
            medians = [run[size][0] for run in runs]
            between = statistics.stdev(medians) / statistics.mean(medians)
            within = statistics.median(run[size][1] / run[size][0] for run in runs)
            middle = f"{statistics.median(medians):.1f}"
            print(row.format(name, size, middle, f"{100 * between:.1f}", f"{100 * within:.1f}"))
            print("    " + " ".join(f"{value:.1f}" for value in medians))
    return 0


if __name__ == "__main__":
    sys.exit(main())
