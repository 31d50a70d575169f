"""What a lint found: a table and what to change for people, one document for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from atrex_core import codec
from atrex_core.journal import LintRecord
from atrex_core.model import Pack, Protocol
from atrex_core.model.lint import Fate, Finding, Kind
from atrex_core.printable import many, one_line
from atrex_core.report.lint_advice import advice, honest_needs
from atrex_core.report.lint_summary import Count, LintSummary, Standing, summarise

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA = 1

_MOST_LINE = 2000
_MOST_BRIEF = 300
_SHOWN_WORKLOADS = 6
_ORDER = (Fate.BROKEN, Fate.FAILED, Fate.REFUSED, Fate.SURVIVED, Fate.SKIPPED)
"""Of the lines below the table: what stops a lint first, what is nobody's fault last."""


def problems_table(summary: LintSummary) -> Table:
    """Return one row for each problem: how many are as they should be, of how many."""
    from rich.table import Table
    from rich.text import Text

    with_kernels = any(standing.kernels.fates for standing in summary.protocols.values())
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("problem", no_wrap=True)
    for heading in ("workloads", "checks"):
        table.add_column(heading, justify="right", no_wrap=True)
    for protocol in summary.protocols:
        for what in ("mutants killed", "honest accepted", *["kernels accepted"] * with_kernels):
            table.add_column(f"{protocol}: {what}", justify="right")
    table.add_column("seconds", justify="right", no_wrap=True)
    for name, found in summary.by_problem.items():
        cells = [str(found.workloads), _of(found.checks)]
        for protocol in summary.protocols:
            standing = found.protocols.get(protocol)
            cells += [_of(standing.mutants), _of(standing.variants)] if standing else ["-", "-"]
            if with_kernels:
                cells.append(_of(standing.kernels) if standing else "-")
        cells.append(f"{found.seconds:.1f}")
        # Text is never read as markup: names are other people's words.
        table.add_row(Text(one_line(name)), *map(Text, cells))
    return table


def complaints(
    findings: Sequence[Finding], counted: Protocol, *, verbose: bool = False
) -> Iterator[str]:
    """Yield lines for everything that is not as it should be, and what to change about it.

    What several workloads share is said once. What other rules than the `counted` ones let through
    or refuse is for information, as somebody else has published them: a line for each problem.
    With `verbose`, every finding has lines of its own.
    """
    needs = honest_needs(findings)
    brief = [f for f in findings if _is_for_information(f, counted) and not verbose]
    for group in _grouped(f for f in findings if f.fate in _ORDER and f not in brief):
        found = group[0]
        yield one_line(f"{found.fate}: {_label(group)}{_said(found)}", _MOST_LINE)
        change = advice(found, needs)
        if change and not _is_for_information(found, counted):
            yield f"  change: {one_line(change, _MOST_LINE)}"
    yield from _information(brief, findings)
    if verbose:
        for found in findings:
            if found.fate not in _ORDER:
                yield one_line(f"{found.fate}: {_label([found])}{_said(found)}", _MOST_BRIEF)


def closing(summary: LintSummary) -> str:
    """Return one line of totals."""
    workloads = sum(problem.workloads for problem in summary.by_problem.values())
    problems = len(summary.by_problem)
    parts = [f"{many(problems, 'problem')}, {many(workloads, 'workload')}"]
    for protocol, standing in summary.protocols.items():
        said = f"{protocol}: {_of(standing.mutants)} mutants killed, "
        said += f"{_of(standing.variants)} honest accepted"
        if standing.kernels.fates:
            said += f", {_of(standing.kernels)} kernels accepted"
        parts.append(said)
    if summary.checks.fates:
        parts.append(f"{_of(summary.checks)} checks passed")
    return "; ".join([*parts, f"{summary.seconds:.1f} s"])


def journal_lines(records: Sequence[LintRecord]) -> Iterator[str]:
    """Yield a line for each pack, device and seed that was linted, and what is wrong."""
    groups: dict[tuple[Pack, str, int | None], list[LintRecord]] = {}
    for record in records:
        seed = record.seed if record.submission is None else None
        groups.setdefault((record.pack, record.device.name, seed), []).append(record)
    for (pack, device, seed), group in groups.items():
        summary = summarise(group, [], sum(record.seconds for record in group))
        about = f"pack {pack.name} {pack.version}, device {device}"
        what = f"seed {seed}" if seed is not None else "kernels"
        yield one_line(f"lint of {about}, {what}: {closing(summary)}", _MOST_LINE)
        findings = [found for record in group for found in record.findings]
        yield from complaints(findings, Protocol.STRICT)


def markdown(findings: Sequence[Finding], summary: LintSummary) -> str:
    """Return a table of what each protocol lets through and refuses: no times, and in order."""
    protocols = list(summary.protocols)
    heads = ["problem", "mutants"]
    for protocol in protocols:
        heads += [f"survive {protocol}", f"honest refused by {protocol}"]
    lines = [_row(heads), _row(["---"] * len(heads))]
    for name, found in summary.by_problem.items():
        counts = [standing.mutants for standing in found.protocols.values()]
        cells = [f"`{name}`", str(max((sum(c.fates.values()) for c in counts), default=0))]
        for protocol in protocols:
            own = [f for f in findings if f.problem == name and f.protocol is protocol]
            cells += [
                _named(own, fate, found.workloads, mark="`") or "none"
                for fate in (Fate.SURVIVED, Fate.REFUSED)
            ]
        lines.append(_row(cells))
    return "\n".join(lines)


def document(
    findings: Sequence[Finding], summary: LintSummary, facts: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return plain JSON values: every finding, what to change, and what they add up to."""
    needs = honest_needs(findings)
    return {
        "schema": SCHEMA,
        "findings": [
            {**codec.unstructure(found), "change": advice(found, needs)} for found in findings
        ],
        "summary": {
            **facts,
            "by_problem": {
                name: {
                    "workloads": found.workloads,
                    "seconds": found.seconds,
                    "checks": _plain(found.checks),
                    **{str(p): _standing(s) for p, s in found.protocols.items()},
                }
                for name, found in summary.by_problem.items()
            },
            "mutants": {str(p): _plain(s.mutants) for p, s in summary.protocols.items()},
            "variants": {str(p): _plain(s.variants) for p, s in summary.protocols.items()},
            "kernels": {str(p): _plain(s.kernels) for p, s in summary.protocols.items()},
            "checks": _plain(summary.checks),
            "seconds": summary.seconds,
        },
    }


def _is_for_information(found: Finding, counted: Protocol) -> bool:
    return found.protocol is not counted and found.fate in (Fate.SURVIVED, Fate.REFUSED)


def _information(brief: Sequence[Finding], findings: Sequence[Finding]) -> Iterator[str]:
    for problem, protocol in sorted({(f.problem, f.protocol) for f in brief}):
        own = [f for f in findings if (f.problem, f.protocol) == (problem, protocol)]
        workloads = len({f.workload for f in own} - {None})
        said = [
            f"{what} {_named(own, fate, workloads)}"
            for fate, what in ((Fate.SURVIVED, "lets through"), (Fate.REFUSED, "refuses"))
            if any(f.fate is fate for f in own)
        ]
        yield one_line(f"for information: {problem}: {protocol} {', and '.join(said)}", _MOST_LINE)


def _grouped(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Return findings that differ in their workload only, the gravest groups first.

    The first of a group speaks for it: the survivor that was furthest from being refused, or what
    was refused by most.
    """
    groups: dict[tuple[str, Protocol, Kind, str, Fate], list[Finding]] = {}
    for found in findings:
        key = (found.problem, found.protocol, found.kind, found.name, found.fate)
        groups.setdefault(key, []).append(found)
    ordered = sorted(groups.items(), key=lambda item: (_ORDER.index(item[0][4]), *item[0][:4]))
    return [sorted(group, key=_gravity) for _, group in ordered]


def _gravity(found: Finding) -> tuple[bool, float]:
    share = found.share if found.share is not None else math.inf
    return not found.identical, (share if found.fate is Fate.SURVIVED else -share)


def _label(group: Sequence[Finding]) -> str:
    found = group[0]
    ids = list(dict.fromkeys(f.workload for f in group if f.workload is not None))
    where = f" [{', '.join(ids[:_SHOWN_WORKLOADS])}{', ..' * (len(ids) > _SHOWN_WORKLOADS)}]"
    return f"{found.problem}{where if ids else ''} {found.protocol} {found.kind} {found.name!r}"


def _said(found: Finding) -> str:
    regime = f" in regime {found.regime!r}" if found.regime and found.reason else ""
    return f"{regime}: {found.reason}" if found.reason else ""


def _of(count: Count) -> str:
    return f"{count.right}/{count.total}" if count.fates else "-"


def _plain(count: Count) -> Mapping[str, int]:
    return {
        "total": count.total,
        "right": count.right,
        **{str(fate): count.fates[fate] for fate in Fate if fate in count.fates},
    }


def _standing(standing: Standing) -> Mapping[str, Any]:
    return {
        "mutants": _plain(standing.mutants),
        "variants": _plain(standing.variants),
        "kernels": _plain(standing.kernels),
    }


def _named(findings: Iterable[Finding], fate: Fate, workloads: int, *, mark: str = "") -> str:
    """Name what met a fate, and on how many workloads where not on all."""
    places: dict[str, set[str | None]] = {}
    for found in findings:
        if found.fate is fate:
            places.setdefault(found.name, set()).add(found.workload)
    said = []
    for name, seen in sorted(places.items()):
        is_all = None in seen or len(seen) == workloads
        said.append(f"{mark}{name}{mark}{'' if is_all else f' ({len(seen)} of {workloads})'}")
    return ", ".join(said)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
