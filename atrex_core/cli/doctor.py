"""`atrex-eval doctor`: run a tiny kernel for every backend on every device it could use."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
from attrs import evolve

from atrex_core.cli.console import show
from atrex_core.config import Settings, load_settings
from atrex_core.device_choice import absence_of, device_of, devices_of
from atrex_core.errors import AtrexError, ExitCode
from atrex_core.interfaces import Accelerator, Backend
from atrex_core.model import Device, Evaluation, Verdict
from atrex_core.planning import probe_plan
from atrex_core.plugins import PluginHost
from atrex_core.printable import one_line
from atrex_core.session import Session

Finding = Mapping[str, Any]
Broken = dict[str, tuple[str, str]]
"""By name of the plugin or accelerator: which of the two it is, and why."""


@click.command("doctor")
@click.option("--backend", "only", metavar="NAME", help="Only this backend.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option("--disable-plugin", "disabled", multiple=True, metavar="NAME")
def command(only: str | None, form: str, disabled: tuple[str, ...]) -> int:
    """Run a tiny kernel on every accelerator and backend pair, and say PASS or FAIL and why.

    Exits 0 when every pair that could work here does, 3 when one does not.
    """
    disabled = load_settings({"disabled_plugins": disabled}).settings.disabled_plugins
    host = PluginHost.discover(disabled=disabled)
    backends = [host.backends[only]] if only else list(host.backends)
    broken = {q.origin.plugin: ("plugin", q.cause) for q in host.quarantined}
    findings: list[Finding] = []
    for backend in backends:
        for finding in _examine(host, backend, disabled, broken):
            findings.append(finding)
            if form == "table":
                show(_line(finding))
    faults: list[Finding] = [
        {"check": check, "backend": "", "device": name, "status": "FAIL", "why": why}
        for name, (check, why) in broken.items()
    ]
    if form == "json":
        show(json.dumps({"schema": 1, "checks": faults + findings}, allow_nan=False))
    else:
        for fault in faults:
            show(_line(fault))
    findings += faults
    failed = any(finding["status"] == "FAIL" for finding in findings)
    return ExitCode.HARNESS_ERROR if failed else ExitCode.OK


def _examine(
    host: PluginHost, backend: Backend, disabled: tuple[str, ...], broken: Broken
) -> Iterator[Finding]:
    try:
        backend.check_available()
    except AtrexError as error:
        yield _finding(backend, "", "ABSENT", f"{error}; {error.hint}")
        return
    for accelerator, device, why in _devices(host, backend, broken):
        if device is None:
            yield _finding(backend, accelerator.name, "ABSENT", why)
        else:
            yield _probe(host, backend, accelerator, device, disabled)


def _devices(
    host: PluginHost, backend: Backend, broken: Broken
) -> Iterator[tuple[Accelerator, Device | None, str]]:
    for accelerator in host.accelerators:
        devices: Sequence[Device] = ()
        virtual: list[Device | None] = []
        is_meant, absence = accelerator.name in backend.accelerators, ""
        try:
            devices = devices_of(host, accelerator) if is_meant else ()
            absence = "" if devices else absence_of(host, accelerator)
            virtual = [
                device_of(host, accelerator, f"virtual:{arch}")
                for arch in backend.virtual_targets[:1]
            ]
        except AtrexError as error:  # said once, whatever the number of backends
            broken[accelerator.name] = ("accelerator", str(error))
            continue
        if is_meant and not devices:
            yield accelerator, None, absence
        for device in (*devices, *virtual):
            if device is not None:
                yield accelerator, device, ""


def _probe(
    host: PluginHost,
    backend: Backend,
    accelerator: Accelerator,
    device: Device,
    disabled: tuple[str, ...],
) -> Finding:
    settings = evolve(
        Settings(),
        backend=backend.name,
        device=device.id,
        cases=1,
        perf_budget_s=0.05,
        disabled_plugins=disabled,
    )
    try:
        planned = probe_plan(backend, accelerator, device)
        with Session(settings, host=host) as session:
            (evaluation,) = session.run(planned)
    except AtrexError as error:
        return _finding(backend, device.id, "FAIL", f"{error}; {error.hint}")
    return _finding(backend, device.id, *_verdict(evaluation))


def _verdict(evaluation: Evaluation) -> tuple[str, str]:
    gates = " ".join(f"{gate}={result.outcome}" for gate, result in evaluation.gates.items())
    if evaluation.outcome in (Verdict.PASSED, Verdict.UNMEASURED):
        return "PASS", gates
    failure = evaluation.first_failure
    return "FAIL", f"{failure[0]}: {failure[1].reason}" if failure else gates


def _finding(backend: Backend, device: str, status: str, why: str) -> Finding:
    return {
        "check": "kernel",
        "backend": backend.name,
        "device": device,
        "status": status,
        "why": why.rstrip("; "),
    }


def _line(finding: Finding) -> str:
    where = f"{finding['backend'] or finding['check']} {finding['device']}".strip()
    return f"{finding['status']:6} {where:24} {one_line(finding['why'])}"
