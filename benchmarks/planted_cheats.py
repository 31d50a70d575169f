"""Claim: a candidate that fakes its speed is caught, and the result says by which layer.

Run:  python benchmarks/planted_cheats.py [--backend triton] [--cheats FOLDER] [-- ARGUMENT...]

Evaluates every candidate of the folder on one workload of its operator, in fresh processes, and
prints what each pretends, what became of it, and what caught it. A cheat that is as slow as the
honest candidate beside it has had no effect: then the table says so. Exits 1 when a cheat is scored
as faster than the honest candidate and nothing caught it, or when an honest one is not believed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "cheats"
WORKLOADS = {"rms_norm": "14", "reshape_and_cache": "7"}
"""Long enough that what is skipped shows: 0.3 GB of rows, 0.03 GB of keys and values."""
GAIN = 0.9
"""A time below this share of the honest candidate's is a gain."""
ROW = "{:18} {:26} {:24} {:>12} {:>10} {:>10}  {}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="triton")
    parser.add_argument("--cheats", type=Path, default=HERE, help="a folder of <operator>/*.py")
    parser.add_argument("--workload", help="in place of the ones chosen here")
    parser.add_argument("arguments", nargs="*", help="passed on to atrex-eval")
    options = parser.parse_args()
    missed = 0
    for folder in sorted(path for path in options.cheats.iterdir() if path.is_dir()):
        workload = options.workload or WORKLOADS[folder.name]
        found = evaluate(folder, options.backend, workload, options.arguments)
        if not found:
            print(f"{folder.name}: nothing was evaluated")
            return 1
        missed += show(folder, found)
    print(f"{missed} not caught")
    return int(missed > 0)


def evaluate(
    folder: Path, backend: str, workload: str, arguments: Sequence[str]
) -> Sequence[Mapping[str, Any]]:
    command = [sys.executable, "-m", "atrex_core", "run", *map(str, sorted(folder.glob("*.py")))]
    command += ["--problem", folder.name, "--workload", workload, "--backend", backend]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--format", "json", *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if not done.stdout:
        return []
    evaluations: list[Mapping[str, Any]] = json.loads(done.stdout)["evaluations"]
    first = evaluations[0]
    today = time.strftime("%Y-%m-%d", time.gmtime())
    print(f"{today}, {first['device_name']}, {folder.name}/{workload}, {first['environment']}")
    print(f"exit {done.returncode}, {time.perf_counter() - started:.1f} s")
    print(
        ROW.format("candidate", "kind", "outcome", "device us", "held us", "call us", "caught by")
    )
    return evaluations


def show(folder: Path, evaluations: Sequence[Mapping[str, Any]]) -> int:
    """Print a row for each, and return how many went wrong."""
    honest_us = {
        e["submission"]: (e["timing"] or {}).get("device_us")
        for e in evaluations
        if "honest" in e["submission"]
    }
    least_us = min((us for us in honest_us.values() if us), default=None)
    missed = 0
    for found in evaluations:
        name, timing = found["submission"], found["timing"] or {}
        layer = caught_by(found)
        if name in honest_us:
            is_wrong = found["outcome"] != "passed" or layer is not None
            verdict = f"HONEST, AND NOT BELIEVED: {layer}" if is_wrong else "-"
        else:
            verdict = layer or without_effect(timing.get("device_us"), least_us) or ""
            is_wrong = not verdict
            verdict = verdict or "NOTHING"
        missed += is_wrong
        figures = [us(timing.get(key)) for key in ("device_us", "held_us", "call_us")]
        print(ROW.format(name[:18], kind(folder / f"{name}.py"), outcome(found), *figures, verdict))
    return missed


def caught_by(found: Mapping[str, Any]) -> str | None:
    """Return the layer that shows the cheat: it failed a gate, or another clock counts."""
    for gate, result in found["gates"].items():
        if result["outcome"] == "failed":
            layer = result["details"].get("caught_by", "an exception, or the end of its process")
            return f"{layer} ({gate}: {result['reason'][:60]})"
    layer: str | None = found["gates"].get("performance", {}).get("details", {}).get("caught_by")
    return layer


def without_effect(device_us: float | None, honest_us: float | None) -> str | None:
    if device_us and honest_us and device_us >= GAIN * honest_us:
        return f"no gain: {device_us / honest_us:.2f} of the honest time"
    return None


def outcome(found: Mapping[str, Any]) -> str:
    return " ".join([found["outcome"], *(f for f in found["flags"] if f.startswith("clock"))])


def kind(path: Path) -> str:
    line = path.read_text().splitlines()[0]
    return line.removeprefix("# kind: ") if line.startswith("# kind: ") else ""


def us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    sys.exit(main())
