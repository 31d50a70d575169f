"""A progress line on a terminal. Sole user of rich's live display; silent everywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar


class Step(Protocol):
    """What has been done on one workload: an evaluation, or what a lint found."""

    @property
    def problem(self) -> str: ...

    @property
    def workload(self) -> str | None: ...


S = TypeVar("S", bound=Step)


def shown(steps: Iterable[S], total: int) -> Iterator[S]:
    """Yield `steps` unchanged; where stderr is a terminal, draw how far along they are."""
    if not sys.stderr.isatty():
        yield from steps
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
        for step in steps:
            progress.update(task, advance=1, description=f"{step.problem} {step.workload or ''}")
            yield step
