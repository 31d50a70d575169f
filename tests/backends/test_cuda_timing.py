"""The policy of device timing, against a simulated device with an exact clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from atrex_accelerator_common.timing import METHOD, Batch, measure
from attrs import define, field

EVENT_US = 1.5
IDLE_TAIL_US = 8.0
QUEUE_LAUNCHES = 1000


@define
class SimulatedQueue:
    """Charges a virtual clock for what a candidate would cost host and device."""

    device_us: float
    host_us: float = 20.0
    launches: int = 1
    synchronises: Callable[[int], bool] = lambda _index: False
    off_stream_us: float = 0.0
    """Device time per call on a stream that the call's own does not wait for."""
    now_s: float = 0.0
    limits_s: list[float] = field(factory=list)
    batches: list[int] = field(factory=list)
    odd_tails_us: dict[int, float] = field(factory=dict)

    def run_free(self, call: Callable[[int], None], index: int) -> float:
        call(index)
        kept_us = self.host_us + (self.device_us if self.synchronises(index) else 0.0)
        self.now_s += (self.host_us + self.device_us) * 1e-6
        return kept_us * 1e-6

    def run_held(
        self, call: Callable[[int], None], *, first: int, calls: int, limit_s: float
    ) -> Batch:
        self.limits_s.append(limit_s)
        kept_us: list[float] = []
        for index in range(first, first + calls):
            call(index)
            blocked = self.synchronises(index) or (len(kept_us) + 1) * self.launches > (
                QUEUE_LAUNCHES
            )
            stopped_before = any(kept > self.host_us for kept in kept_us)
            kept_us.append(limit_s * 1e6 if blocked and not stopped_before else self.host_us)
        if calls:
            self.batches.append(calls)
        on_stream_us = calls * self.device_us + EVENT_US
        off_stream_us = calls * self.off_stream_us
        tail_us = max(IDLE_TAIL_US, off_stream_us - on_stream_us)
        tail_us += self.odd_tails_us.get(len(self.batches), 0.0) if calls else 0.0
        self.now_s += (sum(kept_us) + on_stream_us + tail_us) * 1e-6
        return Batch(
            calls=calls,
            held=sum(kept_us) < limit_s * 1e6,
            slowest=kept_us.index(max(kept_us)) if kept_us else 0,
            device_us=on_stream_us,
            tail_us=tail_us,
        )

    def clock(self) -> float:
        return self.now_s


def ignore(_index: int) -> None:
    pass


def test_a_short_kernel_is_averaged_over_full_batches() -> None:
    queue = SimulatedQueue(device_us=3.3)

    found = measure(queue, ignore, budget_s=1.0, clock=queue.clock)

    assert found.method == METHOD
    assert found.reason is None
    assert len(found.samples_us) == 10
    assert found.samples_us[0] == pytest.approx(3.3 + 1.5 / 64)
    assert set(queue.batches[1:]) == {64}


def test_a_batch_need_not_be_longer_than_a_millisecond() -> None:
    queue = SimulatedQueue(device_us=98.0)

    measure(queue, ignore, budget_s=1.0, clock=queue.clock)

    assert set(queue.batches[1:]) == {11}  # the probe saw 98 + 1.5 us; 1000 / 99.5 rounded up


def test_a_long_kernel_is_timed_one_call_at_a_time_within_the_budget() -> None:
    queue = SimulatedQueue(device_us=50_000.0)

    found = measure(queue, ignore, budget_s=0.5, clock=queue.clock)

    assert set(queue.batches) == {1}
    assert 1 <= len(found.samples_us) < 10
    assert found.samples_us[0] == pytest.approx(50_001.5)
    assert queue.now_s < 0.6


def test_one_sample_is_taken_even_if_the_budget_is_spent() -> None:
    queue = SimulatedQueue(device_us=2e6)

    found = measure(queue, ignore, budget_s=0.1, clock=queue.clock)

    assert len(found.samples_us) == 1


def test_indices_start_at_zero_and_never_repeat() -> None:
    seen: list[int] = []
    queue = SimulatedQueue(device_us=40.0)

    measure(queue, seen.append, budget_s=1.0, clock=queue.clock)

    assert seen == list(range(len(seen)))
    assert len(seen) > 10 * 24


def test_a_call_that_synchronises_has_no_device_time() -> None:
    queue = SimulatedQueue(device_us=30.0, synchronises=lambda _index: True)

    found = measure(queue, ignore, budget_s=1.0, clock=queue.clock)

    assert found.samples_us == ()
    assert found.reason == "forward synchronises; only call time is known"
    assert queue.limits_s[-3:] == [0.05, 0.1, 0.2]


def test_a_call_that_synchronises_at_times_is_named_if_it_spoils_the_batches() -> None:
    queue = SimulatedQueue(
        device_us=2000.0, synchronises=lambda index: index > 15 and index % 50 != 0
    )

    found = measure(queue, ignore, budget_s=5.0, clock=queue.clock)

    assert found.samples_us == ()
    assert found.reason is not None
    assert found.reason.endswith("forward synchronises at times; only call time is known")


def test_a_single_interrupt_does_not_shrink_the_batches() -> None:
    queue = SimulatedQueue(device_us=3.0, synchronises=lambda index: index == 900)

    found = measure(queue, ignore, budget_s=1.0, clock=queue.clock)

    assert len(found.samples_us) == 10
    assert set(queue.batches[1:]) == {64}
    assert len(queue.batches) == 1 + 10 + 1


def test_batches_shrink_to_what_the_launch_queue_takes() -> None:
    queue = SimulatedQueue(device_us=15.0, host_us=200.0, launches=40)

    found = measure(queue, ignore, budget_s=2.0, clock=queue.clock)

    assert len(found.samples_us) == 10
    assert queue.batches == [1, 61, 61, *[25] * 10]  # 25 calls of 40 launches make 1000


def test_a_slow_host_gets_fewer_calls_and_a_longer_hold() -> None:
    queue = SimulatedQueue(device_us=3.0, host_us=10_000.0)

    found = measure(queue, ignore, budget_s=1.0, clock=queue.clock)

    assert set(queue.batches[1:]) == {9}
    assert found.samples_us[0] == pytest.approx(3.0 + 1.5 / 9)
    assert max(queue.limits_s) == pytest.approx(0.45)


def test_a_host_slower_than_the_longest_hold_is_refused() -> None:
    queue = SimulatedQueue(device_us=3.0, host_us=600_000.0)

    found = measure(queue, ignore, budget_s=1.0, clock=queue.clock)

    assert found.samples_us == ()
    assert found.reason == (
        "one call keeps the host for 0.60 s, and the device can be held for only 1 s; "
        "only call time is known"
    )
    assert queue.limits_s == []


def test_work_left_on_another_stream_is_found_out() -> None:
    queue = SimulatedQueue(device_us=0.0, off_stream_us=20.0)

    found = measure(queue, ignore, budget_s=1.0, clock=queue.clock)

    assert found.samples_us == ()
    assert found.reason == "work outlives the stream it was launched from"


def test_one_late_host_is_not_taken_for_work_on_another_stream() -> None:
    queue = SimulatedQueue(device_us=3.0, odd_tails_us={3: 5000.0, 7: 5000.0})

    found = measure(queue, ignore, budget_s=1.0, clock=queue.clock)

    assert len(found.samples_us) == 10


def test_a_call_without_device_work_has_no_device_time() -> None:
    queue = SimulatedQueue(device_us=0.0)

    found = measure(queue, ignore, budget_s=1.0, clock=queue.clock)

    assert found.samples_us == ()
    assert found.reason == "forward puts no work on its stream"


def test_what_a_call_raises_passes_through() -> None:
    def fail(_index: int) -> None:
        raise ZeroDivisionError

    queue = SimulatedQueue(device_us=3.0)

    with pytest.raises(ZeroDivisionError):
        measure(queue, fail, budget_s=1.0, clock=queue.clock)
