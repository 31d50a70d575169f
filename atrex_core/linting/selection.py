"""From globs to tasks, the largest first. What a problem cannot say becomes a finding."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from attrs import define, field

from atrex_core.errors import AtrexError
from atrex_core.interfaces import Problem
from atrex_core.linting.nouns import LintRequest
from atrex_core.model import Pack, Protocol, Scale, Workload
from atrex_core.model.lint import Fate, Finding, Kind, Task
from atrex_core.planning import NO_RULES, check_problem
from atrex_core.plugins import PluginHost
from atrex_core.plugins.blame import blaming
from atrex_core.plugins.registry import BrokenItem
from atrex_core.printable import one_line
from atrex_core.traces import raised_at

LOADS = "loads"
"""Name, as a check, of a problem's being there at all."""

log = logging.getLogger(__name__)


@define(eq=False)
class Selection:
    """What a request selects among the problems that are added to it."""

    host: PluginHost
    request: LintRequest
    scale: Scale
    sizes: dict[Task, int] = field(factory=dict)
    """Bytes of inputs and outputs, by task."""
    packs: dict[str, Pack] = field(factory=dict)
    unusable: list[Finding] = field(factory=list)
    _at: str | None = field(default=None, init=False)
    """The workload that a problem is asked about."""

    def add(self, problem: Problem) -> None:
        """Add the workloads of one problem, or the finding that it cannot name them."""
        self._at = None
        try:
            check_problem(self.host, problem)
            self.packs[problem.name] = problem.pack
            for protocol in self.request.protocols or tuple(Protocol):
                with blaming(self.host.problems, problem.name):
                    judged = problem.under(protocol)
                    if judged is not None:
                        for workload, nbytes in self._workloads(judged):
                            task = Task(
                                problem=problem.name, workload=workload.id, protocol=protocol
                            )
                            self.sizes[task] = nbytes
                if judged is None and self.request.protocols:
                    log.warning(
                        "problem %r has no rules for the %s protocol", problem.name, protocol
                    )
        except AtrexError as error:
            place = raised_at(error.__cause__) if error.__cause__ is not None else None
            where = f" (at {place})" if place else ""
            self._note(problem.name, self._at, "declaration", f"{error}{where}")

    def add_broken(self, broken: BrokenItem) -> None:
        """Add the finding that a problem could not even be loaded."""
        self._note(broken.name, None, LOADS, broken.cause)

    def _note(self, problem: str, workload: str | None, check: str, reason: str) -> None:
        self.unusable.append(
            Finding(
                problem=problem,
                workload=workload,
                protocol=Protocol.STRICT,
                kind=Kind.CHECK,
                name=check,
                fate=Fate.BROKEN,
                reason=one_line(reason),
            )
        )

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Return the checks of whole problems, then the workloads, the largest first."""
        strict = dict.fromkeys(t.problem for t in self.sizes if t.protocol is Protocol.STRICT)
        whole = [Task(problem=name, workload=None, protocol=Protocol.STRICT) for name in strict]
        return (*whole, *sorted(self.sizes, key=lambda task: -self.sizes[task]))

    def names(self, protocol: Protocol) -> list[str]:
        """Return the problems of which there is something to judge under `protocol`."""
        return list(dict.fromkeys(t.problem for t in self.sizes if t.protocol is protocol))

    def why_empty(self) -> str:
        """Say why there is nothing to lint."""
        if self.request.workloads:
            globs = ", ".join(self.request.workloads)
            return f"no workload matches {globs!r} at {self.scale} scale"
        if self.request.protocols:
            return f"no selected problem has rules for {' or '.join(self.request.protocols)}"
        return f"no selected problem has a workload of {self.scale} scale"

    def where_to_look(self, chosen: Sequence[Problem]) -> str:
        """Say what to do about it."""
        if self.request.workloads:
            name = chosen[0].name if len(chosen) == 1 else "NAME"
            return f"`atrex-eval problems show {name}` lists its workloads, by scale"
        if self.request.protocols:
            return NO_RULES
        return "`atrex-eval list problems` shows what there is"

    def _workloads(self, problem: Problem) -> Iterator[tuple[Workload, int]]:
        globs = self.request.workloads
        found = []
        for workload in problem.select(self.scale):
            if not globs or any(fnmatchcase(workload.id, glob) for glob in globs):
                self._at = workload.id
                found.append((workload, _nbytes(problem, workload)))
        self._at = None
        yield from spread(sorted(found, key=lambda pair: pair[1]), self.request.spread)


def spread(
    ordered: Sequence[tuple[Workload, int]], count: int | None
) -> Sequence[tuple[Workload, int]]:
    """Return `count` of what is ordered by size: the smallest, the largest, and some between."""
    if count is None or count >= len(ordered):
        return ordered
    steps = max(1, count - 1)
    return [ordered[round(i * (len(ordered) - 1) / steps)] for i in range(count)]


def _nbytes(problem: Problem, workload: Workload) -> int:
    return sum(spec.nbytes for spec in (*problem.inputs(workload), *problem.outputs(workload)))
