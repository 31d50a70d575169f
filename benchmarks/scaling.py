"""Claim: devices that take work from one queue are together as fast as so many; two, 1.9 times.

Run:  python benchmarks/scaling.py [--backend NAME] [--devices GLOB] [-- ARGUMENT...]
Runs the main job on one device and on all of a kind, and prints for each the seconds after the
first device was ready and how busy every device was. Exits 1 below 95 % of a device for each,
which is 1.9 times for two, and 2 where a run fails or there is only one device.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from atrex_core import AtrexError, PluginHost
from atrex_core.device_choice import choose_devices
from atrex_core.planning import choose_backend

_LEAST_SHARE = 0.95
_FAILED = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend")
    parser.add_argument("--devices", default="*", metavar="GLOB", help="default: all there are")
    parser.add_argument("arguments", nargs="*", help="passed on to atrex-eval")
    options = parser.parse_args()
    try:
        host = PluginHost.discover()
        backend = choose_backend(host, options.backend)
        _, devices = choose_devices(host, backend, options.devices)
    except AtrexError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return _FAILED
    first, count = devices[0], len(devices)
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {count} x {first.name}, {os.cpu_count()} CPUs")
    if count < 2:
        print("error: one device alone does not scale", file=sys.stderr)
        return _FAILED
    ids = [device.id for device in devices]
    took = [run(backend.name, chosen, options.arguments) for chosen in (ids[:1], ids)]
    if None in took:
        return _FAILED
    alone_s, together_s = (seconds for seconds in took if seconds is not None)
    ratio, target = alone_s / together_s, _LEAST_SHARE * count
    print(f"{alone_s:.1f} s / {together_s:.1f} s = {ratio:.2f} with {count}   target {target:.2f}")
    return int(ratio < target)


def run(backend: str, ids: Sequence[str], arguments: Sequence[str]) -> float | None:
    """Run the main job; return the seconds that it took after start-up, None where it failed."""
    command = [sys.executable, "-m", "atrex_core", "run", "--backend", backend, *arguments]
    command += ["--device", ",".join(ids), "--format", "json"]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--journal", str(Path(folder, "journal.jsonl"))]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout:
        print(f"{', '.join(ids)}: exit {done.returncode}", file=sys.stderr)
        return None
    document = json.loads(done.stdout)
    cost: Mapping[str, Any] = document["cost"]
    # The first that is ready begins, so what the others take longer is on the clock.
    startup_s = min(part["startup_s"] for part in cost["devices"] if part["evaluations"])
    seconds = float(cost["wall_s"] - startup_s)
    print(
        f"\n{', '.join(ids)}: exit {done.returncode}, {len(document['evaluations'])} evaluations, "
        f"{cost['wall_s']:.1f} s, {seconds:.1f} s of them after start-up"
    )
    print(f"{'device':16}{'evaluations':>12}{'busy s':>10}{'utilisation':>13}{'start-up s':>12}")
    for part in cost["devices"]:
        print(
            f"{part['device']:16}{part['evaluations']:12}{part['busy_s']:10.1f}"
            f"{part['utilisation']:13.1%}{part['startup_s']:12.1f}"
        )
    stages = sorted(cost["stage_seconds"].items(), key=lambda item: -item[1])
    print("stages: " + (", ".join(f"{name} {spent:.1f} s" for name, spent in stages) or "-"))
    return seconds if document["evaluations"] and done.returncode in (0, 1) else None


if __name__ == "__main__":
    sys.exit(main())
