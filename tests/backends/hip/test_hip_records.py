"""Device times from torch's profiler, and what happens where it keeps none."""

from __future__ import annotations

import time
from typing import Any

import pytest
from atrex_accelerator_common.spans import METHOD, METHOD_FREE
from atrex_accelerator_common.timing import METHOD as EVENTS
from atrex_accelerator_common.timing import NO_WORK
from atrex_accelerator_hip.context import HipContext
from atrex_accelerator_hip.driver import HipError
from atrex_accelerator_hip.records import Record, Recorder

from atrex_core import Unavailable

# -- the recorder ----------------------------------------------------------------------------------


def test_what_ran_on_the_device_is_collected_while_it_runs(hip: Any, torch: Any) -> None:
    recorder = Recorder(torch)
    hip.enqueue(1.0, "before")
    recorder.start()
    hip.enqueue(3.0, "kernel")
    hip.enqueue(2.0, "hipLaunch")  # of the host's
    hip.enqueue(9.0, "annotation")
    found = recorder.drain()
    hip.enqueue(4.0, "later")
    again = recorder.drain()
    recorder.stop()
    hip.enqueue(1.0, "after")

    (kernel,) = found
    assert isinstance(kernel, Record)
    assert (kernel.name, kernel.end_ns - kernel.start_ns) == ("kernel", 3000)
    assert [record.name for record in again] == ["later"]
    assert not torch.is_profiled


def test_a_recorder_is_proved_on_a_piece_of_work(hip: Any, torch: Any) -> None:
    Recorder.load(torch, lambda: hip.enqueue(2.0, "proof"))

    assert not torch.is_profiled


def test_a_profiler_that_records_nothing_is_not_believed(hip: Any, torch: Any) -> None:
    torch.is_forgetful = True

    with pytest.raises(Unavailable, match="records nothing of this device"):
        Recorder.load(torch, lambda: hip.enqueue(2.0, "proof"))

    assert not torch.is_profiled


@pytest.mark.parametrize("skew_ns", [-50_000, 50_000], ids=["early", "late"])
def test_times_of_another_clock_are_not_believed(hip: Any, torch: Any, skew_ns: int) -> None:
    torch.skew_ns = skew_ns

    with pytest.raises(Unavailable, match="are not those of the host's clock"):
        Recorder.load(torch, lambda: hip.enqueue(2.0, "proof"))


def test_a_build_without_device_activities_is_a_reason(torch: Any) -> None:
    torch.profiler.supported_activities = lambda: {"host"}

    with pytest.raises(Unavailable, match="profiler cannot record what a device does"):
        Recorder(torch)


def test_a_profiler_in_use_is_a_reason(torch: Any) -> None:
    torch.is_profiled = True

    with pytest.raises(Unavailable, match="profiler refuses: Profiler is already enabled"):
        Recorder(torch).start()


def test_a_clock_replaced_later_changes_nothing(
    hip: Any, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(torch)
    monkeypatch.setattr(time, "time_ns", lambda: 0)

    assert recorder.now_ns() == hip.clock_ns > 0


def test_the_real_torch_has_what_is_assumed_of_its_profiler() -> None:
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as session:
        began_ns = time.time_ns()
        torch.ones(4096).sum()
        ended_ns = time.time_ns()
    events = session.profiler.kineto_results.events()
    total = next(event for event in events if event.name() == "aten::sum")

    assert hasattr(torch.profiler.ProfilerActivity, "CUDA")
    assert hasattr(torch.autograd.DeviceType, "CUDA")
    assert total.device_type() == torch.autograd.DeviceType.CPU
    assert not total.is_user_annotation()
    assert began_ns - 10**6 < total.start_ns() <= total.end_ns() < ended_ns + 10**6


def test_a_torch_for_the_cpu_is_refused() -> None:
    import torch

    with pytest.raises(Unavailable, match="cannot record what a device does"):
        Recorder(torch)


# -- a context that has records --------------------------------------------------------------------


@pytest.mark.parametrize("records_waits", [True, False], ids=["rocprofiler-sdk", "roctracer"])
def test_samples_are_spans_without_the_hold(
    context: HipContext, hip: Any, torch: Any, records_waits: bool
) -> None:
    hip.records_waits = records_waits

    def call(_index: int) -> None:
        hip.enqueue(12.0, "first")
        hip.enqueue(3.0, "__amd_rocclr_fillBufferAligned")
        hip.enqueue(5.0, "second")

    found = context.sample(call, budget_s=0.5)

    assert set(found.samples_us) == {20.1}  # with two gaps of 50 ns
    assert (found.method, found.reason) == (METHOD, None)
    assert not torch.is_profiled


def test_caches_are_overrun_before_each_call_and_not_in_it(context: HipContext, hip: Any) -> None:
    context.sample(lambda _index: hip.enqueue(5.0), budget_s=0.2)

    names = [entry.name for entry in hip.ran]
    assert names.count("overrun") >= 16


def test_no_work_is_said_by_both_methods(context: HipContext) -> None:
    found = context.sample(lambda _index: None, budget_s=0.2)

    assert (found.samples_us, found.method) == ((), EVENTS)
    assert found.reason == f"no activity records: forward puts no work on the device; {NO_WORK}"


def test_lost_records_give_events_and_the_reason(context: HipContext, hip: Any, torch: Any) -> None:
    torch.losing = {"odd"}

    def call(index: int) -> None:
        hip.enqueue(100.0, "odd" if index % 5 == 0 else "even")

    found = context.sample(call, budget_s=0.5)

    assert found.samples_us == pytest.approx((100.05,) * 10, abs=0.1)
    assert found.method == EVENTS
    assert found.reason == "no activity records: records of some calls are missing"


def test_a_profiler_without_records_gives_events_and_the_reason(
    context: HipContext, hip: Any, torch: Any
) -> None:
    torch.is_forgetful = True

    found = context.sample(lambda _index: hip.enqueue(100.0), budget_s=0.5)

    assert found.samples_us == pytest.approx((100.05,) * 10, abs=0.1)
    assert str(found.reason).startswith("no activity records: torch's profiler records nothing of")


def test_a_candidate_that_profiles_itself_gives_events_and_the_reason(
    context: HipContext, hip: Any, torch: Any
) -> None:
    def call(_index: int) -> None:
        hip.enqueue(100.0)
        torch.is_profiled = True

    found = context.sample(call, budget_s=0.5)

    assert found.method == EVENTS
    assert str(found.reason).startswith("no activity records: torch's profiler refuses: ")


def test_a_call_that_waits_for_the_device_is_measured_without_a_hold(
    context: HipContext, hip: Any
) -> None:
    def call(_index: int) -> None:
        hip.enqueue(7.0)
        hip.wait_until_idle()

    found = context.sample(call, budget_s=0.1)

    assert set(found.samples_us) == {7.0}
    assert found.method == METHOD_FREE
    assert found.reason == "forward waits for the device: its own host time is included"


def test_recording_stops_when_a_call_raises(context: HipContext, hip: Any, torch: Any) -> None:
    def fail(index: int) -> None:
        hip.enqueue(5.0)
        if index > 12:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        context.sample(fail, budget_s=0.5)

    assert not torch.is_profiled
    assert hip.run(), "the stream is let go"


def test_a_device_that_cannot_wait_is_a_reason(context: HipContext, hip: Any) -> None:
    hip.can_wait = 0

    found = context.sample(lambda _index: hip.enqueue(5.0), budget_s=0.1)

    assert (found.samples_us, found.reason) == (
        (),
        "this device cannot let a stream wait for memory",
    )


def test_a_fault_of_the_device_is_not_a_reason(context: HipContext, hip: Any) -> None:
    hip.failing["hipEventSynchronize"] = 700

    with pytest.raises(HipError, match="hipEventSynchronize failed: hipErrorIllegalAddress"):
        context.sample(lambda _index: hip.enqueue(5.0), budget_s=0.2)
