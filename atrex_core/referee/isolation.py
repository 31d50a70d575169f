"""What a lint asks of the interpreter in which public halves run alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from atrex_core.interfaces import Problem
from atrex_core.isolated import Ended, Interpreter, Question, Stated, Unlike
from atrex_core.model import Container, Workload
from atrex_core.referee.seals import raw


@define(eq=False)
class Alone:
    """An isolated interpreter, started when it is first needed.

    Whether a public half opens or starts anything is for the release to say, not for a lint.
    """

    timeout_s: float
    _interpreter: Interpreter = field(factory=Interpreter, init=False)

    def run(
        self, problem: Problem, workload: Workload, *, regimes: tuple[str, ...], seed: int
    ) -> str | Mapping[str, Mapping[str, str]]:
        """Run a problem's public half on one workload.

        Returns the digests of the inputs it drew, by regime and name, or what went wrong.
        """
        files = {path.name: path for path in problem.public_files}
        question = Question(
            problem=problem,
            workload=workload,
            inputs=files["inputs.py"],
            reference=files["reference.py"],
            regimes=regimes,
            seed=seed,
            timeout_s=max(1, round(self.timeout_s)),
        )
        try:
            answers = self._interpreter.ask(question)
        except Ended:
            return "the isolated interpreter ended early"
        for answer in answers.values():
            if answer.fault is not None:
                return f"{answer.fault} (at {answer.where})" if answer.where else answer.fault
            if answer.unlike is not None:
                return _said(answer.unlike, by_name=problem.container is Container.DICT)
        return {regime: answer.digests for regime, answer in answers.items()}

    def close(self) -> None:
        """End the interpreter."""
        self._interpreter.close()


def digests(inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return what the isolated interpreter says of the same tensors."""
    return {
        name: hashlib.sha256(raw(tensor).numpy().tobytes()).hexdigest()
        for name, tensor in inputs.items()
    }


def _said(unlike: Unlike, *, by_name: bool) -> str:
    """Say how tensors differ from what is declared: shapes are enough where they differ."""
    if unlike.are_inputs:
        return f"make_inputs draws {unlike.found}, declared are {unlike.stated}"
    found, declared = _shapes(unlike.found, by_name), _shapes(unlike.stated, by_name)
    if found == declared:
        return f"forward returns {unlike.found}, declared are {unlike.stated}"
    return f"forward returns {found}, declared are {declared}"


def _shapes(tensors: Stated, by_name: bool) -> Any:
    """Return shapes, by name where `forward` returns names."""
    if by_name:
        return {name: shape for name, _, shape in tensors}
    return [shape for _, _, shape in tensors]
