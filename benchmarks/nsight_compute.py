"""Durations of kernels as Nsight Compute reports them, told apart by marker kernels.

It serialises kernels: the duration of a call is the sum of its kernels', without gaps. Its own
clock and cache control are off, so clocks are left alone and who wants cold caches overruns them.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from attrs import frozen

METRIC = "gpu__time_duration.sum"
BEGINS = "call_begins_"
"""Followed by a number, the name of the marker before a call."""
ENDS = "call_ends"

_PLACES = ("/usr/local/cuda/bin/ncu",)
_OPTIONS = (
    *("--csv", "--page", "raw", "--print-units", "base", "--metrics", METRIC),
    *("--clock-control", "none", "--cache-control", "none"),
    *("--target-processes", "all", "--profile-from-start", "off"),
)
_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
"""By unit; older releases write `nsecond`, `usecond`, ..."""


class NoDurations(Exception):
    """Nsight Compute gave none; the message says why."""


@frozen(kw_only=True)
class Duration:
    """What was seen of one kind of call."""

    us: float
    """Median over calls of the sum over their kernels."""
    launches: int
    calls: int


def find() -> str | None:
    """Return where the command line tool is."""
    return shutil.which("ncu") or next((p for p in _PLACES if os.access(p, os.X_OK)), None)


def measure(
    ncu: str, command: Sequence[str], names: Sequence[str], *, limit_s: float
) -> Mapping[str, Duration]:
    """Run `command` under the profiler; return what was seen between its markers.

    Args:
        ncu: Path of the tool.
        command: Launches the marker `BEGINS` + i before each call of `names[i]`, and `ENDS` behind.
        names: Of what is called.
        limit_s: When to give up.

    Raises:
        NoDurations: the tool refuses, takes too long, or saw no kernel.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "durations.csv"
        try:
            done = subprocess.run(
                [ncu, *_OPTIONS, "--log-file", str(log), *command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=limit_s,
                env={**os.environ, "LC_ALL": "C.UTF-8"},  # else numbers follow the user's locale
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise NoDurations(f"it was not through after {limit_s:g} s") from error
        text = log.read_text() if log.exists() else ""
    said = _complaint(f"{text}\n{done.stdout}\n{done.stderr}")
    try:
        found = by_call(durations(text), names)
    except NoDurations as error:
        raise NoDurations(f"exit {done.returncode}: {said or error}") from error
    if done.returncode:  # what it did see is no less true
        print(f"ncu: exit {done.returncode}: {said}", file=sys.stderr)
    return found


def durations(text: str) -> list[tuple[str, float]]:
    """Return each kernel's name and its microseconds, in the order of launches.

    Reads both tables that the tool prints: a row for each kernel, with a row of units at the top,
    or a row for each metric, with its unit beside it.

    Raises:
        NoDurations: there is no such table, or a unit that is not one of time.
    """
    lines = text.splitlines()
    top = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if top is None:
        raise NoDurations("it printed no table")
    rows = list(csv.DictReader(line for line in lines[top:] if line.startswith('"')))
    if rows and METRIC in rows[0]:
        unit = rows[0][METRIC]
        return [(_name(row), _us(row[METRIC], unit)) for row in rows[1:]]
    found = [
        (_name(row), _us(row["Metric Value"], row["Metric Unit"]))
        for row in rows
        if row.get("Metric Name") == METRIC
    ]
    if not found:
        raise NoDurations(f"its table has no {METRIC}")
    return found


def by_call(launched: Sequence[tuple[str, float]], names: Sequence[str]) -> Mapping[str, Duration]:
    """Return what was launched between the markers, by name; kernels outside are nobody's."""
    seen: dict[str, list[list[float]]] = {}
    inside: list[float] | None = None
    for kernel, us in launched:
        if kernel.startswith(BEGINS):
            inside = []
            seen.setdefault(names[int(kernel.removeprefix(BEGINS))], []).append(inside)
        elif kernel == ENDS:
            inside = None
        elif inside is not None:
            inside.append(us)
    return {
        name: Duration(
            us=median(sum(call) for call in calls),
            launches=int(median(len(call) for call in calls)),
            calls=len(calls),
        )
        for name, found in seen.items()
        if (calls := [call for call in found if call])
    }


def marker_source(count: int) -> str:
    """Return CUDA source of `count` markers that begin a call, and one that ends it."""
    names = [*(f"{BEGINS}{number}" for number in range(count)), ENDS]
    return "\n".join(f'extern "C" __global__ void {name}() {{}}' for name in names)


def _name(row: Mapping[str, str]) -> str:
    return row["Kernel Name"].partition("(")[0].strip()


def _us(value: str, unit: str) -> float:
    short = unit.removesuffix("econd").removesuffix("econds")
    if short not in _US:
        raise NoDurations(f"{METRIC} is in {unit!r}, which is no unit of time known here")
    try:
        return float(value.replace(",", "")) * _US[short]
    except ValueError as error:
        raise NoDurations(f"{METRIC} is {value!r}, which is no number") from error


def _complaint(text: str) -> str | None:
    """Return the tool's first error, else its first warning, else the last thing that was said."""
    lines = [line for line in text.splitlines() if line.strip()]
    for mark in ("==ERROR==", "==WARNING=="):
        for line in lines:
            if line.startswith(mark):
                return line
    return lines[-1] if lines else None
