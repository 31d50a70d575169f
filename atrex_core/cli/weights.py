"""`atrex-eval weights show`: what operators, workloads and phases count, and how that is known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from atrex_core.cli.console import rendered, show
from atrex_core.cli.groups import Group
from atrex_core.config import load_settings
from atrex_core.errors import NothingToDo
from atrex_core.interfaces import Problem
from atrex_core.model import Pack
from atrex_core.planning import check_problem
from atrex_core.plugins import PluginHost
from atrex_core.printable import one_line

_MOST_AXES = 60
_ABOUT_ONE = 1e-6


@click.group("weights", cls=Group)
def command() -> None:
    """Look at what operators and workloads count in a score."""


@command.command("show")
@click.argument("globs", nargs=-1, metavar="[GLOB]...")
@click.option("--problem", "problems", multiple=True, metavar="GLOB", help="The same as GLOB.")
@click.option("--by", type=click.Choice(["operator", "workload", "phase"]), default="operator")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
@click.option("--disable-plugin", "disabled", multiple=True, metavar="NAME")
def show_weights(
    globs: tuple[str, ...],
    problems: tuple[str, ...],
    by: str,
    form: str,
    disabled: tuple[str, ...],
) -> None:
    """Show weights of the operators that match GLOB, as published and normalised.

    Weights are normalised over the whole pack, whatever is shown of it.
    """
    disabled = load_settings({"disabled_plugins": disabled}).settings.disabled_plugins
    host = PluginHost.discover(disabled=disabled)
    chosen = {problem.name for problem in host.problems.select(*globs, *problems)}
    packs: dict[Pack, list[Problem]] = {}
    for problem in host.problems:
        check_problem(host, problem)
        packs.setdefault(problem.pack, []).append(problem)
    documents = [_document(pack, members, chosen) for pack, members in packs.items()]
    documents = [document for document in documents if document["operators"]]
    if not documents:
        raise NothingToDo("no problem is installed", hint="see `atrex-eval list plugins`")
    if form == "json":
        show(json.dumps({"schema": 1, "packs": documents}, allow_nan=False))
        return
    for document in documents:
        _print(document, by)


def _document(pack: Pack, members: Sequence[Problem], chosen: set[str]) -> Mapping[str, Any]:
    weight_sum = sum(problem.importance for problem in members)
    prevalent = sum(problem.importance * (problem.prevalence or 0.0) for problem in members)
    is_known = all(problem.prevalence is not None for problem in members)
    return {
        "pack": {"name": pack.name, "version": pack.version, "digest": pack.digest},
        "sources": sorted({p.provenance for p in members if p.provenance}),
        "weight_sum": weight_sum,
        "prevalence_weighted_sum": prevalent if is_known else None,
        "operators": [
            _operator(problem, weight_sum, prevalent if is_known else None)
            for problem in members
            if problem.name in chosen
        ],
    }


def _operator(problem: Problem, weight_sum: float, prevalent: float | None) -> Mapping[str, Any]:
    normalised = problem.importance / weight_sum if weight_sum else 0.0
    prevalence = problem.prevalence
    axes = {workload.id: workload.axes for workload in problem.workloads}
    return {
        "name": problem.name,
        "raw": problem.importance,
        "normalised": normalised,
        "prevalence": prevalence,
        "prevalence_weighted": (
            problem.importance * prevalence / prevalent if prevalence and prevalent else None
        ),
        "label": str(problem.phases[0]) if len(problem.phases) == 1 else "both",
        "workloads": [
            {
                "id": id_,
                "share": weight.share,
                "of_pack": normalised * weight.share,
                "basis": str(weight.basis),
                "axes": dict(axes.get(id_, {})),
            }
            for id_, weight in problem.workload_weights().items()
        ],
        "phases": [
            {"phase": str(phase), "share": weight.share, "basis": str(weight.basis)}
            for phase, weight in problem.phase_weights().items()
        ],
    }


def _print(document: Mapping[str, Any], by: str) -> None:
    from rich.table import Table
    from rich.text import Text

    pack = document["pack"]
    title = f"pack {pack['name']} {pack['version']}, digest {pack['digest'][:12]}"
    show(one_line(title))
    headings, rows = _TABLES[by]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        is_text = heading in ("operator", "workload", "basis", "axes", "label", "phase")
        table.add_column(heading, justify="left" if is_text else "right", no_wrap=True)
    for row in rows(document):
        table.add_row(*(Text(one_line(cell)) for cell in row))
    show(rendered(table))
    for line in _notes(document, by):
        show(line)


def _by_operator(document: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for op in sorted(document["operators"], key=lambda op: -op["raw"]):
        yield (
            op["name"],
            f"{op['raw']:.6f}",
            f"{op['normalised']:.4f}",
            _number(op["prevalence"]),
            _number(op["prevalence_weighted"]),
            op["label"],
            str(len(op["workloads"])),
            " ".join(f"{basis} {share:.2f}" for basis, share in _bases([op]).items() if share),
        )


def _by_workload(document: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for op in document["operators"]:
        for workload in op["workloads"]:
            yield (
                op["name"],
                workload["id"],
                f"{workload['share']:.4f}",
                f"{workload['of_pack']:.6f}",
                workload["basis"],
                _axes(workload["axes"]),
            )


def _by_phase(document: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for op in document["operators"]:
        for part in op["phases"]:
            share = part["share"]
            yield (
                op["name"],
                op["label"],
                part["phase"],
                f"{share:.4f}",
                f"{op['normalised'] * share:.6f}",
                part["basis"],
            )


_TABLES: Mapping[str, tuple[Sequence[str], Any]] = {
    "operator": (
        (
            *("operator", "raw", "normalised", "prevalence", "prevalence-weighted", "label"),
            *("workloads", "basis"),
        ),
        _by_operator,
    ),
    "workload": (("operator", "workload", "share", "of pack", "basis", "axes"), _by_workload),
    "phase": (("operator", "label", "phase", "share", "of pack", "basis"), _by_phase),
}


def _notes(document: Mapping[str, Any], by: str) -> Iterator[str]:
    """Say what the columns mean, and what is not known."""
    operators = document["operators"]
    weight_sum = document["weight_sum"]
    yield ""
    if by == "operator":
        if abs(weight_sum - 1) > _ABOUT_ONE and document["prevalence_weighted_sum"] is not None:
            yield f"raw: as published. Over the pack they add up to {weight_sum:.5g}, not to 1,"
            yield "as mean shares of an operator's time in those deployments where it occurs would."
        yield f"normalised: raw / {weight_sum:.5g}, the sum of raw over the pack; what scores use."
        if document["prevalence_weighted_sum"] is not None:
            yield "prevalence: share of the observed deployments in which the operator occurs."
            yield "prevalence-weighted: raw x prevalence, divided by the sum of those over the pack"
            yield f"({document['prevalence_weighted_sum']:.4g}): the weight, if raw is such a mean."
    elif by == "workload":
        parts = ", ".join(f"{basis} {share:.3f}" for basis, share in _bases(operators).items())
        yield f"share: of the operator's time. Of the weight shown, by basis: {parts}"
        yield "observed: total time in traces. derived: calls there x a production kernel's time."
        yield "uniform: not known; the mean of the operator's others."
    else:
        labelled: dict[str, float] = {}
        for op in operators:
            labelled[op["label"]] = labelled.get(op["label"], 0.0) + op["normalised"]
        parts = ", ".join(f"{label} {share:.3f}" for label, share in sorted(labelled.items()))
        yield f"label: the phases an operator was observed in. Weight by label: {parts}"
        yield "Where the label is both, nothing says how much was prefill: halves (uniform)."
    for source in document["sources"]:
        yield one_line(f"source: {source}", 300)


def _bases(operators: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
    """Return which part of the weight of `operators` is known on which basis."""
    whole = sum(op["normalised"] for op in operators) or 1.0
    found: dict[str, float] = {"observed": 0.0, "derived": 0.0, "uniform": 0.0}
    for op in operators:
        for workload in op["workloads"]:
            found[workload["basis"]] += workload["of_pack"] / whole
    return found


def _axes(axes: Mapping[str, Any]) -> str:
    text = " ".join(f"{name}={value}" for name, value in axes.items())
    return text if len(text) <= _MOST_AXES else text[: _MOST_AXES - 2] + ".."


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
