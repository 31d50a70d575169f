"""What is kept of a lint, what `--resume` believes of it, and what it adds up to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from atrex_core import Pack, Problem, Protocol, Scale, UsageError, Workload, hookimpl
from atrex_core.cli.problems import exit_code
from atrex_core.journal import Journal, LintRecord
from atrex_core.lint_process import _ended
from atrex_core.linting import Linting, LintPlan, LintRequest, conclude
from atrex_core.linting.selection import spread
from atrex_core.model.lint import Fate, Finding, Kind, Task
from atrex_core.plugins import PluginHost
from atrex_core.referee.faults import DEVICE_LOST
from atrex_core.report.lint_advice import advice, honest_needs
from atrex_core.report.lint_summary import summarise
from atrex_core.report.lint_table import complaints

_STRICT, _PAPER = Protocol.STRICT, Protocol.PAPER


def _finding(name: str, fate: Fate, kind: Kind = Kind.MUTANT, **more: Any) -> Finding:
    fields = {"problem": "sum", "workload": "r4", "protocol": _STRICT, **more}
    return Finding(kind=kind, name=name, fate=fate, **fields)


class _Plugin:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @hookimpl
    def atrex_problems(self) -> Iterable[Problem]:
        return [self.problem]


Begin = Callable[..., tuple[Linting, LintPlan]]


@pytest.fixture
def begin(broken: Any) -> Begin:
    """Return what makes a lint of the sound problem, and its plan: nothing is started."""

    def begin(digest: str = "d", **options: Any) -> tuple[Linting, LintPlan]:
        problem = broken(pack=Pack(name="odd", version="1", digest=digest))
        host = PluginHost.discover(only=["cpu"], extra=[_Plugin(problem)])
        linting = Linting(LintRequest(problems=("sum",), **options), host=host)
        return linting, linting.plan()

    return begin


def _record(planned: LintPlan, task: Task, *findings: Finding, **more: Any) -> LintRecord:
    record = LintRecord(
        pack=planned.packs["sum"],
        task=task,
        device=planned.device,
        cases=5,
        seed=planned.seed,
        findings=findings,
        seconds=0.5,
        environment={"torch": "2"},
        finished_at="2026-01-01T00:00:00+00:00",
    )
    return evolve(record, **more)


# -- planning --------------------------------------------------------------------------------------


def test_whole_problems_come_first_then_the_largest_workloads(begin: Begin) -> None:
    _, planned = begin(seed=9)

    assert [(task.workload, task.protocol) for task in planned.tasks] == [
        (None, _STRICT),
        ("r9", _STRICT),
        ("r4", _STRICT),
        ("r1", _STRICT),
    ]
    assert (planned.seed, planned.scale, planned.device.id) == (9, Scale.SMOKE, "cpu")
    assert planned.jobs == planned.device.compute_units


def test_seeds_are_drawn_for_each_lint(begin: Begin) -> None:
    assert len({begin()[1].seed for _ in range(4)}) == 4


@pytest.mark.parametrize(
    ("count", "chosen"),
    [(None, "abcde"), (9, "abcde"), (5, "abcde"), (4, "abde"), (3, "ace"), (2, "ae"), (1, "a")],
)
def test_spread_goes_from_the_smallest_to_the_largest(count: int | None, chosen: str) -> None:
    ordered = [(Workload(id=name, axes={}), size) for size, name in enumerate("abcde")]

    assert "".join(workload.id for workload, _ in spread(ordered, count)) == chosen


# -- the journal -----------------------------------------------------------------------------------


def test_record_is_read_as_it_was_written(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    _, planned = begin()
    killed = _finding("zeros", Fate.KILLED, regime="nominal", bound="element", share=3.5)
    records = [_record(planned, task, killed) for task in planned.tasks]

    with Journal(path) as journal:
        for record in records:
            journal.add_lint(record)
    path.write_bytes(path.read_bytes() + b'{"schema": 1, "kind": "lint", "pa')

    assert list(Journal(path).lints().values()) == records
    assert [damage.line for damage in Journal(path).damaged] == [5]
    assert list(Journal(path)) == []


@pytest.mark.parametrize(
    ("options", "changes", "left"),
    [
        pytest.param({}, {}, 0, id="the same"),
        pytest.param({"seed": 9}, {}, 0, id="the same seed"),
        pytest.param({"seed": 8}, {}, 4, id="another seed"),
        pytest.param({"cases": 7}, {}, 4, id="more cases"),
        pytest.param({"digest": "e"}, {}, 4, id="another pack"),
        pytest.param({"workloads": ("r1",)}, {}, 0, id="a part"),
        pytest.param({}, {"findings": (_finding("zeros", Fate.SURVIVED),)}, 0, id="a survivor"),
        pytest.param({}, {"findings": (_finding("zeros", Fate.BROKEN),)}, 4, id="broken"),
        pytest.param({}, {"findings": (_finding("zeros", Fate.SKIPPED),)}, 4, id="skipped"),
        pytest.param({}, {"cases": 3}, 4, id="was fewer cases"),
        pytest.param({}, {"submission": "dsl", "digest": "k"}, 4, id="was a kernel"),
    ],
)
def test_resume_repeats_what_may_come_out_otherwise(
    begin: Begin, tmp_path: Path, options: Any, changes: Any, left: int
) -> None:
    path = tmp_path / "j.jsonl"
    _, before = begin(seed=9)
    with Journal(path) as journal:
        for task in before.tasks:
            journal.add_lint(
                _record(before, task, **{"findings": (_finding("zeros", Fate.KILLED),), **changes})
            )

    linting, planned = begin(journal=path, resume=True, **options)
    anew, _ = begin(journal=path, **options)

    assert linting.remaining(planned) == left
    assert len(linting.earlier(planned)) == len(planned.tasks) - left
    assert anew.remaining(planned) == len(planned.tasks)


def test_file_of_another_kind_is_not_written_over(begin: Begin, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a journal\n")
    linting, planned = begin(journal=path)

    with pytest.raises(UsageError, match="exists and is not a journal"):
        next(linting.run(planned))

    assert path.read_text() == "not a journal\n"


@pytest.mark.parametrize(
    ("status", "reason", "by_order"),
    [
        (0, "its process exited with status 0", False),
        (-6, "its process was killed by SIGABRT", False),
        (
            -9,
            "its process was killed by SIGKILL more than once: by somebody, or for want of memory",
            True,
        ),
        (
            DEVICE_LOST,
            "a fault of the device: nothing more could be computed in its process",
            False,
        ),
    ],
)
def test_end_of_a_process_is_put_into_words(status: int, reason: str, by_order: bool) -> None:
    trouble = _ended(status)

    assert (trouble.reason, trouble.by_order) == (reason, by_order)


# -- what it adds up to ----------------------------------------------------------------------------


def test_worst_fate_on_any_workload_counts(begin: Begin) -> None:
    _, planned = begin()
    first, second = planned.tasks[1:3]
    records = [
        _record(
            planned,
            task,
            _finding("killed", Fate.KILLED),
            _finding("survives", fate),
            _finding("applies once", Fate.KILLED if task is first else Fate.INAPPLICABLE),
            _finding("never applies", Fate.INAPPLICABLE),
            _finding("reference", Fate.ACCEPTED, Kind.VARIANT),
            _finding("seeds", Fate.PASSED, Kind.CHECK),
        )
        for task, fate in ((first, Fate.SURVIVED), (second, Fate.KILLED))
    ]

    summary = summarise(records, [], 1.5)

    mutants = summary.protocols[_STRICT].mutants
    assert (mutants.right, mutants.total) == (2, 3)
    assert mutants.fates == {Fate.KILLED: 2, Fate.SURVIVED: 1, Fate.INAPPLICABLE: 1}
    assert summary.by_problem["sum"].seconds == 1.0
    assert (summary.checks.right, summary.checks.total) == (1, 1)


def test_mutant_that_applies_nowhere_survives_where_all_was_linted(begin: Begin) -> None:
    _, planned = begin()
    _, part = begin(workloads=("r*",))
    records = [
        _record(planned, task, _finding("never", Fate.INAPPLICABLE)) for task in planned.tasks
    ]

    (found,) = conclude(planned, records)

    assert (found.name, found.workload, found.fate) == ("never", None, Fate.SURVIVED)
    assert found.reason == "it applies to none of the 3 workloads"
    assert list(conclude(planned, records[:-1])) == []
    assert list(conclude(part, records)) == []


@pytest.mark.parametrize(
    ("findings", "protocols", "code"),
    [
        ([_finding("a", Fate.KILLED), _finding("b", Fate.SKIPPED)], (), 0),
        ([_finding("a", Fate.SURVIVED)], (), 1),
        ([_finding("a", Fate.REFUSED, Kind.VARIANT)], (_STRICT, _PAPER), 1),
        ([_finding("a", Fate.REFUSED, Kind.KERNEL)], (), 1),
        ([_finding("a", Fate.FAILED, Kind.CHECK)], (), 1),
        ([_finding("a", Fate.SURVIVED, protocol=_PAPER)], (), 0),
        ([_finding("a", Fate.SURVIVED, protocol=_PAPER)], (_STRICT, _PAPER), 0),
        ([_finding("a", Fate.SURVIVED, protocol=_PAPER)], (_PAPER,), 1),
        ([_finding("a", Fate.SURVIVED), _finding("b", Fate.BROKEN, protocol=_PAPER)], (), 3),
    ],
)
def test_exit_code_tells_faults_from_information(
    findings: list[Finding], protocols: tuple[Protocol, ...], code: int
) -> None:
    assert exit_code(findings, protocols) == code


# -- what to change --------------------------------------------------------------------------------


def test_survivor_is_set_beside_what_honest_ones_need() -> None:
    honest = _finding("wide", Fate.ACCEPTED, Kind.VARIANT, share=0.31, bound="element")
    near = _finding("near", Fate.SURVIVED, regime="tails", bound="row L2", share=0.83)

    said = advice(near, honest_needs([honest, near]))

    assert said == (
        "regime 'tails' comes nearest, with 0.83 of the row L2 bound: sharpen its inputs, or "
        "narrow the rule; honest implementations need 0.31 of a bound at most"
    )


def test_refused_one_is_told_which_bound_and_by_how_much() -> None:
    refused = _finding("tree", Fate.REFUSED, Kind.VARIANT, bound="element", share=1.25)

    assert str(advice(refused, {})).startswith("it exceeds the element bound by a factor of 1.25: ")


@pytest.mark.parametrize("kind", list(Kind), ids=str)
@pytest.mark.parametrize("fate", list(Fate), ids=str)
def test_every_fault_has_something_to_change(kind: Kind, fate: Fate) -> None:
    said = advice(_finding("draw", fate, kind, regime="tails"), {})

    assert (said is not None) is (fate.is_fault or fate is Fate.SKIPPED)


def test_workloads_that_share_a_fault_share_a_line() -> None:
    found = [
        _finding("near", Fate.SURVIVED, workload=f"r{n}", regime="tails", share=n / 10)
        for n in (3, 1, 2)
    ]
    found.append(_finding("zeros", Fate.BROKEN, reason="KeyError: 'x'", regime="tails"))

    said = list(complaints(found, _STRICT))

    assert said[0] == "broken: sum [r4] strict mutant 'zeros' in regime 'tails': KeyError: 'x'"
    assert said[2] == "survived: sum [r1, r2, r3] strict mutant 'near'"
    assert said[3].startswith("  change: regime 'tails' comes nearest, with 0.1 of the ")
    assert len(said) == 4


def test_workload_that_is_found_fault_with_twice_is_named_once() -> None:
    found = [
        _finding("draw", Fate.BROKEN, Kind.CHECK, workload=workload, reason="KeyError: 'x'")
        for workload in ("r1", "r1", "r3", "r3")
    ]

    said = list(complaints(found, _STRICT))

    assert said[0] == "broken: sum [r1, r3] strict check 'draw': KeyError: 'x'"
