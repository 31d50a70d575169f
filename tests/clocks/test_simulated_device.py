"""The referee's clock on a simulated device whose every cost is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from atrex_core import DeviceSamples, HarnessError, Unavailable
from atrex_core.referee import clocks, copies, held_clock
from atrex_core.referee.copies import CopyClock
from atrex_core.referee.held_clock import WAITS, HeldTimes
from atrex_core.referee.timed_outputs import WrongWhenTimed

Work = Callable[[], None]
Set = Callable[..., Any]
KERNEL_US = 37.0


def nothing() -> None:
    pass


def honest(self: Any, x: Any, out: Any) -> None:
    self.launch(KERNEL_US, lambda: out.copy_(2 * x))


@pytest.mark.parametrize("sets", [1, 2, 3, 7, 24])
def test_the_slope_is_the_cost_of_a_call_without_its_copy(
    setting: Set, world: Any, sets: int
) -> None:
    found = setting(honest, sets=sets).measure()

    assert found.copy_us == pytest.approx(world.copy_us, abs=0.2)
    assert found.call_us == pytest.approx(world.gap_us + KERNEL_US, abs=0.4)
    assert found.fresh_us == pytest.approx(world.gap_us + KERNEL_US, abs=0.4)
    assert found.reason is None


def test_what_it_costs_to_wake_the_device_cancels(setting: Set, world: Any) -> None:
    found = setting(honest).measure()
    calls, elapsed_us = found.rounds[0]

    assert calls == world.sets
    assert elapsed_us > world.switch_us + calls * (world.gap_us + KERNEL_US)


def test_several_kernels_of_a_call_count_with_their_gaps(setting: Set, world: Any) -> None:
    def three(self: Any, x: Any, out: Any) -> None:
        self.launch(10.0, nothing)
        self.launch(20.0, nothing)
        self.launch(5.0, lambda: out.copy_(2 * x))

    assert setting(three).measure().call_us == pytest.approx(35 + 3 * world.gap_us, abs=0.4)


def test_rounds_are_kept_and_their_lengths_vary(setting: Set) -> None:
    once, again = setting(honest), setting(honest)
    found = once.measure()
    again.measure()

    assert [calls for calls, _ in found.rounds] == once.worker.rounds
    assert len(found.rounds) == 9
    assert once.worker.rounds != again.worker.rounds


def test_who_remembers_answers_pays_on_what_it_has_not_seen(setting: Set, world: Any) -> None:
    def remembers(self: Any, x: Any, out: Any) -> None:
        def work() -> None:
            self.seen.add(x.numpy().tobytes())
            out.copy_(2 * x)

        # What the device will find is what the referee has just written: peeked at by looking
        # at the clock of the simulation when the work begins.
        self.stream.queue.append(("launch", 2.0, lambda: insert(self, x, work)))

    def insert(self: Any, x: Any, work: Work) -> None:
        known = x.numpy().tobytes() in self.seen
        self.stream.queue.insert(1, ("launch", 0.0 if known else KERNEL_US, work))

    held = setting(remembers).measure()
    claim = DeviceSamples(samples_us=(3.0,) * 8, method="records")
    settled = clocks.settle(claim, held, (), is_synchronous=False)

    assert held.call_us == pytest.approx(2.0 + 2 * world.gap_us, abs=0.4)
    assert held.fresh_us == pytest.approx(2.0 + 2 * world.gap_us + KERNEL_US, abs=0.4)
    assert settled.flags == (clocks.DISPUTED,)
    assert settled.caught_by == clocks.BY_FRESH


def test_work_done_before_the_release_is_done_on_rubbish(setting: Set) -> None:
    def early(self: Any, x: Any, out: Any) -> None:
        out.copy_(2 * x)
        self.launch(0.5, nothing)

    with pytest.raises(WrongWhenTimed) as caught:
        setting(early).measure()

    details = caught.value.result.details
    assert details["caught_by"] == held_clock.CAUGHT_BY
    assert details["seed"] > 0


def test_work_done_after_the_end_is_missing(setting: Set, world: Any) -> None:
    def late(self: Any, x: Any, out: Any) -> None:
        stranger.launch(KERNEL_US, lambda: out.copy_(2 * x))

    stranger = world.stream()
    stranger.free_at_us = 1e9

    with pytest.raises(WrongWhenTimed) as caught:
        setting(late).measure()

    assert "a timed call answered wrongly" in str(caught.value.result.reason)


def test_only_one_of_many_calls_computing_is_found_out(setting: Set) -> None:
    def one_of_many(self: Any, x: Any, out: Any) -> None:
        made.append(x)
        if len(made) % 4 == 1:
            self.launch(KERNEL_US, lambda: out.copy_(2 * x))

    made: list[Any] = []

    with pytest.raises(WrongWhenTimed):
        setting(one_of_many).measure()


def test_an_input_changed_when_timed_is_found_out(setting: Set) -> None:
    def changes(self: Any, x: Any, out: Any) -> None:
        def work() -> None:
            out.copy_(2 * x)
            x.add_(1)

        self.launch(KERNEL_US, work)

    with pytest.raises(WrongWhenTimed) as caught:
        setting(changes).measure()

    assert caught.value.result.reason == "a timed call changed its input 'x'"
    assert caught.value.result.details["caught_by"] == held_clock.CAUGHT_BY


def test_a_queue_that_overflows_is_filled_less_with_inputs_never_seen(
    setting: Set, world: Any
) -> None:
    less = setting(honest, holds=7)
    found = less.measure()
    first = less.worker.rounds[:2]

    assert first == [world.sets, world.sets // 4]
    assert found.call_us == pytest.approx(world.gap_us + KERNEL_US, abs=0.5)
    assert len({case.seed for case in less.drawn}) == world.sets + world.sets // 4


def test_who_waits_for_the_device_cannot_be_held(setting: Set, world: Any) -> None:
    waits = setting(honest, holds=-1)

    found = waits.measure()

    assert (found.call_us, found.reason, found.waits) == (None, WAITS, True)
    assert found.fresh_us == pytest.approx(world.gap_us + KERNEL_US, abs=0.5)
    assert waits.worker.rounds == [24, 6, 1]
    assert len({case.seed for case in waits.drawn}) == 24 + 6 + 1 + 24


def test_long_calls_make_short_rounds(setting: Set) -> None:
    long = setting(honest)
    long.measure(once_us=100_000)

    assert long.worker.rounds[0] == 5  # half a second
    assert max(long.worker.rounds) == 5


def test_no_gate_is_a_reason(setting: Set) -> None:
    ungated = setting(honest)
    ungated.worker.ungated = "the driver cannot"

    assert ungated.measure() == HeldTimes(reason="the driver cannot")
    assert ungated.worker.rounds == []


# -- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 5, 24])
def test_copies_are_timed_by_their_slope(
    world: Any, context: Any, output: Callable[[], Any], count: int
) -> None:
    found = CopyClock(context).copy_us([{"out": output()} for _ in range(count)])

    assert found == pytest.approx(world.copy_us, abs=0.2)


def test_copies_that_never_end_are_our_fault(
    context: Any, output: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "_LIMIT_S", 0.01)
    clock = CopyClock(context)
    context.stream.launch(1e9, nothing)

    with pytest.raises(HarnessError, match=r"copying 2 outputs took longer than 0\.01 s"):
        clock.copy_us([{"out": output()} for _ in range(2)])


def test_where_nothing_can_be_held_copies_are_timed_by_the_host(
    world: Any, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow:
        def copy_(self, source: Any) -> None:
            world.pass_by(25.0)

    def refuse(*addresses: int) -> Any:
        raise Unavailable("no")

    monkeypatch.setattr(context, "open_gate", refuse)

    found = CopyClock(context).copy_us([{"out": Slow()} for _ in range(4)])  # type: ignore[dict-item]

    assert found == pytest.approx(25.0, abs=0.1)
