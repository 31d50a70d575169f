"""`atrex-eval repro JOURNAL ID`: write a script that shows an evaluation's failure again."""

from __future__ import annotations

from pathlib import Path

import click

from atrex_core import repro
from atrex_core.errors import UsageError
from atrex_core.journal import Journal
from atrex_core.plugins import PluginHost


@click.command("repro")
@click.argument("journal", type=click.Path(path_type=Path))
@click.argument("evaluation_id", metavar="ID")
@click.option("--output", type=click.Path(path_type=Path), help="Default: repro_ID.py here.")
def command(journal: Path, evaluation_id: str, output: Path | None) -> None:
    """Write a standalone script for the evaluation of JOURNAL whose id starts with ID.

    It regenerates the failing inputs from the recorded seed, runs the candidate on them and
    prints where its answer departs from the public reference.
    """
    record = Journal(journal)
    evaluation = record.find(evaluation_id)
    candidates = record.candidates()
    if evaluation.digest not in candidates:
        raise UsageError(
            f"{str(journal)!r} does not hold the source of candidate {evaluation.digest[:12]}",
            hint="a journal is whole when it is copied or concatenated as it was written",
        )
    host = PluginHost.discover()
    text = repro.script(
        evaluation,
        candidates[evaluation.digest].content,
        host.problems[evaluation.problem],
        host.backends[evaluation.backend],
    )
    path = output or Path(f"repro_{evaluation.id[:10]}.py")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {str(path)!r}: {(error.strerror or '').lower()}",
            hint="use --output PATH",
        ) from error
    click.echo(str(path))
