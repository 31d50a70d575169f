"""`atrex-eval journal show`: what a journal holds, or one evaluation in full."""

from __future__ import annotations

import json
from pathlib import Path

import click

from atrex_core.cli.console import console
from atrex_core.journal import Journal
from atrex_core.report import document, table


@click.group("journal")
def command() -> None:
    """Look into a journal."""


@command.command("show")
@click.argument("journal", type=click.Path(path_type=Path))
@click.argument("evaluation_id", required=False)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
def show(journal: Path, evaluation_id: str | None, form: str) -> None:
    """Show every evaluation of JOURNAL, or the one whose id starts with EVALUATION_ID."""
    record = Journal(journal)
    if evaluation_id is not None:
        found = document.entry(record.find(evaluation_id))
        click.echo(json.dumps(found, indent=None if form == "json" else 2, allow_nan=False))
        return
    evaluations = list(record)
    if form == "json":
        entries = [document.entry(evaluation) for evaluation in evaluations]
        click.echo(json.dumps({"schema": 1, "evaluations": entries}, allow_nan=False))
    else:
        console().print(table.evaluations_table(evaluations, with_id=True))
        for line in table.reasons(evaluations):
            click.echo(line)
    for damage in record.damaged:
        click.echo(f"warning: {damage}", err=True)
