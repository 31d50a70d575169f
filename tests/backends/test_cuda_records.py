"""Activity records and what is read from them, against a CUPTI that records what it is told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from atrex_accelerator_common import spans
from atrex_accelerator_common.spans import LOST, METHOD, METHOD_FREE, NO_WORK, Window, spans_us
from atrex_accelerator_cuda.activities import Record, Recorder
from atrex_accelerator_cuda.context import CudaContext
from atrex_accelerator_cuda.hold import NAME
from attrs import define, field

from atrex_core import Unavailable

KINDS = ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET")


@define(eq=False, slots=False)
class FakeCupti:
    """A device whose clock stands still except while something runs."""

    now_ns: int = 1_000_000
    enabled: list[str] = field(factory=list)
    told: list[str] = field(factory=list)
    refusing: set[str] = field(factory=set)
    losing: bool = False
    ActivityKind: Any = SimpleNamespace(**{kind: kind for kind in KINDS})
    _pending: list[Any] = field(factory=list)
    _complete: Callable[[Sequence[Any]], None] = lambda _records: None

    def get_timestamp(self) -> int:
        self.now_ns += 100
        return self.now_ns

    def activity_register_callbacks(self, request: Any, complete: Any) -> None:
        self._tell("register")
        nbytes, records = request()
        assert nbytes > 0
        assert records == 0
        self._complete = complete

    def activity_enable(self, kind: str) -> None:
        self._tell(f"enable {kind}")
        self.enabled.append(kind)

    def activity_disable(self, kind: str) -> None:
        self._tell(f"disable {kind}")
        if kind in self.enabled:
            self.enabled.remove(kind)

    def activity_flush_all(self, flag: int) -> None:
        self._tell(f"flush {flag}")
        pending, self._pending = self._pending, []
        self._complete(pending)

    def run(self, name: str | None, us: float, kind: str = "CONCURRENT_KERNEL") -> None:
        """Let the device do something."""
        start = self.now_ns + 50
        self.now_ns = start + round(us * 1000)
        if kind in self.enabled and not self.losing:
            activity = SimpleNamespace(start=start, end=self.now_ns)
            if name is not None:
                activity.name = name
            self._pending.append(activity)

    def _tell(self, what: str) -> None:
        self.told.append(what)
        if what in self.refusing:
            raise RuntimeError(f"CUPTI_ERROR at {what}")


@pytest.fixture
def cupti(monkeypatch: pytest.MonkeyPatch) -> FakeCupti:
    cupti = FakeCupti()
    monkeypatch.setitem(sys.modules, "cupti.cupti", cupti)  # type: ignore[arg-type]
    return cupti


# -- the recorder ----------------------------------------------------------------------------------


def test_kernels_copies_and_fills_are_collected_while_it_runs(cupti: FakeCupti) -> None:
    recorder = Recorder.load()
    cupti.run("before", 1)
    recorder.start()
    cupti.run("kernel", 3)
    cupti.run(None, 2, "MEMCPY")
    cupti.run(None, 1, "MEMSET")
    found = recorder.drain()
    again = recorder.drain()
    recorder.stop()
    cupti.run("after", 1)

    assert [(r.name, r.end_ns - r.start_ns) for r in found] == [
        ("kernel", 3000),
        ("", 2000),
        ("", 1000),
    ]
    assert list(again) == list(recorder.drain()) == []
    assert cupti.told[:4] == ["register", *(f"enable {kind}" for kind in KINDS)]
    assert cupti.enabled == []


def test_starting_again_forgets_what_was_left(cupti: FakeCupti) -> None:
    recorder = Recorder.load()
    recorder.start()
    cupti.run("old", 1)
    cupti.activity_flush_all(1)
    recorder.start()

    assert list(recorder.drain()) == []


def test_a_clock_replaced_later_changes_nothing(cupti: FakeCupti) -> None:
    recorder = Recorder.load()
    cupti.get_timestamp = lambda: 0  # type: ignore[method-assign]

    assert recorder.now_ns() > 1_000_000


def test_missing_bindings_are_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti.cupti", None)

    with pytest.raises(Unavailable, match="activity records need cupti-python: ") as raised:
        Recorder.load()

    assert raised.value.hint == "pip install 'atrex-eval[cuda]'"


@pytest.mark.parametrize("what", ["register", "enable MEMCPY", "flush 1", "disable MEMSET"])
def test_every_refusal_is_a_reason(cupti: FakeCupti, what: str) -> None:
    cupti.refusing.add(what)

    def record() -> None:
        recorder = Recorder.load()
        recorder.start()
        recorder.drain()
        recorder.stop()

    with pytest.raises(Unavailable, match=f"CUPTI refuses: CUPTI_ERROR at {what}"):
        record()


def test_a_start_that_fails_halfway_leaves_nothing_on(cupti: FakeCupti) -> None:
    recorder = Recorder.load()
    cupti.refusing.add("enable MEMSET")

    with pytest.raises(Unavailable):
        recorder.start()

    assert cupti.enabled == []


# -- spans -----------------------------------------------------------------------------------------


def record(start_us: float, end_us: float, name: str = "kernel") -> Record:
    return Record(round(start_us * 1000), round(end_us * 1000), name)


def window(start_us: float, end_us: float) -> Window:
    return Window(round(start_us * 1000), round(end_us * 1000))


def test_three_kernels_span_from_first_start_to_last_end() -> None:
    records = [record(10, 12), record(15, 16), record(13, 14)]

    assert spans_us([window(0, 100)], records, hold_name=NAME) == [6.0]


def test_streams_that_overlap_count_once() -> None:
    records = [record(10, 30), record(12, 18), record(20, 35)]

    assert spans_us([window(0, 100)], records, hold_name=NAME) == [25.0]


def test_the_hold_is_left_out_once() -> None:
    records = [record(1, 9, NAME), record(10, 12), record(14, 20, NAME)]

    assert spans_us([window(0, 100)], records, hold_name=NAME) == [10.0]
    assert spans_us([window(0, 100)], records, hold_name=None) == [19.0]


def test_a_hold_alone_is_no_work() -> None:
    assert spans_us([window(0, 100)], [record(1, 9, NAME)], hold_name=NAME) == [None]


def test_each_window_has_its_own_records() -> None:
    windows = [window(0, 100), window(200, 300), window(400, 500)]
    records = [record(410, 411), record(10, 12), record(150, 160), record(600, 601), record(-9, -8)]

    assert spans_us(windows, records, hold_name=NAME) == [2.0, None, 1.0]


def test_a_record_belongs_where_its_middle_lies() -> None:
    windows = [window(0, 100), window(100, 200)]

    assert spans_us(windows, [record(90, 104), record(98, 140)], hold_name=NAME) == [14.0, 42.0]


# -- a context that has records --------------------------------------------------------------------


@pytest.fixture
def holds(bindings: Any, cupti: FakeCupti, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel that holds the queue leave a record, too."""
    launch = bindings._cuLaunchKernel

    def held(*arguments: Any) -> tuple[Any, ...]:
        cupti.run(NAME, 40)
        return tuple(launch(*arguments))

    monkeypatch.setattr(bindings, "_cuLaunchKernel", held)


@pytest.mark.usefixtures("holds")
def test_samples_are_spans_without_the_hold(
    context: CudaContext, cupti: FakeCupti, bindings: Any
) -> None:
    def call(_index: int) -> None:
        bindings.work_us += 20.0
        cupti.run("first", 12)
        cupti.run(None, 3, "MEMSET")
        cupti.run("second", 5)

    found = context.sample(call, budget_s=0.5)

    assert set(found.samples_us) == {20.1}  # with two gaps of 50 ns
    assert (found.method, found.reason) == (METHOD, None)
    assert cupti.enabled == []
    assert "cuCtxResetPersistingL2Cache" in bindings.names()


@pytest.mark.usefixtures("holds")
def test_caches_are_overrun_outside_the_span(
    context: CudaContext, cupti: FakeCupti, torch: Any
) -> None:
    context.sample(lambda _index: cupti.run("kernel", 5), budget_s=0.2)

    assert torch.told.count("read") >= 16
    assert torch.told.count("zeros (31457280,) cuda:1") == 1  # twice the cache, in 4-byte words


@pytest.mark.usefixtures("holds")
def test_no_work_and_lost_records_are_reasons(context: CudaContext, cupti: FakeCupti) -> None:
    def forgetful(index: int) -> None:
        cupti.losing = index % 5 == 0
        cupti.run("kernel", 5)
        cupti.losing = False

    nothing = context.sample(lambda _index: None, budget_s=0.2)
    lost = context.sample(forgetful, budget_s=0.2)

    assert (nothing.samples_us, nothing.reason) == ((), NO_WORK)
    assert (lost.samples_us, lost.reason) == ((), LOST)
    assert cupti.enabled == []


@pytest.mark.usefixtures("holds")
@pytest.mark.parametrize("what", ["register", "enable MEMCPY", "flush 1"])
def test_a_refusal_gives_events_and_the_reason(
    context: CudaContext, cupti: FakeCupti, bindings: Any, what: str
) -> None:
    cupti.refusing.add(what)

    def call(_index: int) -> None:
        bindings.work_us += 100.0

    found = context.sample(call, budget_s=0.5)

    assert found.samples_us == pytest.approx((100.0,) * 10)
    assert found.method == "events around a held queue"
    assert found.reason == f"no activity records: CUPTI refuses: CUPTI_ERROR at {what}"
    assert cupti.enabled == []


@pytest.mark.usefixtures("holds")
def test_recording_stops_when_a_call_raises(context: CudaContext, cupti: FakeCupti) -> None:
    def fail(index: int) -> None:
        cupti.run("kernel", 5)
        if index > 12:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        context.sample(fail, budget_s=0.5)

    assert cupti.enabled == []


def test_who_waits_for_the_device_has_no_hold_to_leave_out(
    cupti: FakeCupti, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans.Turn, "can_be_held", lambda self: False)

    class Free:
        def run_free(self, call: Callable[[int], None], index: int) -> float:
            call(index)
            return 1e-5

        def run_held(self, *arguments: Any, **more: Any) -> Any:
            raise AssertionError("it cannot be held")

    found = spans.measure(
        Free(),
        Recorder.load(),
        lambda _index: cupti.run(NAME, 7),
        hold_name=NAME,
        overrun=lambda: None,
        budget_s=0.2,
    )

    assert set(found.samples_us) == {7.0}
    assert found.method == METHOD_FREE
    assert found.reason == "forward waits for the device: its own host time is included"


# -- the gate --------------------------------------------------------------------------------------


def test_a_gate_pins_its_page_and_waits_on_the_current_stream(
    context: CudaContext, bindings: Any
) -> None:
    gate = context.open_gate(0x7000_1040, 0x7000_1080)
    gate.hold(5)
    gate.mark(6)

    page_on_device = 0x7000_1001  # as the recording driver gives it: one byte on
    assert ("cuMemHostRegister", 0x7000_1000, 4096, 3) in bindings.told
    assert bindings.told[-3:] == [
        ("cuCtxResetPersistingL2Cache",),
        ("cuStreamWaitValue32", 1, page_on_device + 0x40, 5, 0),
        ("cuStreamWriteValue32", 1, page_on_device + 0x80, 6, 0),
    ]


def test_lines_that_a_call_has_set_aside_are_given_back_before_caches_are_overrun(
    context: CudaContext, torch: Any, bindings: Any
) -> None:
    bindings.told.clear()
    torch.told.clear()

    context.overrun_caches()

    assert bindings.names() == ["cuCtxSetCurrent", "cuCtxResetPersistingL2Cache"]
    assert torch.told[-1] == "read"


def test_a_driver_that_does_not_pin_is_a_reason(context: CudaContext, bindings: Any) -> None:
    bindings.failing["cuMemHostRegister"] = bindings.Result.INVALID_CONTEXT

    with pytest.raises(Unavailable, match="the referee cannot hold a queue of this device: cuMem"):
        context.open_gate(0x7000_1040, 0x7000_1080)


def test_gpus_without_persisting_lines_have_none_to_give_back(
    context: CudaContext, cupti: FakeCupti, bindings: Any
) -> None:
    bindings.failing["cuCtxResetPersistingL2Cache"] = bindings.Result.NOT_SUPPORTED

    assert context.sample(lambda _index: None, budget_s=0.1).reason == NO_WORK
