"""What only shows when the findings of all tasks lie side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from atrex_core.journal import LintRecord
from atrex_core.linting.nouns import LintPlan
from atrex_core.model.lint import Fate, Finding, Kind, Task
from atrex_core.printable import many


def conclude(planned: LintPlan, records: Iterable[LintRecord]) -> Iterator[Finding]:
    """Yield a survivor for each mutant that says of every workload that it cannot be wrong there.

    Only where every workload was linted: of a part, that may be true.
    """
    if not planned.is_whole:
        return
    by_task = {record.task: record for record in records if record.submission is None}
    expected = [task for task in planned.tasks if task.workload is not None]
    groups: dict[tuple[str, str], list[Task]] = {}
    for task in expected:
        groups.setdefault((task.problem, task.protocol), []).append(task)
    for tasks in groups.values():
        fates: dict[str, set[Fate]] = {}
        for task in tasks:
            for found in by_task[task].findings if task in by_task else ():
                if found.kind is Kind.MUTANT:
                    fates.setdefault(found.name, set()).add(found.fate)
        if not all(task in by_task for task in tasks):
            continue
        for name, seen in fates.items():
            if seen == {Fate.INAPPLICABLE}:
                yield Finding(
                    problem=tasks[0].problem,
                    workload=None,
                    protocol=tasks[0].protocol,
                    kind=Kind.MUTANT,
                    name=name,
                    fate=Fate.SURVIVED,
                    reason=f"it applies to none of the {many(len(tasks), 'workload')}",
                )
