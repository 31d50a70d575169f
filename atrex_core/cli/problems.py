"""`atrex-eval problems lint | show`: does a problem tell right from wrong, and what is it?"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click
from attrs import frozen

from atrex_core import live
from atrex_core.cli.console import rendered, say, show
from atrex_core.cli.groups import Group
from atrex_core.cli.output import check_output, deliver, keep_candidates
from atrex_core.cli.supervisor import sweep
from atrex_core.config import Settings, changed, load_settings
from atrex_core.errors import AtrexError, ExitCode, NothingToDo, UnknownName, UsageError
from atrex_core.journal import LintRecord
from atrex_core.linting import Linting, LintPlan, LintRequest, conclude
from atrex_core.model import Protocol, Scale
from atrex_core.model.lint import Fate, Finding
from atrex_core.planning import check_problem
from atrex_core.plugins import PluginHost
from atrex_core.plugins.blame import blaming
from atrex_core.printable import many, one_line
from atrex_core.report import lint_table, problem_sheet
from atrex_core.report.lint_summary import summarise
from atrex_core.suggest import did_you_mean, natural

FORMATS = ("table", "json", "markdown")
_TIMEOUT_S = 120.0
_PROGRESS_S = 30.0
_MOST_SEED = 2**48


@click.group("problems", cls=Group)
def command() -> None:
    """Check that problems tell right from wrong, and look at what they ask."""


@command.command("lint")
@click.argument("globs", nargs=-1, metavar="[GLOB]...")
@click.option(
    "--protocol", "protocols", multiple=True, metavar="|".join(Protocol), help="Default: each."
)
@click.option("--scale", metavar="|".join(Scale), help="Default: what the device is meant for.")
@click.option("--workload", "workloads", multiple=True, metavar="GLOB", help="Only these ids.")
@click.option(
    "--spread",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only N workloads of each problem, from the smallest to the largest.",
)
@click.option("--device", metavar="ID", help="See `list devices`. Default: the host's CPU.")
@click.option("--backend", metavar="NAME", help="Also try the kernels that ship with it.")
@click.option("--cases", type=int, metavar="N", help="Cases per workload, at least.")
@click.option("--seed", type=click.IntRange(0, _MOST_SEED), metavar="N", help="Default: drawn.")
@click.option("--jobs", type=int, metavar="N", help="Processes. Default: what the device can do.")
@click.option("--timeout", "timeout_s", type=float, metavar="S", help="For each thing tried.")
@click.option("--journal", type=click.Path(path_type=Path), help="Append every result here.")
@click.option("--resume", is_flag=True, help="Skip what the journal already holds.")
@click.option("--format", "form", default="table", metavar="|".join(FORMATS))
@click.option("--output", type=click.Path(path_type=Path), help="Write the report to a file.")
@click.option("--disable-plugin", "disabled", multiple=True, metavar="NAME")
@click.option("-v", "--verbose", is_flag=True, help="Also list what is as it should be.")
def lint(form: str, output: Path | None, verbose: bool, **flags: Any) -> int:
    """Try right and wrong answers on the problems that match GLOB; without one, on all.

    Wrong implementations must be refused, honest ones accepted, and what a problem says of itself
    must hold. Under the paper protocol survivors are for information, unless it is asked for alone.

    Exits 0 when all is well, 1 when a wrong answer passes, a right one is refused or a check fails,
    3 when a problem's code raises, crashes or hangs.
    """
    if form not in FORMATS:
        raise UnknownName(f"no format is named {form!r}", hint=did_you_mean(form, FORMATS))
    request = _request(flags)
    check_output(output, request.journal)
    sweep()
    started = time.monotonic()
    records: list[LintRecord] = []
    with Linting(request) as linting:
        planned = linting.plan()
        keep_candidates(output, planned.kernel_files)
        report = _Report(planned, request, form, output, verbose)
        records += linting.earlier(planned)
        fresh = linting.run(planned)
        try:
            total = linting.remaining(planned)
            for record in live.shown(fresh, total=total, every_s=_PROGRESS_S):
                records.append(record)
        except (KeyboardInterrupt, AtrexError):
            linting.close()
            if records:  # what was found out is not lost
                report.write(records, time.monotonic() - started)
            raise
    findings = report.write(records, time.monotonic() - started)
    return exit_code(findings, request.protocols)


@command.command("show")
@click.argument("name", metavar="NAME")
@click.option("--workload", "globs", multiple=True, metavar="GLOB", help="Default: the first.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option("--disable-plugin", "disabled", multiple=True, metavar="NAME")
def show_problem(name: str, globs: tuple[str, ...], form: str, disabled: tuple[str, ...]) -> None:
    """Show what is known of problem NAME: tensors, regimes, rules, cost, implementations."""
    disabled = load_settings({"disabled_plugins": disabled}).settings.disabled_plugins
    sweep()
    host = PluginHost.discover(disabled=disabled)
    problem = host.problems[name]
    check_problem(host, problem)
    ids = [workload.id for workload in problem.workloads]
    chosen = sorted((i for i in ids if any(fnmatchcase(i, g) for g in globs)), key=natural)
    if globs and not chosen:
        raise NothingToDo(
            f"{name!r} has no workload that matches {', '.join(globs)!r}",
            hint=did_you_mean(globs[0].strip("*?"), ids),
        )
    with blaming(host.problems, problem.name):
        sheet, *more = [problem_sheet.sheet(problem, id_) for id_ in chosen or ids[:1]] or [
            problem_sheet.sheet(problem)  # which says that there is none
        ]
        if form == "json":
            rest = [{key: other[key] for key in problem_sheet.OF_A_WORKLOAD} for other in more]
            document = {"schema": 1, "problem": sheet, **({"more": rest} if rest else {})}
            text = json.dumps(document, allow_nan=False)
        else:
            lines = [*problem_sheet.lines(sheet)]
            for other in more:
                lines += problem_sheet.workload_lines(other)
            text = "\n".join(lines)
    show(text)


def exit_code(findings: Sequence[Finding], protocols: Sequence[Protocol]) -> ExitCode:
    """Fold fates: what broke first, then what the rules that count get wrong."""
    if any(found.fate is Fate.BROKEN for found in findings):
        return ExitCode.HARNESS_ERROR
    counted = counted_protocol(protocols)
    if any(found.fate.is_fault and found.protocol is counted for found in findings):
        return ExitCode.CANDIDATE_FAILED
    return ExitCode.OK


def counted_protocol(protocols: Sequence[Protocol]) -> Protocol:
    """Return the protocol whose faults are faults: a published one only where it stands alone."""
    return Protocol.PAPER if set(protocols) == {Protocol.PAPER} else Protocol.STRICT


@frozen
class _Report:
    """How the user wants to be told."""

    planned: LintPlan
    request: LintRequest
    form: str
    output: Path | None
    verbose: bool

    def write(self, records: Sequence[LintRecord], seconds: float) -> list[Finding]:
        """Report what was found; return it."""
        ordered = sorted(records, key=_place)
        more = [*self.planned.unusable, *conclude(self.planned, ordered)]
        findings = [*(found for record in ordered for found in record.findings), *more]
        summary = summarise(ordered, more, seconds)
        match self.form:
            case "json":
                document = lint_table.document(findings, summary, self._facts())
                text = json.dumps(document, allow_nan=False)
            case "markdown":
                text = lint_table.markdown(findings, summary)
            case _:
                lines = [rendered(lint_table.problems_table(summary)), ""]
                counted = counted_protocol(self.request.protocols)
                lines += lint_table.complaints(findings, counted, verbose=self.verbose)
                text = "\n".join([*lines, lint_table.closing(summary), self._said()])
        deliver(text, self.output, otherwise="see also --output and --journal")
        if self.form == "markdown":
            say(self._said())
        return findings

    def _facts(self) -> Mapping[str, Any]:
        planned = self.planned
        return {
            "seed": planned.seed,
            "cases": self.request.cases,
            "scale": str(planned.scale),
            "device": planned.device.id,
            "device_name": planned.device.name,
        }

    def _said(self) -> str:
        device = self.planned.device
        return one_line(
            f"seed {self.planned.seed}, at least {many(self.request.cases, 'case')}, "
            f"{self.planned.scale} scale, device {device.id} ({device.name})"
        )


def _request(flags: Mapping[str, Any]) -> LintRequest:
    """Return a typed request, or the error that a setting of the same name gives."""
    disabled = load_settings({"disabled_plugins": flags["disabled"]}).settings.disabled_plugins
    typed = changed(
        Settings(),
        {
            name: flags[name]
            for name in ("scale", "device", "backend", "cases", "jobs", "timeout_s", "journal")
        },
    )
    if flags["resume"] and typed.journal is None:
        raise UsageError("--resume needs a journal", hint="add --journal FILE")
    protocols = [changed(Settings(), {"protocol": p}).protocol for p in flags["protocols"]]
    return LintRequest(
        problems=flags["globs"],
        workloads=flags["workloads"],
        protocols=tuple(dict.fromkeys(protocols)),
        scale=typed.scale,
        spread=flags["spread"],
        device=typed.device,
        backend=typed.backend,
        cases=typed.cases,
        seed=flags["seed"],
        jobs=None if flags["jobs"] is None else typed.jobs,
        timeout_s=_TIMEOUT_S if flags["timeout_s"] is None else typed.timeout_s,
        journal=typed.journal,
        resume=flags["resume"],
        disabled_plugins=disabled,
    )


def _place(record: LintRecord) -> tuple[str, bool, list[tuple[bool, int, str]], str, bool]:
    """Order records as a reader looks for them, whatever order they were made in."""
    task = record.task
    is_part, is_kernel = task.workload is not None, record.submission is not None
    return task.problem, is_part, natural(task.workload or ""), task.protocol, is_kernel
