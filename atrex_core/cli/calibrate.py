"""`atrex-eval calibrate`: measure what this very device reaches, keep it, and show it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress

import click

from atrex_core.calibration import cache
from atrex_core.calibration.process import CalibratingProcess
from atrex_core.cli.console import rendered, say, show
from atrex_core.cli.stopping import stoppable
from atrex_core.config import load_settings
from atrex_core.device_choice import devices_of, find_device
from atrex_core.errors import AtrexError, ExitCode, HarnessError, NothingToDo, Unavailable
from atrex_core.interfaces import Accelerator
from atrex_core.model import Device
from atrex_core.model.calibration import Calibration
from atrex_core.plugins import PluginHost
from atrex_core.printable import many, one_line
from atrex_core.processes.messages import CalibrationSetup, CalibrationStep
from atrex_core.report import calibration as report

_INTERRUPTED = "nothing was kept of it; an earlier calibration is as it was"


@click.command("calibrate")
@click.option("--device", metavar="ID", help="See `list devices`. Default: the first real one.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option(
    "--minutes",
    type=click.FloatRange(0.001, 120.0),
    default=1.0,
    show_default=True,
    help="Begin no further figure after so long.",
)
@click.option("--show", "only_shown", is_flag=True, help="Print what is kept; measure nothing.")
@click.option("--disable-plugin", "disabled", multiple=True, metavar="NAME")
def command(
    device: str | None, form: str, minutes: float, only_shown: bool, disabled: tuple[str, ...]
) -> int:
    """Measure bandwidth, matrix products and the launch floor of a device.

    The figures are kept for this very device, its driver and torch: `run` sets its bounds beside
    them, and never measures them by itself. Measuring again replaces them.
    """
    given = {"device": device, "disabled_plugins": disabled}
    settings = load_settings(given).settings
    host = PluginHost.discover(disabled=settings.disabled_plugins)
    accelerator, found = _device(host, settings.device)
    if found.virtual or not accelerator.is_timed:
        raise Unavailable(
            f"device {found.id!r} never gives a time",
            hint="name a real one; see `atrex-eval list devices`",
        )
    setup = CalibrationSetup(device=found.id, disabled_plugins=settings.disabled_plugins)
    folder = cache.state_folder(os.environ)
    with (
        stoppable(_INTERRUPTED),
        CalibratingProcess.start(setup, accelerator.worker_environment(found)) as process,
    ):
        identity = process.identity()
        if only_shown:
            kept = cache.load(folder, identity)
            if kept is None:
                raise NothingToDo(
                    f"no calibration is kept for {found.id!r}, {identity.name}, with driver "
                    f"{identity.driver} and torch {identity.torch}",
                    hint=f"atrex-eval calibrate --device {found.id}",
                )
            _show(kept, form)
            return ExitCode.OK
        for _ in _drawn(process.measure(minutes)):
            pass
        calibration = process.calibration
    if calibration is None:
        raise HarnessError("the process that calibrates ended without a figure")
    _show(calibration, form)  # before it is kept: a full disk must not hide it
    path = cache.save(folder, calibration)
    if calibration.unbegun:
        say(f"{many(calibration.unbegun, 'figure')} not begun: give it more --minutes")
    if form == "table":
        say(f"kept in {one_line(str(path), 5000)}")
    return ExitCode.OK


def _device(host: PluginHost, name: str | None) -> tuple[Accelerator, Device]:
    """Return the device that was asked for; else the first one, the host last."""
    if name is not None:
        return find_device(host, name)
    timed = [accelerator for accelerator in host.accelerators if accelerator.is_timed]
    for accelerator in sorted(timed, key=lambda a: a.is_synchronous):
        with suppress(AtrexError):  # a broken one is no reason not to take the next
            for device in devices_of(host, accelerator):
                return accelerator, device
    raise Unavailable(
        "no device here gives times", hint="`atrex-eval list devices` shows what there is"
    )


def _show(calibration: Calibration, form: str) -> None:
    if form == "json":
        show(json.dumps(report.document(calibration), allow_nan=False))
        return
    tables = [report.streams_table(calibration), report.products_table(calibration)]
    tables = [table for table in (*tables, report.floors_table(calibration)) if table.row_count]
    parts = [report.heading(calibration), *map(rendered, tables), *report.remarks(calibration)]
    show("\n\n".join(parts))


def _drawn(steps: Iterable[CalibrationStep]) -> Iterator[CalibrationStep]:
    """Yield `steps`; where stderr is a terminal, draw how far along they are."""
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
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None)
        for step in steps:
            progress.update(task, completed=step.done, total=step.total, description=step.what)
            yield step
