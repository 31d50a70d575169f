"""Claims about what a worker can see, proved by a spy in a real one.

A pack full of canaries is installed for one run, and a candidate searches its worker for them. What
the run gives out is searched too. A control shows that both searches find what is there.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from atrex_core.device_choice import choose_device
from atrex_core.errors import AtrexError
from atrex_core.interfaces import Accelerator, Backend
from atrex_core.model import Device
from atrex_core.planning import choose_backend
from atrex_core.plugins import PluginHost
from atrex_core.release import canary
from atrex_core.release.canary import Canaries
from atrex_core.release.claims import Claim, Standing, claim
from atrex_core.release.readings import encodings

_SUBJECT, _RESULTS, _ISOLATION = "worker", "results", "isolation"
_CASES = 5
_TIMEOUT_S = 1800.0
CHANNELS = {
    "environment": "the worker's environment, arguments, modules and mappings",
    "descriptors": "its open descriptors",
    "files": "files below its working folder",
    "objects": "its objects",
    "frames": "the frames of its threads",
    "tracebacks": "its exceptions and their frames",
    "memory": "its readable memory",
    "parent": "the process it was forked from",
}
"""Where nothing private may be, as the spy and as people call it."""


Report = Mapping[str, Any]
"""What a spy has to say."""


@frozen(kw_only=True)
class Place:
    """Where the run is made."""

    backend: Backend
    accelerator: Accelerator
    device: Device


def choose_place(host: PluginHost, backend: str | None, device: str | None) -> Place:
    """Return a backend that can run here, and its device: what is asked for, or the first.

    Raises:
        AtrexError: there is none.
    """
    if backend is not None:
        names = [backend]
    else:
        default = host.default_backend
        names = [default.name] if default else []
        names += [name for name in host.backends.names if name not in names]
    failure: AtrexError | None = None
    for name in names:
        try:
            found = choose_backend(host, name)
            found.check_available()
            return Place(backend=found, **_device(host, found, device))
        except AtrexError as error:
            failure = failure or error
    raise failure or AtrexError("no backend is installed")


def worker_claims(host: PluginHost, place: Place | None) -> Iterator[Claim]:
    """Make the run, and yield what it proves; None takes the first backend that can run here."""
    try:
        place = place or choose_place(host, None, None)
    except AtrexError as error:
        yield claim(_SUBJECT, "the spy ran", [f"not proved: {error}"])
        return
    with tempfile.TemporaryDirectory(prefix="atrex-canary-") as folder:
        canaries = canary.plant(Path(folder, "site"))
        run = Run(Path(folder), place, canaries)
        try:
            run.carry_out()
        except (OSError, subprocess.TimeoutExpired, ValueError) as error:
            yield claim(_SUBJECT, "the spy ran", [f"not proved: {error}"])
            return
        yield from run.claims()


@define(eq=False)
class Run:
    """One run of the command line with the canary pack installed."""

    folder: Path
    place: Place
    canaries: Canaries
    results: dict[tuple[str, str], Any] = field(factory=dict)
    """Evaluations by problem and submission."""
    given_out: dict[str, bytes] = field(factory=dict)
    """Everything that came out of it, by what it is."""

    @property
    def spies(self) -> Sequence[str]:
        """Submissions, by the stage in which each raises what it has found."""
        return ("correctness", "performance") if self.place.accelerator.is_timed else _FIRST

    def carry_out(self) -> None:
        source = Path(__file__).with_name("spy.py").read_text(encoding="utf-8")
        candidates = self.folder / "candidates"
        for later, stage in enumerate(self.spies):
            # To compile, each case once and the first twice; the call after those is timed.
            text = source.replace("\nLAST = 6\n", f"\nLAST = {_CASES + 1 + 2 * later}\n")
            _write(candidates / canary.PLAIN / f"{stage}.py", text)
        _write(candidates / canary.CONTROL / f"{self.spies[0]}.py", source)
        _write(candidates / canary.BROKEN / "honest.py", _HONEST)
        where = ("--backend", self.place.backend.name, "--device", self.place.device.id)
        how = ("--cases", str(_CASES), "--timeout", "300", "--format", "json")
        named = (canary.PLAIN, canary.CONTROL, canary.BROKEN)
        kept = ("--journal", "canary.jsonl", "--problem", ",".join(named))
        done = self._ran("run", str(candidates), *where, *how, *kept)
        self.given_out |= {"the results": done.stdout, "the remarks": done.stderr}
        try:
            listed = json.loads(done.stdout)["evaluations"]
        except (ValueError, KeyError) as error:
            said = done.stderr.decode(errors="replace").strip()
            raise ValueError(f"the run ended with {done.returncode}: {said}") from error
        for found in listed:
            name = str(found["problem"])
            problem = canary.PLAIN if name == self.canaries.name else name
            self.results[problem, str(found["submission"])] = found
        self.given_out["the journal"] = (self.folder / "canary.jsonl").read_bytes()
        self.given_out["the scripts of repro"] = b"".join(
            self._script_of(problem) for problem in (canary.PLAIN, canary.CONTROL)
        )
        self.given_out["the list of problems"] = self._ran("list", "problems").stdout
        chosen = ("--problem", canary.PLAIN, "--problem", canary.CONTROL)
        self._ran("release", "build", "--output", "released", *chosen)
        files = sorted(path for path in (self.folder / "released").rglob("*") if path.is_file())
        self.given_out["a release"] = b"\n".join(path.read_bytes() for path in files)

    def _script_of(self, problem: str) -> bytes:
        """Return the script of repro for a spy's failure, with what it carries encoded."""
        script = self.folder / f"again_{problem}.py"
        self._ran("repro", "canary.jsonl", self._of(problem)["id"], "--output", script.name)
        text = script.read_bytes()
        carried = re.findall(rb'\(\n((?:    "[\w+/=]*"\n)+)\)', text)
        decoded = [base64.b64decode(re.sub(rb'[\s"]', b"", block)) for block in carried]
        return b"\n".join([text, *decoded])

    def claims(self) -> Iterator[Claim]:
        """Yield what is proved, and what was tried and is not claimed."""
        found = {stage: self._report(canary.PLAIN, stage) for stage in self.spies}
        wrong = [f"no report from its {stage} call" for stage, r in found.items() if r is None]
        if not self.canaries.was_alive:
            wrong.append("the private half has not run")
        place = f"{self.place.backend.name} on {self.place.device.id}"
        yield claim(
            _SUBJECT,
            "a spy ran in a real worker while the private half was in use",
            wrong,
            proved=f"{place}; reports of calls in {' and '.join(self.spies)}",
        )
        yield claim(
            _SUBJECT,
            "the spy, and the search of what comes out, see what is there (control)",
            self._unseen(),
            proved=f"{', '.join(canary.CONTROLS)}; results, journal, repro, release",
        )
        reports = [report for report in found.values() if report is not None]
        for channel, called in CHANNELS.items():
            yield self._free(channel, called, reports)
        yield claim(
            _RESULTS,
            "nothing private comes out: results, journal, remarks, repro, list, release",
            self._given_away(),
            proved=f"{sum(map(len, self.given_out.values()))} bytes",
        )
        for name, (channel, text) in TRIED.items():
            yield self._tried(name, channel, text, reports)
        yield self._error()

    def _unseen(self) -> Iterator[str]:
        report = self._report(canary.CONTROL, self.spies[0])
        for channel, digits in self.canaries.control.items():
            if report is None or digits not in _digits_of(report, channel):
                yield f"the spy did not see what the control holds in {channel}"
        for name in ("the results", "the journal", "the scripts of repro", "a release"):
            if self.canaries.text.encode() not in self.given_out[name]:
                yield f"the control's own text was not found in {name}"

    def _free(self, channel: str, called: str, reports: Sequence[Report]) -> Claim:
        leaked = [
            self.canaries.private.get(digits, f"a canary of unknown origin, {digits}")
            for report in reports
            for digits in sorted(_digits_of(report, channel))
        ]
        looked = min((report["looked"].get(channel, 0) for report in reports), default=0)
        if not looked:
            leaked.append("it was not looked at")
        proved = f"{len(self.canaries.private)} canaries looked for in {looked} bytes"
        return claim(_SUBJECT, f"nothing private is in {called}", leaked, proved=proved)

    def _given_away(self) -> Iterator[str]:
        told = self._told_backwards()
        for name, content in self.given_out.items():
            for digits, where in self.canaries.private.items():
                may = where.startswith(f"{canary.BROKEN}/") or (
                    where.startswith(f"{canary.NAMED}: ") and name != "a release"
                )
                forms = [(form, how) for form, how in encodings(digits) if form not in told]
                found = () if may else [how for form, how in forms if form in content]
                if found:
                    yield f"{name}: {where}" + (f", {found[0]}" if found[0] else "")

    def _told_backwards(self) -> set[bytes]:
        """Return the digits that spies report having read, as they report them."""
        reports = (self._report(problem, stage) for problem, stage in list(self.results))
        found = [report["found"] for report in reports if report is not None]
        return {d.encode() for channels in found for listed in channels.values() for d in listed}

    def _tried(self, name: str, channel: str, text: str, reports: Sequence[Report]) -> Claim:
        if not reports:
            return claim(_ISOLATION, text, ["it was not tried"])
        active = f"isolation {self._of(canary.PLAIN)['isolation']!r}"
        if not any(report["readable"].get(name) for report in reports):
            return claim(_ISOLATION, text, [], proved=f"{active}: tried in vain")
        number = max(report["count"].get(channel, 0) for report in reports)
        detail = f"{active} does not prevent it: {number} canaries were read"
        return Claim(subject=_ISOLATION, text=text, standing=Standing.LIMIT, detail=detail)

    def _error(self) -> Claim:
        """Return what became of the text of an error that a private half has raised."""
        text = "the text of an error inside a private half is kept out of results"
        raised = [found for (problem, _), found in self.results.items() if problem == canary.BROKEN]
        errored = any(g["outcome"] == "errored" for r in raised for g in r["gates"].values())
        if not errored:
            return claim(_RESULTS, text, ["none was raised"])
        told = json.dumps(raised)
        if not any(digits in told for digits in self.canaries.private):
            return claim(_RESULTS, text, [], proved="one was raised")
        detail = "reason and traceback of an errored gate hold it: they are the pack author's"
        return Claim(subject=_RESULTS, text=text, standing=Standing.LIMIT, detail=detail)

    def _of(self, problem: str) -> Any:
        found = self.results.get((problem, self.spies[0]))
        if found is None:
            raise ValueError(f"there is no result for {problem!r}")
        return found

    def _report(self, problem: str, stage: str) -> Report | None:
        found = self.results.get((problem, stage))
        details = found["gates"].get(stage, {}).get("details", {}) if found else {}
        match = re.search(r"REPORT (\{.*\})", str(details.get("traceback")))
        if match is None:
            return None
        report: Report = json.loads(match[1])
        return report

    def _ran(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ATREX_")}
        path = [str(self.canaries.site), os.environ.get("PYTHONPATH", "")]
        return subprocess.run(
            [sys.executable, "-P", "-m", "atrex_core", *arguments],
            cwd=self.folder,
            env={
                **kept,
                "PYTHONPATH": os.pathsep.join(filter(None, path)),
                "TMPDIR": str(temporary),
                "XDG_STATE_HOME": str(self.folder / "state"),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )


_FIRST = ("correctness",)
TRIED = {
    "relatives' environment": ("relatives", "a worker cannot read the referee's environment"),
    "relatives' memory": ("relatives", "a worker cannot read the referee's memory"),
    "private files": ("disk", "a worker cannot read private files installed on this machine"),
}
"""What depends on the isolation that is active: as the spy calls it, where it tells, the claim."""

_HONEST = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return 2 * x + y
"""


def _device(host: PluginHost, backend: Backend, name: str | None) -> dict[str, Any]:
    accelerator, device = choose_device(host, backend, name)
    return {"accelerator": accelerator, "device": device}


def _digits_of(report: Report, channel: str) -> set[str]:
    """Return what a report says was found: the spy tells the digits backwards."""
    return {str(digits)[::-1] for digits in report["found"].get(channel, ())}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
