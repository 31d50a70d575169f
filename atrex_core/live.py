"""A progress line on a terminal, by rich's live display; elsewhere a line now and then, if any."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Protocol, TypeVar


class Step(Protocol):
    """What has been done on one workload: an evaluation, or what a lint found."""

    @property
    def problem(self) -> str: ...

    @property
    def workload(self) -> str | None: ...


S = TypeVar("S", bound=Step)


def shown(steps: Iterable[S], total: int, *, every_s: float | None = None) -> Iterator[S]:
    """Yield `steps` unchanged; where stderr is a terminal, draw how far along they are.

    Args:
        steps: What is done, one after the other.
        total: How many there will be.
        every_s: Where stderr is no terminal, say so in a line as often as this.
    """
    if not sys.stderr.isatty():
        yield from steps if every_s is None else _told(steps, total, every_s)
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


def _told(steps: Iterable[S], total: int, every_s: float) -> Iterator[S]:
    """Print a line every so often, however long one step takes."""
    done, ended, began = 0, threading.Event(), time.monotonic()

    def tell() -> None:
        while not ended.wait(every_s):
            with suppress(OSError, ValueError):  # a reader who is gone is no reason to stop
                seconds = time.monotonic() - began
                print(f"{done} of {total} done after {seconds:.0f} s", file=sys.stderr, flush=True)  # noqa: T201

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        for step in steps:
            done += 1
            yield step
    finally:
        ended.set()
        teller.join()
