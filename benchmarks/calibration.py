"""Claim: a device is calibrated within two minutes, repeatably, and below its data sheet.

    python benchmarks/calibration.py [--device cuda:0] [--minutes 1] > benchmarks/results/DATE.txt

Runs `atrex-eval calibrate` twice and prints both tables, then how far apart the two are, figure by
figure. Exits 1 when a command fails, a figure of the envelope moves by more than 5 %, or one is
above what the profile says can be. The device's calibration is then the second one.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from typing import Any

MOST_APART = 0.05


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device")
    parser.add_argument("--minutes", type=float, default=1.0)
    options = parser.parse_args()
    on = ["--device", options.device] if options.device else []
    day = time.strftime("%Y-%m-%d", time.gmtime())
    print(f"{day}, Python {platform.python_version()}", flush=True)
    envelopes = []
    failed = False
    for turn in (1, 2):
        started = time.perf_counter()
        if run("calibrate", *on, "--minutes", str(options.minutes)).returncode:
            return 1
        print(f"\nturn {turn}: {time.perf_counter() - started:.1f} s, start to table\n", flush=True)
        shown = run("calibrate", *on, "--show", "--format", "json", stdout=subprocess.PIPE)
        found = json.loads(shown.stdout)["calibration"]
        failed |= bool(found["implausible"])
        envelopes.append(flat(found["envelope"]))
    first, second = envelopes
    for name in sorted({*first, *second}):
        if name not in first or name not in second:
            print(f"{name:24} in one of the two only")
            failed = True
            continue
        apart = abs(second[name] - first[name]) / first[name]
        failed |= apart > MOST_APART
        print(f"{name:24} {first[name]:12.5g} {second[name]:12.5g} {apart:7.2%}")
    return int(failed)


def run(*arguments: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "atrex_core", *arguments]
    return subprocess.run(command, text=True, check=False, **streams)


def flat(envelope: dict[str, Any] | None) -> dict[str, float]:
    """Return the figures of an envelope by name, none where there is no envelope."""
    if envelope is None:
        return {}
    return {"memory": envelope["bandwidth_bytes_per_s"], **envelope["peak_flops"]}


if __name__ == "__main__":
    sys.exit(main())
