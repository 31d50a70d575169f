"""`atrex-eval list KIND`: what is installed, where it came from, and what was set aside."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from atrex_core.errors import UnknownName
from atrex_core.interfaces import CalibratedProfile
from atrex_core.model import Origin, Scale
from atrex_core.plugins import PluginHost
from atrex_core.suggest import did_you_mean

Row = Mapping[str, Any]


@click.command("list")
@click.argument("kind", metavar="KIND")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option("--disable-plugin", "disabled", multiple=True, metavar="NAME")
def command(kind: str, form: str, disabled: tuple[str, ...]) -> None:
    """List KIND: backends, accelerators, devices, profiles, problems or plugins."""
    if kind not in _KINDS:
        raise UnknownName(f"cannot list {kind!r}", hint=did_you_mean(kind, _KINDS))
    host = PluginHost.discover(disabled=disabled)
    rows = _KINDS[kind](host)
    if form == "json":
        click.echo(json.dumps({"schema": 1, kind: rows}, allow_nan=False))
        return
    _print_table(rows)
    for broken in host.quarantined:
        click.echo(str(broken), err=True)


def _backends(host: PluginHost) -> list[Row]:
    return [
        {
            "name": b.name,
            "summary": b.summary,
            "accelerators": list(b.accelerators),
            "virtual_targets": list(b.virtual_targets),
            "targets": list(b.targets),
            **_from(host.backends, b.name),
        }
        for b in host.backends
    ]


def _accelerators(host: PluginHost) -> list[Row]:
    rows: list[Row] = []
    for a in host.accelerators:
        count = len(a.devices())
        rows.append(
            {
                "name": a.name,
                "devices": count,
                "timed": a.is_timed,
                "absence": None if count else a.absence(),
                **_from(host.accelerators, a.name),
            }
        )
    return rows


def _devices(host: PluginHost) -> list[Row]:
    rows: list[Row] = []
    for accelerator in host.accelerators:
        for device in accelerator.devices():
            profile = host.profile_for(device)
            rows.append(
                {
                    "name": device.id,
                    "device": device.name,
                    "arch": device.arch,
                    "profile": profile.name if profile else None,
                    **_from(host.accelerators, accelerator.name),
                }
            )
    stand_ins = {arch for backend in host.backends for arch in backend.virtual_targets}
    for accelerator in host.accelerators:
        for arch in sorted(stand_ins):
            stand_in = accelerator.device(f"virtual:{arch}")
            if stand_in is not None:
                rows.append(
                    {
                        "name": stand_in.id,
                        "device": stand_in.name,
                        "arch": stand_in.arch,
                        "profile": None,
                        **_from(host.accelerators, accelerator.name),
                    }
                )
    return rows


def _profiles(host: PluginHost) -> list[Row]:
    rows: list[Row] = []
    for profile in host.profiles:
        row: dict[str, Any] = {"name": profile.name, **_from(host.profiles, profile.name)}
        if isinstance(profile, CalibratedProfile):
            row |= {"ceiling": "measured", "bandwidth_bytes_per_s": None, "peak_flops": {}}
        else:
            row |= {
                "ceiling": str(profile.ceiling),
                "bandwidth_bytes_per_s": profile.bandwidth_bytes_per_s.value,
                "peak_flops": {str(p): f.value for p, f in profile.peak_flops.items()},
            }
        rows.append(row)
    return rows


def _problems(host: PluginHost) -> list[Row]:
    rows: list[Row] = []
    for problem in host.problems:
        full = problem.select(Scale.FULL)
        rows.append(
            {
                "name": problem.name,
                "pack": problem.pack.name,
                "published": sum(w.origin is Origin.PUBLISHED for w in full),
                "added": sum(w.origin is Origin.ADDED for w in full),
                "smoke": len(problem.select(Scale.SMOKE)),
                "phases": [str(phase) for phase in problem.phases],
                "summary": problem.summary,
                **_from(host.problems, problem.name),
            }
        )
    return rows


def _plugins(host: PluginHost) -> list[Row]:
    rows = [_plugin(o, "ok", None) for o in host.plugins]
    rows += [_plugin(o, "disabled", None) for o in host.disabled]
    rows += [_plugin(q.origin, "set aside", f"{q.where}: {q.cause}") for q in host.quarantined]
    return sorted(rows, key=lambda row: str(row["name"]))


def _plugin(origin: Any, status: str, cause: str | None) -> Row:
    return {
        "name": origin.plugin,
        "status": status,
        "plugin": origin.plugin,
        "distribution": origin.package,
        "cause": cause,
    }


def _from(registry: Any, name: str) -> Row:
    origin = registry.origins[name]
    return {"plugin": origin.plugin, "distribution": origin.package}


def _print_table(rows: Sequence[Row]) -> None:
    from rich.table import Table

    from atrex_core.cli.console import console

    if not rows:
        click.echo("none", err=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = [c for c in rows[0] if any(row.get(c) not in (None, [], {}, "") for row in rows)]
    for column in columns:
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    console().print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{key}={number:.4g}" for key, number in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_KINDS: Mapping[str, Callable[[PluginHost], list[Row]]] = {
    "backends": _backends,
    "accelerators": _accelerators,
    "devices": _devices,
    "profiles": _profiles,
    "problems": _problems,
    "plugins": _plugins,
}
