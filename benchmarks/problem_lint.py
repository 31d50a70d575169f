"""Claim: strict refuses every mutant and accepts every honest variant, on a GPU at production size.

    python benchmarks/problem_lint.py JOURNAL [--only GLOB] [--device ID] [--jobs N] [--minutes N]

Lints the smallest, a middle and the largest workload of each operator under both protocols, as
`atrex-eval problems lint` does, and prints its table. Stops after so many minutes; the same
command goes on where it stopped, from the journal. Exit status 1 says that something is not as it
should be, 2 that it is not finished.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import time
from pathlib import Path

import torch
from atrex_accelerator_cuda import CudaAccelerator

UNFINISHED = 2
SEED = 20261130


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("journal", type=Path)
    parser.add_argument("--only", action="append", default=[], metavar="GLOB")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--spread", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--protocol", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the device")
    arguments = parser.parse_args()
    found = CudaAccelerator().device(arguments.device)
    name = f"{found.name}, driver {found.driver}" if found else arguments.device
    day = time.strftime("%Y-%m-%d", time.gmtime())
    print(f"{day}, {name}, torch {torch.__version__}, Python {platform.python_version()}")
    command = [sys.executable, "-m", "atrex_core", "problems", "lint", *arguments.only]
    command += ["--scale", "full", "--spread", str(arguments.spread), "--seed", str(SEED)]
    command += ["--device", arguments.device, "--jobs", str(arguments.jobs)]
    command += ["--journal", str(arguments.journal), "--resume"]
    for protocol in arguments.protocol:
        command += ["--protocol", protocol]
    print("$", " ".join(["atrex-eval", *command[3:]]), flush=True)
    process = subprocess.Popen(command)
    try:
        return process.wait(timeout=60 * arguments.minutes)
    except subprocess.TimeoutExpired:
        process.send_signal(2)  # what was found is reported and kept
        process.wait()
        return UNFINISHED


if __name__ == "__main__":
    sys.exit(main())
