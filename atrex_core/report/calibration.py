"""What a calibration found, as plain JSON values and as tables. Imports rich only when called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from atrex_core import codec
from atrex_core.model.calibration import Calibration, Measured
from atrex_core.printable import one_line

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA: Final = 1
_GIGA, _TERA = 1e9, 1e12
_METHOD_WIDTH: Final = 60
_MOST_METHOD: Final = 2 * _METHOD_WIDTH

Json = Mapping[str, Any]


def document(calibration: Calibration) -> Json:
    """Return the document that `--format json` prints."""
    envelope = calibration.envelope
    return {
        "schema": SCHEMA,
        "calibration": {
            "device": calibration.device.id,
            "device_name": calibration.device.name,
            "identity": codec.unstructure(calibration.identity),
            "versions": dict(calibration.versions),
            "profile": calibration.profile.name if calibration.profile else None,
            "ceiling": str(calibration.profile.ceiling) if calibration.profile else None,
            "taken_at": calibration.taken_at,
            "seconds": calibration.seconds,
            "streams": [
                {
                    "load": str(reading.load),
                    "regime": str(reading.regime),
                    "moved_bytes": reading.moved_bytes,
                    "bytes_per_s": _figure(reading.measured),
                    "share_of_profile": calibration.memory_share(reading),
                    "reason": reading.reason,
                }
                for reading in calibration.streams
            ],
            "products": [
                {
                    "path": str(reading.path),
                    "edge": reading.edge,
                    "flops": _figure(reading.measured),
                    "share_of_profile": calibration.arithmetic_share(reading),
                    "reason": reading.reason,
                }
                for reading in calibration.products
            ],
            "floors": [
                {
                    "method": str(reading.method),
                    "launch_floor_us": _figure(reading.measured),
                    "reason": reading.reason,
                }
                for reading in calibration.floors
            ],
            "envelope": None
            if envelope is None
            else {
                "bandwidth_bytes_per_s": envelope.bandwidth_bytes_per_s.value,
                "peak_flops": {str(p): f.value for p, f in envelope.peak_flops.items()},
            },
            "implausible": list(calibration.implausible),
        },
    }


def heading(calibration: Calibration) -> str:
    """Return what was measured, when, and with what."""
    identity, profile = calibration.identity, calibration.profile
    beside = f"profile {profile.name} ({profile.ceiling})" if profile else "no hardware profile"
    return one_line(
        f"{calibration.device.id}: {identity.name} ({identity.uuid}), driver {identity.driver}, "
        f"torch {identity.torch}, {calibration.taken_at}, {calibration.seconds:.0f} s; {beside}"
    )


def remarks(calibration: Calibration) -> Iterator[str]:
    """Yield what a reader should know of the figures."""
    profile = calibration.profile
    if profile is not None:
        printed = profile.bandwidth_bytes_per_s.value / _GIGA
        yield f"profile's bandwidth: {printed:.5g} GB/s; its peaks are in `list profiles`"
    for what in calibration.implausible:
        yield f"left out of the envelope, since it cannot be: {one_line(what)}"


def streams_table(calibration: Calibration) -> Table:
    """Return one row for each load inside the cache and past it."""
    table = _table("load", "arrays", "MiB", "GB/s")
    for reading in calibration.streams:
        moved = "" if reading.moved_bytes is None else f"{reading.moved_bytes / 2**20:.1f}"
        row = (str(reading.load), str(reading.regime), moved)
        share = calibration.memory_share(reading)
        _add(table, row, reading.measured, _GIGA, share, reading.reason)
    return table


def products_table(calibration: Calibration) -> Table:
    """Return one row for each path and size."""
    table = _table("products", "size", "", "TFLOP/s")
    for reading in calibration.products:
        size = "" if reading.edge is None else f"{reading.edge}^3"
        unit = "TOP/s" if "int" in reading.path else ""
        share = calibration.arithmetic_share(reading)
        row = (str(reading.path), size, unit)
        _add(table, row, reading.measured, _TERA, share, reading.reason)
    return table


def floors_table(calibration: Calibration) -> Table:
    """Return one row for each way to time the smallest operation."""
    table = _table("launch floor", "", "", "us")
    for reading in calibration.floors:
        _add(table, (str(reading.method), "", ""), reading.measured, 1.0, None, reading.reason)
    return table


def _figure(measured: Measured | None) -> Json | None:
    if measured is None:
        return None
    return {**codec.unstructure(measured), "spread": measured.spread}


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < 2 else "right", no_wrap=True)
    for column in ("interval", "spread", "of profile"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("method, or why there is no figure", max_width=_METHOD_WIDTH)
    return table


def _add(
    table: Table,
    row: tuple[str, ...],
    measured: Measured | None,
    unit: float,
    share: float | None,
    reason: str | None,
) -> None:
    from rich.text import Text

    figures = ("", "", "")
    if measured is not None:
        known = measured.low is not None and measured.high is not None
        bounds = f"{_short(measured.low, unit)}-{_short(measured.high, unit)}" if known else ""
        spread = "" if measured.spread is None else f"{measured.spread:.1%}"
        figures = (_short(measured.value, unit), bounds, spread)
    percent = "" if share is None else f"{share:.1%}"
    why = one_line((measured.method if measured else reason) or "", _MOST_METHOD)
    table.add_row(*map(Text, (*row, *figures, percent, why)))


def _short(value: float | None, unit: float) -> str:
    return "" if value is None else f"{value / unit:.4g}"
