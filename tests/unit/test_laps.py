"""Each second of a judgement belongs to one stage."""

from __future__ import annotations

from contextlib import suppress

import pytest

from atrex_core.referee import laps
from atrex_core.referee.laps import Lap, Laps


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that it is, to be moved by hand."""
    now = [0.0]
    monkeypatch.setattr(laps.time, "perf_counter", lambda: now[0])
    return now


def test_what_is_inside_a_stage_is_not_counted_twice(clock: list[float]) -> None:
    watch = Laps()
    with watch.within(Lap.HOLD):
        clock[0] += 1.0
        with watch.within(Lap.JUDGE):
            clock[0] += 2.0
        clock[0] += 4.0
    clock[0] += 8.0
    with watch.within(Lap.JUDGE):
        clock[0] += 16.0

    assert watch.seconds == {Lap.HOLD: 5.0, Lap.JUDGE: 18.0}


def test_a_stage_that_ends_in_an_exception_is_charged(clock: list[float]) -> None:
    watch = Laps()
    with suppress(ValueError), watch.within(Lap.CALL), watch.within(Lap.DRAW):
        clock[0] += 3.0
        raise ValueError
    clock[0] += 1.0
    with watch.within(Lap.CLOSE):
        pass

    assert watch.seconds == {Lap.DRAW: 3.0, Lap.CALL: 0.0, Lap.CLOSE: 0.0}
