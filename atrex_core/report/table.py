"""The verdict table, for people. Imports rich, and only when called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from atrex_core.model import Evaluation, Gate, GateResult, Limiter, Outcome, Protocol, Verdict
from atrex_core.printable import many, one_line
from atrex_core.roofline import ROOFLINE_VIOLATION
from atrex_core.scoring import Summary

if TYPE_CHECKING:
    from rich.table import Table

MOST_ROWS = 60
"""With more evaluations than this, only what did not pass is listed one by one."""

MOST_WIDTH = 110
"""Columns of a terminal, beside ids and submissions, that the table of evaluations fills.

Longer names and flags are folded.
"""

_UNBOUNDED = 10_000
_ID_WIDTH = 10
_LONG_SUBMISSION = 24
_LONG_FLAG = 15
_MOST_LINE = 2000
_ABSURD = 1e9
"""No number of a working run is larger; a journal of somebody else's may hold any."""

_MARKS = {
    Outcome.PASSED: "[green]pass[/]",
    Outcome.FAILED: "[red]FAIL[/]",
    Outcome.SKIPPED: "[yellow]-[/]",
    Outcome.ERRORED: "[magenta]ERROR[/]",
}
_BEYOND = "[yellow]S>1[/]"
"""The performance gate's mark where a time beats its bound."""
_HEADINGS = {
    Gate.COMPILE: "comp",
    Gate.CORRECTNESS: "corr",
    Gate.PERFORMANCE: "perf",
    Gate.AUTHENTICITY: "auth",
}
_LIMITERS = {
    Limiter.MEMORY: "mem",
    Limiter.MATRIX: "mat",
    Limiter.VECTOR: "vec",
    Limiter.LATENCY: "lat",
}
_MOST_LISTED = 3
"""So many times that beat their bounds are listed one by one."""


def evaluations_table(evaluations: Sequence[Evaluation], *, with_id: bool = False) -> Table:
    """Return one row for each evaluation: the gates, both times, the bound, the gap, the share.

    In microseconds, `launch` is call time beyond device time, `kernel` device time beyond the
    bound, and `other` what of it was spent outside the target DSL, where that is known.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    several = len({e.submission for e in evaluations}) > 1
    has_fallback = any(e.gap and e.gap.fallback_us is not None for e in evaluations)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    if with_id:
        table.add_column("id", no_wrap=True)
    if several:
        table.add_column("submission", overflow="fold")
    table.add_column("problem", overflow="fold")
    table.add_column("workload", overflow="fold")
    for heading in _HEADINGS.values():
        table.add_column(heading, no_wrap=True)
    for heading in ("call us", "dev us", "bound us"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("by", no_wrap=True)
    for heading in ("launch", "kernel", *(("other",) if has_fallback else ()), "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("flags", overflow="fold")
    for e in evaluations:
        timing, bound, share, gap = e.timing, e.bound, e.share_of_roofline, e.gap
        # Text is never read as markup: a journal's names are other people's words.
        cells: list[str | Text] = [Text(one_line(e.id[:_ID_WIDTH]))] if with_id else []
        cells += [Text(one_line(e.submission))] if several else []
        cells += [Text(one_line(e.problem)), Text(one_line(e.workload))]
        cells += [_mark(e, gate) for gate in _HEADINGS]
        cells += [
            _number(timing.call_us if timing else None),
            _number(timing.device_us if timing else None),
            _number(bound.t_sol_us if bound else None),
            _LIMITERS[gap.limiter if gap else bound.limiter] if bound else "",
            _number(gap.launch_us if gap else None),
            _number(gap.device_us if gap else None),
            *((_number(gap.fallback_us if gap else None),) if has_fallback else ()),
            _percent(share.device if share else None),
            Text(" ".join(_flags(e))),
        ]
        table.add_row(*cells)
    most = MOST_WIDTH + (_ID_WIDTH + 1) * with_id
    if several:
        most += 1 + min(max(len(one_line(e.submission)) for e in evaluations), _LONG_SUBMISSION)
    if Console(width=_UNBOUNDED).measure(table).maximum > most:
        table.width = most
        words = [len(flag) for e in evaluations for flag in ("flags", *_flags(e))]
        table.columns[-1].width = min(max(words), _LONG_FLAG)  # names give way to flags
    return table


def operators_table(summary: Summary) -> Table:
    """Return one row for each operator."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("operator", no_wrap=True)
    for heading in ("weight", "workloads", "correct", "share device", "share call"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, found in summary.by_operator.items():
        if not found.workloads:
            continue
        table.add_row(
            Text(one_line(name)),
            _score(found.weight),
            str(found.workloads),
            _percent(found.pass_rate),
            _percent(found.s_device),
            _percent(found.s_call),
        )
    return table


def reasons(evaluations: Sequence[Evaluation]) -> Iterator[str]:
    """Yield one line for each distinct reason why something did not pass.

    A reason that several workloads share, such as a file that cannot be imported, is said once.
    """
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for e in evaluations:
        for judged, result in e.gates.items():
            if result.outcome is Outcome.PASSED or result.reason is None:
                continue
            if _beats_bound(e, judged):
                continue  # each has figures of its own: see `violations`
            label = _LABELS[result.outcome]
            key = (f"{e.submission}/{e.problem}", str(judged), label, result.reason)
            groups.setdefault(key, []).append(e.workload)
    skipped: dict[tuple[str, str], set[str]] = {}
    for (who, gate, label, reason), workloads in groups.items():
        if label == "skipped":
            skipped.setdefault((gate, reason), set()).update(f"{who}:{w}" for w in workloads)
            continue
        where = workloads[0] if len(workloads) == 1 else f"all {len(workloads)}: {workloads[0]}.."
        yield one_line(f"{label}: {who} [{where}] {gate}: {reason}", _MOST_LINE)
    for (gate, reason), concerned in skipped.items():
        yield one_line(
            f"skipped: {gate} ({many(len(concerned), 'evaluation')}): {reason}", _MOST_LINE
        )
    yield from violations(evaluations)


def violations(evaluations: Sequence[Evaluation]) -> Iterator[str]:
    """Yield what is known of times that beat their bounds; of the first, the likely causes."""
    found = [e for e in evaluations if _beats_bound(e, Gate.PERFORMANCE)]
    for e in found[:_MOST_LISTED]:
        result = e.gates[Gate.PERFORMANCE]
        who = f"{e.submission}/{e.problem} [{e.workload}]"
        yield one_line(f"withheld: {who} {Gate.PERFORMANCE}: {result.reason}", _MOST_LINE)
        if e is found[0]:
            yield from _causes(result)
    if len(found) > _MOST_LISTED:
        more = many(len(found) - _MOST_LISTED, "more time")
        yield f"withheld: {more} above the roofline; `journal show FILE ID` lists causes"


def headline(summary: Summary, evaluations: Sequence[Evaluation]) -> Iterator[str]:
    """Yield the closing lines: how many of what, and the score or why there is none."""
    counts: Mapping[Verdict, int] = {
        verdict: sum(e.outcome is verdict for e in evaluations) for verdict in Verdict
    }
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    yield f"{many(len(evaluations), 'evaluation')}: {said}"
    if beyond := sum(ROOFLINE_VIOLATION in e.flags for e in evaluations):
        yield f"{many(beyond, 'time')} above the roofline: withheld from every score"
    for protocol in sorted({e.protocol for e in evaluations} - {Protocol.STRICT}):
        yield f"protocol {protocol}: inputs, tolerance, work and bytes as published; not strict's"
    if summary.s_agg is not None:
        yield f"S_agg     {_score(summary.s_agg.device)} device   {_score(summary.s_agg.call)} call"
        if summary.s_agg_dsl is not None:
            dsl = summary.s_agg_dsl
            yield f"S_agg_dsl {_score(dsl.device)} device   {_score(dsl.call)} call"
    elif summary.headline_withheld:
        yield one_line(f"no S_agg: {summary.headline_withheld}")


_LABELS = {
    Outcome.FAILED: "failed",
    Outcome.SKIPPED: "skipped",
    Outcome.ERRORED: "error",
    Outcome.PASSED: "passed",
}


def _beats_bound(evaluation: Evaluation, gate: Gate) -> bool:
    return gate is Gate.PERFORMANCE and ROOFLINE_VIOLATION in evaluation.flags


def _causes(result: GateResult) -> Iterator[str]:
    """Yield the likely causes in the order to check them in, with what speaks for (+) each."""
    found = result.details.get("above_roofline")
    causes = found.get("causes") if isinstance(found, Mapping) else None
    for number, cause in enumerate(causes if isinstance(causes, list) else (), start=1):
        if not isinstance(cause, Mapping):
            continue
        said = f"{cause.get('name')}: {cause.get('means')}"
        yield f"  {number}. {one_line(said)}"
        for sign, key in (("+", "speaks_for"), ("-", "speaks_against")):
            words = cause.get(key)
            for word in words if isinstance(words, list) else ():
                yield f"     {sign} {one_line(str(word))}"


def _flags(evaluation: Evaluation) -> list[str]:
    """Return what the gates' marks do not say."""
    return [one_line(flag) for flag in evaluation.flags if flag != ROOFLINE_VIOLATION]


def _mark(evaluation: Evaluation, gate: Gate) -> str:
    result = evaluation.gates.get(gate)
    if result and _beats_bound(evaluation, gate):
        return _BEYOND
    return _MARKS[result.outcome] if result else ""


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if 1000 <= value < _ABSURD else f"{value:.3g}"


def _percent(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1%}" if 0.001 <= value < _ABSURD else f"{value:.2g}"


def _score(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if abs(value) < _ABSURD else f"{value:.4g}"
