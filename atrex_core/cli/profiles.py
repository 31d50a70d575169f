"""`atrex-eval list profiles [NAME]...`: an overview of all, or every figure of some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from atrex_core.cli.console import rendered
from atrex_core.interfaces import CalibratedProfile
from atrex_core.model import ArithmeticPath, Figure, HardwareProfile
from atrex_core.plugins.host import Profile

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, Any]

_WIDTH: Final = 100
_DRIVER_NAMES_WIDTH: Final = 22
_TERA: Final = 1e12
_OVERVIEW: Final = {
    "TB/s": ("bandwidth_bytes_per_s", _TERA),
    "MiB": ("last_level_cache_bytes", 2.0**20),
    "fp32": (str(ArithmeticPath.FP32_VECTOR), _TERA),
    "bf16": (str(ArithmeticPath.BF16_MATRIX), _TERA),
    "fp8": (str(ArithmeticPath.FP8_MATRIX), _TERA),
}
"""Column: which figure, and its unit."""
_UNITS: Final = {
    "bandwidth_bytes_per_s": (1e9, "GB/s"),
    "last_level_cache_bytes": (2.0**20, "MiB"),
    "memory_bytes": (2.0**30, "GiB"),
    "compute_units": (1.0, ""),
    "clock_hz": (1e6, "MHz"),
    "matrix_clock_hz": (1e6, "MHz"),
}
_CAPTION: Final = (
    "\nTB/s: device memory; MiB: last-level cache; the rest are dense peaks in TFLOP/s.\n"
    "`atrex-eval list profiles NAME` shows every figure with its source; --format json, all."
)


def row(profile: Profile) -> dict[str, Any]:
    """Return what is told of a profile, without where it came from."""
    match = profile.match
    known: dict[str, Any] = {
        "name": profile.name,
        "vendor": match.vendor if match else None,
        "arch": match.arch if match else None,
        "driver_names": list(match.names) if match else [],
        "generic_names": list(match.generic_names) if match else [],
    }
    if isinstance(profile, CalibratedProfile):
        nothing: dict[str, Any] = {"peak_flops": {}, "figures": {}, "notes": []}
        return known | nothing | {"ceiling": "measured", "bandwidth_bytes_per_s": None}
    return known | {
        "ceiling": str(profile.ceiling),
        "bandwidth_bytes_per_s": profile.bandwidth_bytes_per_s.value,
        "peak_flops": {str(path): f.value for path, f in profile.peak_flops.items()},
        "figures": {
            name: {
                "value": figure.value,
                "source": figure.source,
                "confidence": str(figure.confidence),
            }
            for name, figure in _figures(profile)
        },
        "notes": list(profile.notes),
        "digest": profile.digest,
    }


def _figures(profile: HardwareProfile) -> Iterator[tuple[str, Figure]]:
    yield from ((str(path), figure) for path, figure in profile.peak_flops.items())
    for name in _UNITS:
        figure = getattr(profile, name)
        if figure is not None:
            yield name, figure


def overview(rows: list[Row]) -> str:
    """Return one line or two for each profile, no wider than a terminal of 100 columns."""
    table = _table()
    for column in ("name", "vendor", "arch"):
        table.add_column(column)
    table.add_column("driver names", max_width=_DRIVER_NAMES_WIDTH)
    for column in _OVERVIEW:
        table.add_column(column, justify="right")
    for row in rows:
        _add(table, *_overview(row))
    return rendered(table) + _CAPTION


def _overview(row: Row) -> Iterator[str]:
    yield from (row["name"], row["vendor"] or "", row["arch"] or "")
    yield "\n".join(row["driver_names"]) or "measured on first use"
    for name, unit in _OVERVIEW.values():
        figure = row["figures"].get(name)
        yield f"{figure['value'] / unit:.5g}" if figure else ""


def details(rows: list[Row]) -> str:
    """Return everything that is known of each profile."""
    return "\n\n".join("\n".join(_details(row)) for row in rows)


def _details(row: Row) -> Iterator[str]:
    facts = [row["name"], row["vendor"] or "", row["arch"] or "", f"ceiling: {row['ceiling']}"]
    yield "  ".join(fact for fact in facts if fact)
    yield from (f"driver name: {name}" for name in row["driver_names"])
    if not row["figures"]:
        yield "measured on first use"
        return
    table = _table()
    for column in ("figure", "value", "confidence"):
        table.add_column(column, justify="right" if column == "value" else "left")
    table.add_column("source", justify="right")
    sources: dict[str, int] = {}
    for name, figure in row["figures"].items():
        unit, symbol = _UNITS.get(name, (_TERA, "TOP/s" if "int" in name else "TFLOP/s"))
        number = sources.setdefault(figure["source"], len(sources) + 1)
        value = f"{figure['value'] / unit:.6g} {symbol}".rstrip()
        _add(table, name, value, figure["confidence"], f"[{number}]")
    yield rendered(table)
    yield from (_filled(f"[{number}] ", source) for source, number in sources.items())
    yield from (_filled("note: ", note) for note in row["notes"])


def _filled(label: str, text: str) -> str:
    import textwrap

    return textwrap.fill(text, _WIDTH, initial_indent=label, subsequent_indent=" " * len(label))


def _table() -> Table:
    from rich.table import Table

    return Table(box=None, pad_edge=False, header_style="bold")


def _add(table: Table, *cells: str) -> None:
    from rich.text import Text

    table.add_row(*map(Text, cells))
