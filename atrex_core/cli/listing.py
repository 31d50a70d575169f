"""`atrex-eval list KIND`: what is installed, where it came from, and what was set aside."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from atrex_core.cli import profiles
from atrex_core.cli.console import rendered, say, show
from atrex_core.config import load_settings
from atrex_core.errors import AtrexError, UnknownName
from atrex_core.interfaces import Accelerator
from atrex_core.model import Device, Origin, Scale
from atrex_core.plugins import PluginHost
from atrex_core.suggest import did_you_mean

Row = Mapping[str, Any]


@click.command("list")
@click.argument("kind", metavar="KIND")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option("--disable-plugin", "disabled", multiple=True, metavar="NAME")
def command(kind: str, names: tuple[str, ...], form: str, disabled: tuple[str, ...]) -> None:
    """List KIND: backends, accelerators, devices, profiles, problems or plugins.

    With NAMEs, only those; of a profile, every figure with its source.
    """
    if kind not in _KINDS:
        raise UnknownName(f"cannot list {kind!r}", hint=did_you_mean(kind, _KINDS))
    disabled = load_settings({"disabled_plugins": disabled}).settings.disabled_plugins
    host = PluginHost.discover(disabled=disabled)
    rows = _named(_KINDS[kind](host), kind, names)
    if form == "json":
        show(json.dumps({"schema": 1, kind: rows}, allow_nan=False))
        return
    if kind == "profiles" and rows:
        show(profiles.details(rows) if names else profiles.overview(rows))
    else:
        _print_table(rows)


def _named(rows: list[Row], kind: str, names: Sequence[str]) -> list[Row]:
    known = {str(row["name"]) for row in rows}
    for name in names:
        if name not in known:
            what = f"no {kind.removesuffix('s')} is named {name!r}"
            raise UnknownName(what, hint=did_you_mean(name, known))
    return [row for row in rows if not names or row["name"] in names]


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
    from atrex_core.device_choice import absence_of

    rows: list[Row] = []
    for a in host.accelerators:
        devices, fault = _present(host, a)
        absence = None
        if not devices and not fault:
            try:
                absence = absence_of(host, a)
            except AtrexError as error:
                fault = str(error)
        rows.append(
            {
                "name": a.name,
                "devices": len(devices),
                "timed": a.is_timed,
                "absence": absence,
                "fault": fault,
                **_from(host.accelerators, a.name),
            }
        )
    return rows


def _devices(host: PluginHost) -> list[Row]:
    from atrex_core.device_choice import device_of

    rows: list[Row] = []
    healthy: list[Accelerator] = []
    for accelerator in host.accelerators:
        devices, fault = _present(host, accelerator)
        if fault:
            rows.append(_device(host, accelerator, None, fault=fault))
        else:
            healthy.append(accelerator)
        for device in devices:
            profile = host.profile_for(device)
            name = profile.name if profile else None
            rows.append(_device(host, accelerator, device, profile=name))
    stand_ins = {arch for backend in host.backends for arch in backend.virtual_targets}
    for accelerator in healthy:
        for arch in sorted(stand_ins):
            try:
                stand_in = device_of(host, accelerator, f"virtual:{arch}")
            except AtrexError as error:
                rows.append(_device(host, accelerator, None, fault=str(error)))
                break
            if stand_in is not None:
                rows.append(_device(host, accelerator, stand_in))
    return rows


def _device(
    host: PluginHost,
    accelerator: Accelerator,
    device: Device | None,
    *,
    profile: str | None = None,
    fault: str | None = None,
) -> Row:
    return {
        "name": device.id if device else accelerator.name,
        "device": device.name if device else None,
        "arch": device.arch if device else None,
        "profile": profile,
        "fault": fault,
        **_from(host.accelerators, accelerator.name),
    }


def _present(host: PluginHost, accelerator: Accelerator) -> tuple[Sequence[Device], str | None]:
    """Return the devices of an accelerator, or why it cannot say."""
    from atrex_core.device_choice import devices_of

    try:
        return devices_of(host, accelerator), None
    except AtrexError as error:
        return (), str(error)


def _profiles(host: PluginHost) -> list[Row]:
    return [profiles.row(p) | _from(host.profiles, p.name) for p in host.profiles]


def _problems(host: PluginHost) -> list[Row]:
    from atrex_core.planning import check_problem

    rows: list[Row] = []
    for problem in host.problems:
        check_problem(host, problem)
        full = problem.select(Scale.FULL)
        rows.append(
            {
                "name": problem.name,
                "release_id": problem.release_id,
                "pack": problem.pack.name,
                "published": sum(w.origin is Origin.PUBLISHED for w in full),
                "added": sum(w.origin is Origin.ADDED for w in full),
                "smoke": len(problem.select(Scale.SMOKE)),
                "phases": [str(phase) for phase in problem.phases],
                "summary": problem.summary,
                "fault": None,
                **_from(host.problems, problem.name),
            }
        )
    unknown = dict.fromkeys(("release_id", "pack", "published", "added", "smoke", "summary"))
    rows += [
        {
            "name": broken.name,
            **unknown,
            "phases": [],
            "fault": broken.cause,
            "plugin": broken.origin.plugin,
            "distribution": broken.origin.package,
        }
        for broken in host.problems.broken.values()
    ]
    return sorted(rows, key=lambda row: str(row["name"]))


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


def _from(registry: Any, name: str) -> dict[str, Any]:
    origin = registry.origins[name]
    return {"plugin": origin.plugin, "distribution": origin.package}


def _print_table(rows: Sequence[Row]) -> None:
    from rich.table import Table
    from rich.text import Text

    if not rows:
        say("none")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = [c for c in rows[0] if any(row.get(c) not in (None, [], {}, "") for row in rows)]
    for column in columns:
        table.add_column(column.replace("_", " "))
    for row in rows:
        table.add_row(*(Text(_cell(row.get(column))) for column in columns))
    show(rendered(table))


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
