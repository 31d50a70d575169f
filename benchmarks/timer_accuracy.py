"""Claim: device_us is what independently read activity records say, and repeats between processes.

    python benchmarks/timer_accuracy.py [--processes 5] [--device 0] [--only NAME]... [--no-ncu]

Kernels from 1 us to 100 ms, bound by memory, by the matrix pipe or by latency, of one, three and
twenty launches, in Triton and in CUDA (`accuracy_kernels.py`), timed in three ways, each in
processes of its own and with cold caches:

ours     median over fresh processes of what the accelerator's `sample` says
records  first start to last end as torch's profiler reports it, with a spinning kernel in front so
         that launches queue up
ncu      the sum of the durations of a call's kernels as Nsight Compute reports them, where it is
         installed. It serialises, so the gaps of a call of several launches are not in it: shown
         for information there, and judged where there is one launch.

`cv %` is the spread of ours between processes, `iqr %` the distance between the quartiles of the
samples within one: where that is large too, the device itself varies. Exits 1 where ours differs
from the records by more than 2 % and 0.3 us or from ncu by more than 5 % and 1 us, or varies by
more than 1 % between processes (2 % below 10 us).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import nsight_compute
from accuracy_kernels import HOLD, KINDS, SOURCE, Call, Kind, chosen, current_stream
from attrs import frozen
from nsight_compute import Duration

OF_RECORDS = (0.02, 0.3)
OF_NCU = (0.05, 1.0)
"""How far apart two clocks may be: the larger of a share, and of microseconds."""
CV, CV_SHORT, SHORT_US = 0.01, 0.02, 10.0

SPIN_US = 2000
RECORDED_CALLS = 40
NCU_CALLS = 5
NCU_S, NCU_LIMIT_S = 75.0, 150.0
"""When no further call is made under Nsight Compute, and when it is given up."""

Found = Mapping[str, Mapping[str, Any]]
"""What one process found of each kernel."""


def measure_ours(only: Sequence[str], ordinal: int) -> Found:
    """Return what the accelerator's own sampling says of each kernel."""
    import torch
    from atrex_accelerator_cuda import CudaAccelerator

    accelerator = CudaAccelerator()
    context = accelerator.open(accelerator.devices()[ordinal])
    found = {}
    for name, call in chosen(torch, only).items():
        samples = context.sample(call, budget_s=KINDS[name].budget_s)
        found[name] = {
            "us": statistics.median(samples.samples_us) if samples.samples_us else None,
            "iqr": interquartile(samples.samples_us),
            "n": len(samples.samples_us),
            "method": samples.method,
            "reason": samples.reason,
        }
    return found


def measure_records(only: Sequence[str], ordinal: int) -> Found:
    """Return first start to last end as torch's profiler reports it."""
    import torch

    torch.cuda.set_device(ordinal)
    overrun = torch.zeros(2**25, dtype=torch.int32, device="cuda")
    named = chosen(torch, only)
    import cupy
    from torch.profiler import ProfilerActivity, profile

    spin = cupy.RawModule(code=SOURCE).get_function(HOLD)
    stream = current_stream(cupy, torch)

    def spans(call: Call) -> list[float]:
        def once(index: int) -> None:
            overrun.amax()
            torch.cuda.synchronize()
            with stream:
                spin((1,), (1,), (cupy.uint64(SPIN_US * 1000),))
            call(index)
            torch.cuda.synchronize()

        for index in range(5):
            once(index)
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for index in range(RECORDED_CALLS):
                once(index)
        events = sorted(
            (
                (e.time_range.start, e.time_range.end, e.name)
                for e in profiler.events()
                if e.device_type == torch.autograd.DeviceType.CUDA and "Memset" not in e.name
            ),
        )
        found: list[float] = []
        ours: list[tuple[float, float]] = []
        counting = False
        for start, end, name in [*events, (0.0, 0.0, "at::native::reduce_kernel")]:
            if "at::native::reduce_kernel" in name:  # the next call's overrun
                if ours:
                    found.append(max(e for _, e in ours) - min(s for s, _ in ours))
                ours, counting = [], False
            elif not counting and name == HOLD:
                counting = True
            elif counting:
                ours.append((start, end))
        return found

    return {
        name: {"us": statistics.median(found), "n": len(found)}
        for name, call in named.items()
        if (found := spans(call))
    }


def call_between_markers(only: Sequence[str], ordinal: int) -> None:
    """Make a few calls of each kernel, for Nsight Compute to look at; print nothing."""
    import torch

    torch.cuda.set_device(ordinal)
    overrun = torch.zeros(2**25, dtype=torch.int32, device="cuda")
    named = chosen(torch, only)
    overrun.amax()
    import cupy

    names = list(KINDS)
    markers = cupy.RawModule(code=nsight_compute.marker_source(len(names)))
    ends = markers.get_function(nsight_compute.ENDS)
    begins = {
        name: markers.get_function(f"{nsight_compute.BEGINS}{number}")
        for number, name in enumerate(names)
    }
    stream = current_stream(cupy, torch)
    torch.cuda.profiler.start()
    started_s = time.perf_counter()
    # Round by round: where time runs out, each kernel has been called, if less often.
    for index, (name, call) in product(range(NCU_CALLS), named.items()):
        if time.perf_counter() - started_s > NCU_S:
            break
        overrun.amax()
        torch.cuda.synchronize()
        with stream:
            begins[name]((1,), (1,), ())
        call(index)
        with stream:
            ends((1,), (1,), ())
        torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def interquartile(samples_us: Sequence[float]) -> float | None:
    """Return the distance between the quartiles, as a share of the median."""
    if len(samples_us) < 4:
        return None
    low, middle, high = statistics.quantiles(samples_us, n=4)
    return (high - low) / middle


@frozen(kw_only=True)
class Row:
    """One kernel by all clocks."""

    name: str
    kind: Kind
    ours_us: float
    records_us: float
    cv: float
    iqr: float | None
    samples: int
    ncu: Duration | None

    @property
    def is_judged_by_ncu(self) -> bool:
        """Whether there are no gaps that Nsight Compute leaves out."""
        return self.kind.launches == 1 and (self.ncu is None or self.ncu.launches == 1)

    def faults(self, *, ncu_ran: bool) -> list[str]:
        """Say which claims do not hold."""
        found = []
        if _is_apart(self.ours_us, self.records_us, OF_RECORDS):
            found.append("records")
        if self.is_judged_by_ncu and ncu_ran:
            if self.ncu is None:
                found.append("ncu missing")
            elif _is_apart(self.ours_us, self.ncu.us, OF_NCU):
                found.append("ncu")
        if self.cv > (CV if self.ours_us > SHORT_US else CV_SHORT):
            found.append("cv")
        return found

    def cells(self) -> list[str]:
        """Return what stands in the table, without the verdict."""
        apart_us = self.ours_us - self.records_us
        ncu = self.ncu
        return [
            self.name,
            str(self.kind),
            f"{self.ours_us:.2f}",
            f"{self.records_us:.2f}",
            f"{apart_us:+.2f}",
            f"{apart_us / self.records_us:+.1%}",
            "-" if ncu is None else f"{ncu.us:.2f}",
            f"{self.ours_us / ncu.us - 1:+.1%}" if ncu and self.is_judged_by_ncu else "-",
            f"{self.cv:.2%}",
            "-" if self.iqr is None else f"{self.iqr:.2%}",
            str(self.samples),
        ]


def _is_apart(ours_us: float, other_us: float, limits: tuple[float, float]) -> bool:
    share, least_us = limits
    return abs(ours_us - other_us) > max(share * other_us, least_us)


def compare(
    name: str, ours: Sequence[Found], records: Found, ncu: Mapping[str, Duration]
) -> Row | None:
    """Return one kernel's row; None where one of the clocks that must say something does not."""
    mine = [run[name] for run in ours if run.get(name, {}).get("us")]
    if len(mine) < len(ours) or not mine or name not in records:
        return None
    values = [run["us"] for run in mine]
    middle = statistics.median(values)
    spreads = [run["iqr"] for run in mine if run["iqr"] is not None]
    return Row(
        name=name,
        kind=KINDS[name],
        ours_us=middle,
        records_us=records[name]["us"],
        cv=statistics.stdev(values) / middle if len(values) > 1 else 0.0,
        iqr=statistics.median(spreads) if spreads else None,
        samples=min(run["n"] for run in mine),
        ncu=ncu.get(name),
    )


_LAYOUT = "{:18} {:26} {:>9} {:>9} {:>7} {:>6} {:>9} {:>6} {:>6} {:>6} {:>4}  {}"
_HEADINGS = ("kernel", "", "ours us", "records", "apart", "%", "ncu us", "%", "cv %", "iqr %", "n")


def print_table(
    names: Sequence[str],
    ours: Sequence[Found],
    records: Found,
    ncu: Mapping[str, Duration] | None,
) -> int:
    """Print a row for each kernel; return how many are not as claimed."""
    print(_LAYOUT.format(*_HEADINGS, "").rstrip())
    bad = 0
    for name in names:
        row = compare(name, ours, records, ncu or {})
        if row is None:
            silent = [run[name] for run in ours if name in run and not run[name]["us"]]
            reasons = {str(found["reason"]) for found in silent}
            said = ", ".join(sorted(reasons)) or "no records"
            print(f"{name:18} {KINDS[name]!s:26} WRONG: {said}")
            bad += 1
            continue
        faults = row.faults(ncu_ran=ncu is not None)
        bad += bool(faults)
        note = f"WRONG: {', '.join(faults)}" if faults else ""
        if row.ncu is not None and row.ncu.launches != row.kind.launches:
            note = f"{note} (ncu saw {row.ncu.launches} launches)".lstrip()
        print(_LAYOUT.format(*row.cells(), note).rstrip())
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--only", action="append", default=[], choices=list(KINDS), metavar="NAME")
    parser.add_argument(
        "--ncu",
        action=argparse.BooleanOptionalAction,
        help="compare with Nsight Compute; by default, where it is installed and works",
    )
    parser.add_argument("--by", choices=["ours", "records", "ncu"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.by == "ncu":
        call_between_markers(options.only, options.device)
        return 0
    if options.by:
        measure = measure_ours if options.by == "ours" else measure_records
        print(json.dumps(measure(options.only, options.device)))
        return 0
    # One way of numbering devices for all: the accelerator's own.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    started_s = time.perf_counter()
    print(_where(options.device))
    ours = [_found_by("ours", options) for _ in range(options.processes)]
    ours_s = time.perf_counter() - started_s
    records = _found_by("records", options)
    records_s = time.perf_counter() - started_s - ours_s
    ncu = _found_by_ncu(options)
    ncu_s = time.perf_counter() - started_s - ours_s - records_s
    bad = print_table(options.only or list(KINDS), ours, records, ncu)
    if ncu is None and options.ncu:
        bad += 1
    methods = {found["method"] for run in ours for found in run.values()}
    print(
        f"{options.processes} processes, {ours_s:.0f} s; records {records_s:.0f} s; "
        f"ncu {ncu_s:.0f} s; {', '.join(sorted(methods))}; {bad} not as claimed"
    )
    return int(bad > 0)


def _command(by: str, options: argparse.Namespace) -> list[str]:
    command = [sys.executable, __file__, "--by", by, "--device", str(options.device)]
    return [*command, *(word for name in options.only for word in ("--only", name))]


def _found_by(by: str, options: argparse.Namespace) -> Found:
    done = subprocess.run(_command(by, options), stdout=subprocess.PIPE, text=True, check=True)
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


def _found_by_ncu(options: argparse.Namespace) -> Mapping[str, Duration] | None:
    """Return what Nsight Compute saw; None where it was not asked, or the reason printed."""
    if options.ncu is False:
        return None
    ncu = nsight_compute.find()
    try:
        if ncu is None:
            raise nsight_compute.NoDurations("it is not installed")
        command = _command("ncu", options)
        return nsight_compute.measure(ncu, command, list(KINDS), limit_s=NCU_LIMIT_S)
    except nsight_compute.NoDurations as error:
        print(f"not compared with Nsight Compute: {error}")
        return None


def _where(ordinal: int) -> str:
    import torch

    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, check=False).stdout.split()
    except FileNotFoundError:
        said = []
    return (
        f"{time.strftime('%Y-%m-%d', time.gmtime())}, {torch.cuda.get_device_name(ordinal)}, "
        f"driver {said[0] if said else 'unknown'}, torch {torch.__version__}, "
        f"Python {platform.python_version()}"
    )


if __name__ == "__main__":
    sys.exit(main())
