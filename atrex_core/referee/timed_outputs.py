"""What a call that was timed has left behind must be right too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from attrs import define, field

from atrex_core.interfaces import Problem, Tensor
from atrex_core.model import GateResult, Outcome, Workload
from atrex_core.referee.arena import Arena
from atrex_core.referee.bench import Case, first_wrong, judge_outputs
from atrex_core.referee.findings import is_same

MOST_APPROVED = 2
"""So many answers are kept, each as large as the outputs of a call."""


class WrongWhenTimed(Exception):
    """A call that was timed answered wrongly, or changed what it may not."""

    def __init__(self, result: GateResult) -> None:
        super().__init__()
        self.result = result


@define(eq=False)
class TimedOutputs:
    """Checks timed calls of one workload for whoever says how they were caught."""

    arena: Arena
    problem: Problem
    workload: Workload
    caught_by: str
    _approved: dict[int, Mapping[str, Tensor]] = field(factory=dict, init=False)
    """By seed: an answer that was judged to be right."""

    def check_inputs(self, index: int, case: Case) -> None:
        """Compare input set `index` with what was written.

        Raises:
            WrongWhenTimed: a call changed what it may only read.
        """
        updated = self.problem.in_place.values()
        if changed := self.arena.changed_inputs(index, case.inputs, updated=updated):
            self._fail(f"a timed call changed its input {changed[0]!r}", {"input_set": index})

    def check_outputs(self, index: int, case: Case, outputs: Mapping[str, Tensor]) -> None:
        """Compare the outputs of a call on input set `index` with what they should be.

        The same bytes as an approved answer to the same inputs are right; others are judged.

        Raises:
            WrongWhenTimed: one is wrong.
        """
        known = self._approved.get(case.seed)
        if known is not None and is_same(known, outputs):
            return
        wrong = first_wrong(judge_outputs(self.problem, self.workload, case.inputs, outputs))
        if wrong is None:
            if len(self._approved) < MOST_APPROVED:
                self._approved[case.seed] = outputs
            return
        name, comparison = wrong
        where = {"input_set": index, "regime": case.regime, "seed": case.seed}
        reason = f"a timed call answered wrongly: output {name!r}: {comparison.reason}"
        self._fail(reason, {**where, **comparison.details})

    def are_approved(self, cases: Sequence[Case]) -> list[int]:
        """Return which of `cases` have an approved answer."""
        return [number for number, case in enumerate(cases) if case.seed in self._approved]

    def _fail(self, reason: str, details: Mapping[str, object]) -> NoReturn:
        told = {"caught_by": self.caught_by, **details}
        raise WrongWhenTimed(GateResult(outcome=Outcome.FAILED, reason=reason, details=told))
