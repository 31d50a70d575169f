"""The claim that released code runs alone: reference and inputs, in a process that is watched.

What a public file opens, starts or connects to while it is imported and run is noted by an audit
hook, whatever its source looks like.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from atrex_core.interfaces import Problem
from atrex_core.isolated import Answer, Ended, Interpreter, Question
from atrex_core.model import Scale
from atrex_core.release.claims import Claim, claim
from atrex_core.release.view import INPUTS, PUBLIC_FILES, REFERENCE

_SUBJECT = "alone"
_TEXT = "reference and inputs run with torch alone, opening nothing, and give what is stated"
_TIMEOUT_S = 900.0
"""For all of them."""
_SEED = 1


def alone_claim(files: Mapping[str, bytes] | str, problems: Sequence[Problem]) -> Claim:
    """Run every small workload of the released `problems` in every regime.

    Args:
        files: What installed packs give, so that nothing of a stranger's runs here; or why there
            is nothing.
        problems: Whose workloads.
    """
    if isinstance(files, str):
        return claim(_SUBJECT, _TEXT, [f"not run: {files}"])
    found: list[str] = []
    runs, deadline = 0, time.monotonic() + _TIMEOUT_S
    with (
        tempfile.TemporaryDirectory(prefix="atrex-release-") as place,
        tempfile.TemporaryFile() as printed,
        Interpreter(printed) as interpreter,
    ):
        _write(files, Path(place))
        for question in _questions(problems, Path(place), deadline):
            if question.timeout_s <= 0:
                return claim(_SUBJECT, _TEXT, [*found, f"no end within {_TIMEOUT_S:g} s"])
            try:
                answers = interpreter.ask(question)
            except Ended as end:
                why = f"the process ended with {end.status}: {_last_line(printed)}"
                return claim(_SUBJECT, _TEXT, [*found, why])
            runs += len(answers)
            for regime, answer in answers.items():
                where = f"{question.problem.release_id}/{question.workload.id} ({regime})"
                found += _departures(where, answer)
    without = [problem.release_id for problem in problems if not problem.select(Scale.SMOKE)]
    found += [f"{name!r} has no small workload to run" for name in without]
    return claim(_SUBJECT, _TEXT, found, proved=f"{runs} runs of {len(problems)} problems")


def _write(files: Mapping[str, bytes], place: Path) -> None:
    for path, content in files.items():
        if path.rpartition("/")[2] in PUBLIC_FILES:
            target = place / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def _questions(problems: Sequence[Problem], place: Path, deadline: float) -> Iterator[Question]:
    for problem in problems:
        for workload in problem.select(Scale.SMOKE):
            yield Question(
                problem=problem,
                workload=workload,
                inputs=place / problem.release_id / INPUTS,
                reference=place / problem.release_id / REFERENCE,
                regimes=problem.regimes(workload),
                seed=_SEED,
                timeout_s=round(deadline - time.monotonic()),
            )


def _departures(where: str, answer: Answer) -> Iterator[str]:
    """Yield each thing in which a public half departs from what is claimed of it."""
    for event, place in answer.touched:
        yield f"{where} opens {place}" if place else f"{where}: {event}"
    if answer.fault is not None:
        yield f"{where}: {answer.fault}"
    elif answer.unlike is not None:
        verb = "draws" if answer.unlike.are_inputs else "returns"
        yield f"{where}: {verb} {answer.unlike.found}, not {answer.unlike.stated}"


def _last_line(printed: IO[bytes]) -> str:
    printed.seek(0)
    return printed.read().decode(errors="replace").strip().rpartition("\n")[2]
