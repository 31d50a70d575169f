"""`atrex-eval repro JOURNAL ID`: write a script that shows an evaluation's failure again."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from atrex_core import repro
from atrex_core.cli.console import show
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
    path = output or Path(f"repro_{re.sub(r'[^A-Za-z0-9._-]', '_', evaluation.id[:10])}.py")
    try:
        _keep(path, journal)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write {str(path)!r}: {(error.strerror or '').lower()}",
            hint="use --output PATH",
        ) from error
    show(os.fsencode(path))


def _keep(path: Path, journal: Path) -> None:
    """Refuse to overwrite what cannot be written again."""
    if not path.is_file():
        return
    if path.samefile(journal):
        raise UsageError(
            f"--output {str(path)!r} is the journal itself", hint="choose another --output"
        )
    content = path.read_bytes()
    if content and not repro.is_script(content):
        raise UsageError(
            f"{str(path)!r} exists and is not a script that repro has written",
            hint="choose another --output, or remove the file",
        )
