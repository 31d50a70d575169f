"""`atrex-eval [run] [CANDIDATE...]`: evaluate, then report."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from attrs import evolve

from atrex_core import live, scoring
from atrex_core.cli.console import rendered, say
from atrex_core.cli.output import check_output, deliver, keep_candidates
from atrex_core.config import Settings, load_settings
from atrex_core.errors import AtrexError, ExitCode, UnknownName, UsageError
from atrex_core.model import Evaluation, Gate, Protocol, RunCost, Scale, Verdict
from atrex_core.planning import Plan
from atrex_core.printable import one_line
from atrex_core.report import cost as costs
from atrex_core.report import document, table
from atrex_core.session import Session
from atrex_core.suggest import did_you_mean

FORMATS = ("table", "json")

log = logging.getLogger(__name__)


@click.command("run")
@click.argument("candidates", nargs=-1, metavar="[CANDIDATE]...", type=click.Path(path_type=Path))
@click.option("--backend", metavar="NAME", help="The DSL the candidates are written in.")
@click.option("--problem", multiple=True, metavar="GLOB", help="Only these problems.")
@click.option("--workload", multiple=True, metavar="GLOB", help="Only these workload ids.")
@click.option("--scale", metavar="|".join(Scale), help="Default: what the device is meant for.")
@click.option(
    "--device",
    multiple=True,
    metavar="ID|GLOB",
    help="See `list devices`; also virtual:ARCH. Several share the work.",
)
@click.option("--target", "targets", multiple=True, metavar="ARCH", help="Also compile for these.")
@click.option("--protocol", metavar="|".join(Protocol))
@click.option("--until", metavar="GATE", help=f"Stop after a gate: {', '.join(Gate)}.")
@click.option("--journal", type=click.Path(path_type=Path), help="Append every result here.")
@click.option("--resume", is_flag=True, default=None, help="Skip what the journal already holds.")
@click.option("--profile", metavar="NAME|FILE", help="Score against another hardware profile.")
@click.option("--timeout", "timeout_s", type=float, metavar="S", help="Per request of a worker.")
@click.option("--cases", type=int, metavar="N", help="Correctness cases per workload, at least.")
@click.option("--memory-limit", "memory_limit_bytes", type=int, metavar="BYTES")
@click.option("--disable-plugin", "disabled_plugins", multiple=True, metavar="NAME")
@click.option("--format", "format", metavar="|".join(FORMATS))
@click.option("--output", type=click.Path(path_type=Path), help="Write the report to a file.")
@click.option("-v", "--verbose", is_flag=True, help="List every evaluation, however many.")
def command(candidates: tuple[Path, ...], verbose: bool, **flags: Any) -> int:
    """Evaluate candidates: compile, correctness, performance, authenticity.

    CANDIDATE is a file named after its problem, or a folder of such files. Without one, the
    kernels that ship with the backend run.
    """
    settings = load_settings(flags).settings
    if settings.format not in FORMATS:
        hint = did_you_mean(settings.format, FORMATS)
        raise UnknownName(f"no format is named {settings.format!r}", hint=hint)
    if settings.resume and settings.journal is None:
        raise UsageError("--resume needs a journal", hint="add --journal FILE")
    check_output(settings.output, settings.journal)
    if settings.journal is None:
        settings = evolve(settings, journal=default_journal())
    evaluations: list[Evaluation] = []
    with Session(settings) as session:
        planned = session.plan(candidates)
        keep_candidates(settings.output, candidates or (planned.backend.kernels,))
        evaluations += session.earlier(planned)
        try:
            with closing(session.run(planned)) as fresh:
                for evaluation in live.shown(fresh, total=session.remaining(planned)):
                    evaluations.append(evaluation)
        except (KeyboardInterrupt, AtrexError) as end:
            evaluations += session.late
            if evaluations:  # what was found out is not lost
                if isinstance(end, AtrexError):  # it may be the journal that failed
                    settings = evolve(settings, journal=None)
                _report(settings, planned, evaluations, session.cost, verbose=verbose)
            raise
    _report(settings, planned, evaluations, session.cost, verbose=verbose)
    return exit_code(evaluations)


def default_journal() -> Path | None:
    """Return a new file in the user's state folder, so that no result is ever only on a screen.

    None where that folder cannot be written; the run then goes on without a journal.
    """
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    except RuntimeError:  # neither HOME nor an entry in the list of users
        log.warning("no journal is kept: there is no home folder; use --journal")
        return None
    folder = Path(state) / "atrex-eval"
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:
        log.warning("no journal is kept: %s cannot be written; use --journal", folder)
        return None
    return folder / f"{now}-{os.getpid()}.jsonl"


def exit_code(evaluations: Sequence[Evaluation]) -> ExitCode:
    """Fold outcomes: our fault first, then the candidates'."""
    outcomes = {evaluation.outcome for evaluation in evaluations}
    if Verdict.ERRORED in outcomes:
        return ExitCode.HARNESS_ERROR
    if Verdict.FAILED in outcomes:
        return ExitCode.CANDIDATE_FAILED
    return ExitCode.OK


def _report(
    settings: Settings,
    planned: Plan,
    evaluations: Sequence[Evaluation],
    cost: RunCost,
    *,
    verbose: bool,
) -> None:
    selection = scoring.Selection.of(
        planned.pack, planned.problems, is_partial=bool(settings.problem or settings.workload)
    )
    summary = scoring.summarise(evaluations, selection)
    if settings.format == "json":
        text = json.dumps(document.document(evaluations, summary, cost), allow_nan=False)
    else:
        text = _tables(evaluations, summary, cost, verbose=verbose)
    journal = settings.journal
    kept = f"the results are in {str(journal)!r}" if journal else "see also --journal"
    deliver(text, settings.output, otherwise=kept)
    if settings.format != "json" and settings.journal is not None:
        say(f"journal: {one_line(str(settings.journal), 5000)}")


def _tables(
    evaluations: Sequence[Evaluation],
    summary: scoring.Summary,
    cost: RunCost,
    *,
    verbose: bool,
) -> str:
    listed = list(evaluations)
    if len(listed) > table.MOST_ROWS and not verbose:
        listed = [e for e in listed if e.outcome is not Verdict.PASSED][: table.MOST_ROWS]
    lines = [rendered(table.evaluations_table(listed)), ""] if listed else []
    lines += [rendered(table.operators_table(summary)), ""]
    lines += table.reasons(evaluations)
    lines += table.headline(summary, evaluations)
    lines += costs.lines(cost)
    return "\n".join(lines)
