"""Question: how long does a command take that has nothing to compute?

    python benchmarks/startup.py [--runs N] [--backend NAME] [--problem GLOB]

Every command starts in a process of its own, with Python's bytecode at hand as after `pip
install`. Printed for each: the median and the best time on the wall, the median of what its
processes had of a processor (user and system, the supervisor's included), and the target for the
median on the wall. On a busy machine, believe the processor's seconds. Exits with 1 where a target
is missed.

`resume` is a run whose evaluations are all in the journal: one run, which is not timed, writes it.
`unplanned` is a run that ends in planning, for no problem has the name that it asks for.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

_USAGE = 2


class Case(NamedTuple):
    """A command, what it is to end with, and how soon."""

    name: str
    arguments: Sequence[str]
    target_s: float
    code: int = 0


class Spent(NamedTuple):
    """What one command took."""

    wall_s: float
    cpu_s: float


def run(arguments: Sequence[str], folder: str, environment: Mapping[str, str]) -> tuple[int, Spent]:
    """Run one command to its end; return its exit code, and what it took."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "atrex_core", *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    wall_s, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1, _USAGE):
        sys.exit(f"{' '.join(arguments)}: exit code {done.returncode}\n{done.stderr.decode()}")
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return done.returncode, Spent(wall_s, cpu_s)


def cases(options: argparse.Namespace, folder: str, environment: Mapping[str, str]) -> list[Case]:
    """Return what is timed; evaluates what `resume` is to find in its journal."""
    chosen = ("run", "--backend", options.backend, "--scale", "smoke")
    selected = (*chosen, "--problem", options.problem, "--journal", f"{folder}/journal.jsonl")
    print(f"evaluating {options.problem} with {options.backend}, once ...", flush=True)
    code, spent = run(selected, folder, environment)
    print(f"... took {spent.wall_s:.1f} s\n")
    return [
        Case("--help", ("--help",), 0.25),
        Case("list plugins", ("list", "plugins"), 0.5),
        Case("resume", (*selected, "--resume"), 1.5, code),
        Case("unplanned", (*chosen, "--problem", "no_such_problem"), 1.5, _USAGE),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Time commands that have nothing to compute.")
    parser.add_argument("--runs", type=int, default=9, metavar="N", help="of each command")
    parser.add_argument("--backend", default="numba", metavar="NAME")
    parser.add_argument("--problem", default="rms_norm", metavar="GLOB")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        environment = {
            **{name: value for name, value in os.environ.items() if name[:6] != "ATREX_"},
            "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode"),
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        late = False
        timed = cases(options, folder, environment)
        print(f"{'command':14}{'median s':>10}{'best s':>10}{'cpu s':>10}{'target s':>10}")
        for case in timed:
            run(case.arguments, folder, environment)  # what it imports is compiled now
            spent: list[Spent] = []
            for _ in range(options.runs):
                code, took = run(case.arguments, folder, environment)
                if code != case.code:
                    sys.exit(f"{case.name} exits with {code}, not with {case.code}")
                spent.append(took)
            wall_s = median(one.wall_s for one in spent)
            late |= wall_s > case.target_s
            best_s, cpu_s = min(spent).wall_s, median(one.cpu_s for one in spent)
            print(f"{case.name:14}{wall_s:10.3f}{best_s:10.3f}{cpu_s:10.3f}{case.target_s:10.2f}")
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
