"""What the findings of a lint add up to: by problem, by protocol, by what was tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import field, frozen

from atrex_core.journal import LintRecord
from atrex_core.model import Protocol
from atrex_core.model.lint import Fate, Finding, Kind

_WORST_FIRST = (
    Fate.BROKEN,
    Fate.SURVIVED,
    Fate.REFUSED,
    Fate.FAILED,
    Fate.KILLED,
    Fate.ACCEPTED,
    Fate.PASSED,
    Fate.SKIPPED,
    Fate.INAPPLICABLE,
)
"""What is wrong on one workload is wrong; what is right counts once it was tried anywhere."""
_RIGHT = (Fate.KILLED, Fate.ACCEPTED, Fate.PASSED)
_SILENT = (Fate.SKIPPED, Fate.INAPPLICABLE)


@frozen
class Count:
    """How many of what was tried are as they should be."""

    fates: Mapping[Fate, int]

    @property
    def right(self) -> int:
        """Those as they should be."""
        return sum(self.fates.get(fate, 0) for fate in _RIGHT)

    @property
    def total(self) -> int:
        """Those of which anything can be said."""
        return sum(count for fate, count in self.fates.items() if fate not in _SILENT)

    def __add__(self, other: Count) -> Count:
        fates = {**self.fates}
        for fate, count in other.fates.items():
            fates[fate] = fates.get(fate, 0) + count
        return Count(fates)


@frozen(kw_only=True)
class Standing:
    """One problem under one protocol."""

    mutants: Count
    variants: Count
    """The reference and the honest variants."""
    kernels: Count


@frozen(kw_only=True)
class ProblemStanding:
    """One problem."""

    workloads: int
    checks: Count
    protocols: Mapping[Protocol, Standing]
    seconds: float


@frozen(kw_only=True)
class LintSummary:
    """Everything that was linted."""

    by_problem: Mapping[str, ProblemStanding]
    protocols: Mapping[Protocol, Standing] = field(factory=dict)
    checks: Count
    seconds: float
    """By the clock on the wall."""


def summarise(
    records: Sequence[LintRecord], more: Iterable[Finding], seconds: float
) -> LintSummary:
    """Add up what records hold, and findings that are in none."""
    findings = [f for record in records for f in record.findings]
    findings += more
    names = sorted({f.problem for f in findings} | {record.problem for record in records})
    by_problem = {}
    for name in names:
        own = [f for f in findings if f.problem == name]
        by_problem[name] = ProblemStanding(
            workloads=len({f.workload for f in own} - {None}),
            checks=_count(f for f in own if f.kind is Kind.CHECK),
            protocols={
                protocol: _standing([f for f in own if f.protocol is protocol])
                for protocol in Protocol
                if any(f.protocol is protocol and f.kind is not Kind.CHECK for f in own)
            },
            seconds=sum(record.seconds for record in records if record.problem == name),
        )
    standings = [s for problem in by_problem.values() for s in problem.protocols.items()]
    return LintSummary(
        by_problem=by_problem,
        protocols={
            protocol: Standing(
                mutants=_sum(s.mutants for p, s in standings if p is protocol),
                variants=_sum(s.variants for p, s in standings if p is protocol),
                kernels=_sum(s.kernels for p, s in standings if p is protocol),
            )
            for protocol in Protocol
            if any(p is protocol for p, _ in standings)
        },
        checks=_sum(problem.checks for problem in by_problem.values()),
        seconds=seconds,
    )


def _standing(findings: Sequence[Finding]) -> Standing:
    return Standing(
        mutants=_count(f for f in findings if f.kind is Kind.MUTANT),
        variants=_count(f for f in findings if f.kind is Kind.VARIANT),
        kernels=_count(f for f in findings if f.kind is Kind.KERNEL),
    )


def _count(findings: Iterable[Finding]) -> Count:
    """Count names, each by the worst of its fates on all workloads."""
    by_name: dict[str, set[Fate]] = {}
    for found in findings:
        by_name.setdefault(found.name, set()).add(found.fate)
    fates: dict[Fate, int] = {}
    for seen in by_name.values():
        worst = next(fate for fate in _WORST_FIRST if fate in seen)
        fates[worst] = fates.get(worst, 0) + 1
    return Count(fates)


def _sum(counts: Iterable[Count]) -> Count:
    return sum(counts, Count({}))
