"""How far along a long command is, where nobody looks at a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from atrex_core.live import shown
from atrex_core.model import Protocol
from atrex_core.model.lint import Task

_TASK = Task(problem="p", workload="w", protocol=Protocol.STRICT)


def _steps(seconds: float) -> Iterator[Task]:
    yield _TASK
    time.sleep(seconds)
    yield _TASK


def test_a_long_step_is_told_while_it_lasts(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(shown(_steps(0.5), 2, every_s=0.1)) == [_TASK, _TASK]

    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "1 of 2 done after 0 s"
    assert set(lines) == {"1 of 2 done after 0 s"}


@pytest.mark.parametrize("every_s", [None, 30.0])
def test_what_is_quick_says_nothing(
    capsys: pytest.CaptureFixture[str], every_s: float | None
) -> None:
    assert len(list(shown(_steps(0), 2, every_s=every_s))) == 2

    assert capsys.readouterr().err == ""
