"""Which of many timed calls is looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from atrex_core.referee.stopwatch import Stopwatch


def chosen(*, sets: int, asked: int, made: int) -> set[int]:
    """Return the input sets that are chosen, sooner or later."""
    nothing = cast(Any, None)
    arena = SimpleNamespace(input_sets=((),) * sets)
    watch = Stopwatch(nothing, nothing, cast(Any, arena), nothing, nothing, nothing, nothing)
    watch._asked, watch._made = asked, made
    return {watch._any_but_the_latest() for _ in range(400)}


def test_any_call_but_the_latest_is_looked_at() -> None:
    # The latest call, the hundredth, has used set 99 % 8 = 3.
    assert chosen(sets=8, asked=50, made=100) == set(range(8)) - {3}


def test_sets_that_no_call_has_seen_since_they_were_written_are_not() -> None:
    assert chosen(sets=200, asked=5, made=103) == {98, 99, 100, 101}
    assert chosen(sets=200, asked=4, made=202) == {198, 199, 0}


@pytest.mark.parametrize("sets", [1, 8])
def test_a_single_call_is_looked_at(sets: int) -> None:
    assert chosen(sets=sets, asked=1, made=9) == {8 % sets}


def test_with_one_set_there_is_no_choice() -> None:
    assert chosen(sets=1, asked=50, made=100) == {0}


@pytest.mark.parametrize("made", [-5, 0, 1, 2**40])
def test_a_count_that_is_a_lie_decides_nothing(made: int) -> None:
    found = chosen(sets=8, asked=50, made=made)

    assert len(found) == 7
    assert found <= set(range(8))
