"""Claim: the referee's held queue and the worker's activity records tell the same time.

    python benchmarks/clocks.py [--backend triton] [-- ARGUMENT...]

Runs the main job and prints, workload by workload, what each clock says: `device` is the worker's
claim (activity records), `held` the referee's own figure, `call` wall time; then how far the first
two are apart. Exits 1 when the job fails, or when an honest kernel's clock is disputed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from statistics import median


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="triton")
    parser.add_argument("arguments", nargs="*", help="passed on to atrex-eval")
    options = parser.parse_args()
    command = [sys.executable, "-m", "atrex_core", "--backend", options.backend]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--format", "json", *options.arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    if not done.stdout:
        return 1
    evaluations = json.loads(done.stdout)["evaluations"]
    environment = evaluations[0]["environment"]
    day = time.strftime("%Y-%m-%d", time.gmtime())
    print(f"{day}, {evaluations[0]['device_name']}, {environment}")
    print(f"exit {done.returncode}, {seconds:.1f} s, {len(evaluations)} workloads")
    row = "{:22} {:>16} {:>9} {:>9} {:>9} {:>8} {:>6} {:>6}  {}"
    print(row.format("problem", "workload", "device", "held", "call", "bound", "n", "s", "flags"))
    apart = []
    methods: Counter[str] = Counter()
    for found in evaluations:
        timing = found["timing"] or {}
        device, held = timing.get("device_us"), timing.get("held_us")
        methods[f"{timing.get('method')}: {timing.get('reason')}"] += 1
        if device and held:
            apart.append(held - device)
        print(
            row.format(
                found["problem"][:22],
                found["workload"][:16],
                _us(device),
                _us(held),
                _us(timing.get("call_us")),
                _us((found["bound"] or {}).get("t_sol_us")),
                len(timing.get("samples_us", ())),
                f"{found['seconds']:.2f}",
                " ".join(found["flags"]),
            )
        )
    for found in evaluations:
        for gate, result in found["gates"].items():
            if result["outcome"] not in ("passed", "skipped"):
                print(f"{found['problem']}/{found['workload']} {gate}: {result['reason']}")
    for method, count in methods.most_common(12):
        print(f"{count} x {method}")
    if apart:
        print(f"held - device: median {median(apart):.2f} us, {min(apart):.2f} to {max(apart):.2f}")
    disputed = [found for found in evaluations if "clock_disputed" in found["flags"]]
    return int(done.returncode != 0 or bool(disputed))


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
