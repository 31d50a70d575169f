"""`atrex-eval journal show`: what a journal holds, or one evaluation in full."""

from __future__ import annotations

import json
from pathlib import Path

import click

from atrex_core.cli.console import rendered, say, show
from atrex_core.cli.groups import Group
from atrex_core.journal import Journal
from atrex_core.printable import one_line
from atrex_core.report import document, lint_table, table


@click.group("journal", cls=Group)
def command() -> None:
    """Look into a journal."""


@command.command("show")
@click.argument("journal", type=click.Path(path_type=Path))
@click.argument("evaluation_id", required=False)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
def show_journal(journal: Path, evaluation_id: str | None, form: str) -> None:
    """Show every evaluation of JOURNAL, or the one whose id starts with EVALUATION_ID."""
    record = Journal(journal)
    if evaluation_id is not None:
        found = document.entry(record.find(evaluation_id))
        show(json.dumps(found, indent=None if form == "json" else 2, allow_nan=False))
        return
    evaluations = list(record)
    if form == "json":
        entries = [document.entry(evaluation) for evaluation in evaluations]
        show(json.dumps({"schema": 1, "evaluations": entries}, allow_nan=False))
    else:
        lints = list(record.lints().values())
        if evaluations or not lints:
            show(rendered(table.evaluations_table(evaluations, with_id=True)))
        for line in table.reasons(evaluations):
            show(line)
        for line in lint_table.journal_lines(lints):
            show(line)
    for damage in record.damaged:
        say(one_line(f"warning: {damage}"))
