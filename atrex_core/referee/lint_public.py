"""The public half of a problem: is it all there, does it run alone, and may it be handed out?

Each function returns what is wrong, None where nothing is; it may raise anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from atrex_core.errors import AtrexError
from atrex_core.interfaces import Problem
from atrex_core.interfaces.declared import regimes_of
from atrex_core.model import Protocol, Workload
from atrex_core.referee.isolation import Alone, digests
from atrex_core.release import release_of
from atrex_core.scaffold import PROVENANCE

_DISTINCTIVE = 4
"""Digits that make a number recognisable wherever it stands."""
_ALONE_SEED = 7
_PUBLIC = ("inputs.py", "reference.py")


def every_regime(problem: Problem, workload: Workload) -> list[str]:
    """Return the regimes of every protocol that the problem has rules for."""
    judged = (problem.under(protocol) for protocol in Protocol)
    regimes = [r for one in judged if one is not None for r in regimes_of(one, workload)]
    return list(dict.fromkeys(regimes))


def missing_file(problem: Problem) -> str | None:
    names = {path.name for path in problem.public_files}
    for name in _PUBLIC:
        if name not in names:
            return f"there is no public {name}: a failure could not be shown again"
    for path in problem.public_files:
        path.read_bytes()
    return None


def leak(problem: Problem) -> str | None:
    for path in problem.public_files:
        text = path.read_text(encoding="utf-8", errors="replace")
        for number in _writings(problem.importance):
            if re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", text):
                return f"{path.name} holds {number}, which is the problem's importance"
    return None


def _writings(importance: float) -> Iterator[str]:
    """Yield how a share may be written, where it is recognisable."""
    for text in {f"{importance:.12g}", f"{100 * importance:.12g}"}:
        if len(text.replace(".", "").strip("0")) >= _DISTINCTIVE:
            yield text
            yield text.removeprefix("0")


def not_alone(problem: Problem, smoke: Sequence[Workload], alone: Alone) -> str | None:
    names = {Path(path).name for path in problem.public_files}
    if not smoke or not names.issuperset(_PUBLIC):
        return "there is no smoke workload, or no public file, to run"
    workload = smoke[0]
    regimes = tuple(every_regime(problem, workload))
    answer = alone.run(problem, workload, regimes=regimes, seed=_ALONE_SEED)
    if isinstance(answer, str):
        return f"the public half does not run alone on {workload.id}: {answer}"
    for regime in regimes:
        inputs = problem.draw(workload, regime=regime, seed=_ALONE_SEED, device="cpu")
        if digests(inputs) != dict(answer[regime]):
            return (
                f"the public half draws other inputs than the problem on {workload.id} in regime "
                f"{regime!r}: a failure could not be shown again"
            )
    return None


def unreleasable(problem: Problem) -> str | None:
    """Build the problem's release in memory."""
    if not {path.name for path in problem.public_files}.issuperset(_PUBLIC):
        return None  # that is another complaint
    try:
        release_of([problem])
    except AtrexError as error:
        return str(error).removeprefix(f"problem {problem.name!r} ")
    return None


def placeholder(problem: Problem) -> str | None:
    """Find what a new problem's files say until somebody has written it."""
    if PROVENANCE in problem.provenance:
        return f"it is still {PROVENANCE!r}"
    return None
