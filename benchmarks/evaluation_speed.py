"""Claim: an evaluation costs little more than what it has to run.

    python benchmarks/evaluation_speed.py [--backend triton] [--device ID] [--problem GLOB]

On one H200: rms_norm's full set takes at most 15 s, start to table, the bundled operators at most
60 s; a workload whose bound is below 1 ms takes at most 0.15 s, and evidence of authenticity at
most 0.1 s of it.

Runs `atrex-eval run` as a fresh user would, without state or kernels of an earlier run, and prints
where the seconds went: by operator, by stage, and outside of evaluations. `amortised` is the mean
over workloads whose bound is below 1 ms, without the stages in which the candidate's process starts
and kernels are compiled. With --problem, only those problems are run, and no limit on the whole run
is claimed unless it is one of the two above. Exits 1 where a limit is missed, or where a run's exit
code is not 0.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median
from typing import Any

from attrs import frozen

WHOLE_S: Mapping[str | None, float] = {"rms_norm": 15.0, None: 60.0}
"""Start to table, by what `--problem` names; None stands for all that is bundled."""
WORKLOAD_S, EVIDENCE_S = 0.15, 0.1
SHORT_US = 1000.0
NOT_COUNTED = ("start", "wait", "compile")
EVIDENCE = "evidence"

_SHOWN = ("driver", "cuda_runtime", "torch", "triton", "numba", "python", "atrex_eval")

Evaluations = Sequence[Mapping[str, Any]]


@frozen(kw_only=True)
class Run:
    """One run of the command line."""

    problem: str | None
    exit_code: int
    wall_s: float
    document: Mapping[str, Any]

    @property
    def evaluations(self) -> Evaluations:
        """Return what was evaluated."""
        found: Evaluations = self.document["evaluations"]
        return found


@frozen(kw_only=True)
class Claim:
    """A figure and its limit, both in seconds."""

    what: str
    found_s: float
    limit_s: float

    @property
    def holds(self) -> bool:
        """Whether the figure is within its limit."""
        return self.found_s <= self.limit_s


def run(problem: str | None, *, backend: str, device: str | None) -> Run | None:
    """Evaluate the bundled kernels as a fresh user; None where there is no document."""
    command = [sys.executable, "-m", "atrex_core", "run", "--backend", backend, "--format", "json"]
    if problem is not None:
        command += ["--problem", problem]
    if device is not None:
        command += ["--device", device]
    with tempfile.TemporaryDirectory() as folder:
        fresh = {
            "XDG_STATE_HOME": str(Path(folder) / "state"),
            "TRITON_CACHE_DIR": str(Path(folder) / "triton"),
        }
        started_s = time.perf_counter()
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **fresh}, check=False
        )
        wall_s = time.perf_counter() - started_s
    if not done.stdout:
        print(f"{' '.join(command)}: exit {done.returncode}, no document", file=sys.stderr)
        return None
    document = json.loads(done.stdout)
    return Run(problem=problem, exit_code=done.returncode, wall_s=wall_s, document=document)


def is_short(evaluation: Mapping[str, Any]) -> bool:
    """Whether the workload's bound is known, and below a millisecond."""
    bound = evaluation["bound"]
    return bound is not None and bound["t_sol_us"] < SHORT_US


def stages_s(evaluation: Mapping[str, Any]) -> Mapping[str, float]:
    """Return an evaluation's seconds by stage; of an older release, no more than compilation."""
    stages: Mapping[str, float] = evaluation.get("stage_seconds") or {}
    return stages or {"compile": evaluation["compile_seconds"] or 0.0}


def counted_s(evaluation: Mapping[str, Any]) -> float:
    """Return an evaluation's seconds without starting and compiling."""
    stages = stages_s(evaluation)
    left: float = evaluation["seconds"] - sum(stages.get(name, 0.0) for name in NOT_COUNTED)
    return left


def claims(found: Run) -> Iterator[Claim]:
    """Return what is claimed of a run."""
    if found.problem in WHOLE_S:
        what = f"{found.problem or 'bundled operators'}, start to table"
        yield Claim(what=what, found_s=found.wall_s, limit_s=WHOLE_S[found.problem])
    short = [evaluation for evaluation in found.evaluations if is_short(evaluation)]
    if not short:
        return
    amortised_s = mean(counted_s(evaluation) for evaluation in short)
    yield Claim(what="a short workload, amortised", found_s=amortised_s, limit_s=WORKLOAD_S)
    if any(evaluation.get("stage_seconds") for evaluation in short):
        evidence_s = mean(stages_s(evaluation).get(EVIDENCE, 0.0) for evaluation in short)
        yield Claim(what="its evidence of authenticity", found_s=evidence_s, limit_s=EVIDENCE_S)


def print_run(found: Run) -> bool:
    """Print one run's tables; return whether all that is claimed of it holds."""
    evaluations = found.evaluations
    print(
        f"\n{found.problem or 'all that is bundled'}: exit {found.exit_code}, "
        f"{found.wall_s:.1f} s start to table"
    )
    if not evaluations:
        return False
    print_where(evaluations[0])
    print_operators(evaluations)
    print_stages(evaluations)
    print_start_up(found)
    holds = found.exit_code == 0
    for claim in claims(found):
        holds &= claim.holds
        verdict = "" if claim.holds else "  MISSED"
        print(f"claim: {claim.what}: {claim.found_s:.3f} s of {claim.limit_s:g} s{verdict}")
    for evaluation in evaluations:
        if evaluation["outcome"] not in ("passed", "unmeasured"):
            name = f"{evaluation['problem']}/{evaluation['workload']}"
            print(f"{name}: {evaluation['outcome']}")
    return holds


def print_where(first: Mapping[str, Any]) -> None:
    """Print what was run, on what."""
    versions = first["environment"]
    said = ", ".join(f"{name} {versions[name]}" for name in _SHOWN if name in versions)
    print(f"{first['device']} = {first['device_name']}; {said}")
    print(
        f"protocol {first['protocol']}, scale {first['scale']}, isolation {first['isolation']}, "
        f"{first['request'].get('cases', '?')} cases"
    )


def print_operators(evaluations: Evaluations) -> None:
    """Print a row for each operator, and one for all."""
    columns = ("n", "seconds", "short", "median s", "amortised", "compile s", "evidence s")
    print(f"{'operator':26}" + "".join(f"{column:>11}" for column in columns))
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for evaluation in evaluations:
        groups.setdefault(evaluation["problem"], []).append(evaluation)
    for name, rows in [*groups.items(), ("all", list(evaluations))]:
        short = [counted_s(row) for row in rows if is_short(row)]
        cells = [
            str(len(rows)),
            f"{sum(row['seconds'] for row in rows):.2f}",
            str(len(short)),
            f"{median(short):.3f}" if short else "-",
            f"{mean(short):.3f}" if short else "-",
            f"{sum(row['compile_seconds'] or 0.0 for row in rows):.2f}",
            f"{mean(stages_s(row).get(EVIDENCE, 0.0) for row in rows):.3f}",
        ]
        print(f"{name:26}" + "".join(f"{cell:>11}" for cell in cells))


def print_stages(evaluations: Evaluations) -> None:
    """Print where the evaluations' seconds went, most first."""
    all_s = sum(evaluation["seconds"] for evaluation in evaluations)
    totals: dict[str, float] = {}
    for evaluation in evaluations:
        for name, seconds in stages_s(evaluation).items():
            totals[name] = totals.get(name, 0.0) + seconds
    totals["(in no stage)"] = all_s - sum(totals.values())
    print(f"{'stage':26}{'seconds':>11}{'share':>11}{'s each':>11}")
    for name, seconds in sorted(totals.items(), key=lambda item: -item[1]):
        each_s = seconds / len(evaluations)
        print(f"{name:26}{seconds:11.2f}{seconds / all_s if all_s else 0.0:11.1%}{each_s:11.4f}")


def print_start_up(found: Run) -> None:
    """Print what of the wall time no evaluation was at work in, and what is known of it."""
    busy_s = sum(evaluation["seconds"] for evaluation in found.evaluations)
    print(f"outside evaluations: {found.wall_s - busy_s:.2f} s of {found.wall_s:.2f} s")
    cost = found.document.get("cost")
    if cost is None:
        return
    print(f"the run's own account: {cost['wall_s']:.2f} s")
    devices = cost["devices"]
    named = devices.items() if isinstance(devices, Mapping) else ((d["device"], d) for d in devices)
    for device, parts in named:
        said = ", ".join(f"{name} {value:.4g}" for name, value in figures(parts))
        print(f"  {device}: {said}")


def figures(parts: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, float]]:
    """Return every number of a nested mapping, under its path."""
    for name, value in parts.items():
        if isinstance(value, Mapping):
            yield from figures(value, f"{within}{name}.")
        elif isinstance(value, int | float):
            yield f"{within}{name}", value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="triton")
    parser.add_argument("--device", help="default: as atrex-eval chooses")
    parser.add_argument("--problem", help="run these alone, instead of rms_norm and then all")
    options = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, backend {options.backend}")
    holds = True
    for problem in [options.problem] if options.problem else WHOLE_S:
        found = run(problem, backend=options.backend, device=options.device)
        holds &= found is not None and print_run(found)
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
