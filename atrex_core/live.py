"""A progress line on a terminal. Sole user of rich's live display; silent everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from atrex_core.model import Evaluation


def shown(evaluations: Iterable[Evaluation], total: int) -> Iterator[Evaluation]:
    """Yield `evaluations` unchanged; where stderr is a terminal, draw how far along they are."""
    if not sys.stderr.isatty():
        yield from evaluations
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting", total=total)
        for evaluation in evaluations:
            progress.update(
                task, advance=1, description=f"{evaluation.problem} {evaluation.workload}"
            )
            yield evaluation
