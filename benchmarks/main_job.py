"""The main job, start to table, with where it ran: `atrex-eval --backend NAME` for each NAME.

Run:  python benchmarks/main_job.py [--backend NAME]... [-- ARGUMENT...]
Prints the machine, then for each backend one row per operator and the seconds it all took.
Exits 1 when a run does not exit 0.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any

_SHOWN = ("driver", "cuda_runtime", "torch", "triton", "numba", "python", "atrex_eval")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", action="append", dest="backends")
    parser.add_argument("arguments", nargs="*", help="passed on to atrex-eval")
    options = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.node() and platform.machine()}")
    failed = False
    for backend in options.backends or ["numba", "triton"]:
        failed |= not run(backend, options.arguments)
    return int(failed)


def run(backend: str, arguments: Sequence[str]) -> bool:
    command = [sys.executable, "-m", "atrex_core", "--backend", backend, "--format", "json"]
    started = time.perf_counter()
    done = subprocess.run([*command, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - started
    print(f"\nbackend {backend}: exit {done.returncode}, {seconds:.1f} s start to finish")
    if not done.stdout:
        return False
    document = json.loads(done.stdout)
    evaluations = document["evaluations"]
    first = evaluations[0]
    versions = first["environment"]
    said = ", ".join(f"{name} {versions[name]}" for name in _SHOWN if name in versions)
    print(f"device {first['device']} = {first['device_name']}, profile {first['profile']}; {said}")
    print(f"protocol {first['protocol']}, scale {first['scale']}, isolation {first['isolation']}")
    _table(evaluations)
    summary = document["summary"]
    print(f"S_agg {_aggregate(summary['s_agg'])}; S_agg_dsl {_aggregate(summary['s_agg_dsl'])}")
    if summary["headline_withheld"]:
        print(f"headline withheld: {summary['headline_withheld']}")
    return done.returncode == 0


def _table(evaluations: Sequence[Mapping[str, Any]]) -> None:
    columns = (
        "n",
        "pass",
        "device us",
        "call us",
        "bound us",
        "S dev",
        "S call",
        "min",
        "max",
        "s",
    )
    print(f"{'operator':24}" + "".join(f"{column:>10}" for column in columns))
    for name in dict.fromkeys(e["problem"] for e in evaluations):
        rows = [e for e in evaluations if e["problem"] == name]
        timings = [e["timing"] for e in rows if e["timing"]]
        shares = [e["share_of_roofline"] for e in rows if e["share_of_roofline"]]
        device = [s["device"] for s in shares if s["device"] is not None]
        cells = [
            str(len(rows)),
            str(sum(e["outcome"] in ("passed", "unmeasured") for e in rows)),
            _median([t["device_us"] for t in timings], ".2f"),
            _median([t["call_us"] for t in timings], ".2f"),
            _median([e["bound"]["t_sol_us"] for e in rows if e["bound"]], ".2f"),
            _median(device, ".3f"),
            _median([s["call"] for s in shares], ".3f"),
            f"{min(device):.3f}" if device else "-",
            f"{max(device):.3f}" if device else "-",
            f"{sum(e['seconds'] for e in rows):.1f}",
        ]
        print(f"{name:24}" + "".join(f"{cell:>10}" for cell in cells))


def _median(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return format(median(known), form) if known else "-"


def _aggregate(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    low, high = found["low"], found["high"]
    interval = f" [{low:.4f}, {high:.4f}]" if low is not None and high is not None else ""
    return f"device {found['device']:.4f}{interval}, call {found['call']:.4f}"


if __name__ == "__main__":
    sys.exit(main())
