"""What a journal finds: an evaluation by its id, and what need not be evaluated again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from atrex_core import Evaluation, Gate, GateResult, Outcome, Protocol, Scale, UnknownName
from atrex_core.journal import Journal, ResumeKey, resume_key

EVALUATION = next(iter(Journal(Path(__file__).parents[1] / "journals" / "v1.jsonl")))
PASSED = GateResult(outcome=Outcome.PASSED)
SKIPPED = GateResult(outcome=Outcome.SKIPPED, reason="a virtual device gives no time")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "atrex.jsonl"


def written(path: Path, *evaluations: Evaluation) -> bytes:
    """Write evaluations to a new journal, and return its bytes."""
    with Journal(path) as journal:
        for evaluation in evaluations:
            journal.append(evaluation)
    return path.read_bytes()


def failed(gate: Gate) -> GateResult:
    return GateResult(outcome=Outcome.FAILED, reason=f"{gate} failed")


def test_an_evaluation_is_found_by_the_start_of_its_id(path: Path) -> None:
    written(path, *(evolve(EVALUATION, id=name) for name in ("abc1", "abc2", "abd", "ab")))
    journal = Journal(path)

    assert journal.find("abd").id == "abd"
    assert journal.find("abc1").id == "abc1"
    assert journal.find("ab").id == "ab"


def test_an_ambiguous_or_unknown_id_says_what_there_is(path: Path) -> None:
    written(path, *(evolve(EVALUATION, id=name) for name in ("abc1", "abc2", "xyz")))
    journal = Journal(path)

    with pytest.raises(UnknownName, match="id 'abc' is ambiguous") as ambiguous:
        journal.find("abc")
    with pytest.raises(UnknownName, match="no evaluation in .* has id 'xyy'") as unknown:
        journal.find("xyy")

    assert ambiguous.value.hint == "it may be abc1, abc2"
    assert unknown.value.hint == "did you mean 'xyz'? available: abc1, abc2, xyz"


def test_one_id_for_two_results_is_said(path: Path) -> None:
    written(path, EVALUATION, evolve(EVALUATION, seconds=9.0))

    with pytest.raises(UnknownName, match="2 different evaluations in .* share id '1a2b3c'"):
        Journal(path).find("1a2b")


def test_a_key_to_resume_by_holds_what_must_agree() -> None:
    assert resume_key(EVALUATION) == ResumeKey(
        digest="24eb0d63d06e3bef0b36c9ef953330861681ca4fd0d07c9e9d40363be5e250a6",
        submission=EVALUATION.submission,
        problem="norm",
        workload="8x1024",
        backend="acmelang",
        accelerator="acme",
        virtual=False,
        device_name="Anvil 2",
        target="anvil2",
        protocol=Protocol.STRICT,
        pack_digest="p1",
        scale=Scale.FULL,
        request=(("targets", ""), ("cases", "")),
    )


ALL = {**EVALUATION.gates, Gate.AUTHENTICITY: PASSED}
COMPLETE: dict[str, tuple[dict[str, Any], Gate | None, bool]] = {
    "all gates": ({"gates": ALL}, None, True),
    "skipped with a reason": ({"gates": {**ALL, Gate.PERFORMANCE: SKIPPED}}, None, True),
    "failed early": ({"gates": {Gate.COMPILE: failed(Gate.COMPILE)}}, None, True),
    "errored": (
        {"gates": {**ALL, Gate.COMPILE: GateResult(outcome=Outcome.ERRORED, reason="lost")}},
        None,
        False,
    ),
    "fewer gates": ({}, None, False),
    "as many gates as asked for": ({}, Gate.PERFORMANCE, True),
    "not asked for": (
        {
            "gates": {
                **ALL,
                Gate.AUTHENTICITY: GateResult(
                    outcome=Outcome.SKIPPED, reason="not asked for (--until performance)"
                ),
            }
        },
        None,
        False,
    ),
}


@pytest.mark.parametrize(("changes", "until", "expected"), COMPLETE.values(), ids=COMPLETE)
def test_what_need_not_be_evaluated_again(
    path: Path, changes: dict[str, Any], until: Gate | None, expected: bool
) -> None:
    written(path, evolve(EVALUATION, **changes))

    assert (resume_key(EVALUATION) in Journal(path).completed(until)) is expected


def test_an_absent_journal_has_nothing_complete(path: Path) -> None:
    assert Journal(path).completed() == frozenset()
    assert not path.exists()
