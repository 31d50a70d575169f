"""Memory, the held queue and the context, against a driver that records what it is told."""

from __future__ import annotations

import ctypes
import enum
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from atrex_accelerator_cuda.context import CudaContext, open_context
from atrex_accelerator_cuda.driver import CudaError, Driver
from atrex_accelerator_cuda.held_queue import HeldQueue
from atrex_accelerator_cuda.hold import Hold

from atrex_core import BufferHandle, Device, DType, HarnessError, Unavailable

MIB = 2**20
HANDLE = bytes(range(64))
DEVICE = Device(
    id="cuda:1",
    accelerator="cuda",
    vendor="nvidia",
    name="NVIDIA H200",
    arch="sm_90",
    index=1,
    driver="580.159.04",
)


class Result(enum.IntEnum):
    SUCCESS = 0
    OUT_OF_MEMORY = 2
    INVALID_CONTEXT = 201
    INVALID_PTX = 218
    NOT_READY = 600
    ILLEGAL_ADDRESS = 700


class FakeBindings:
    """The functions of `cuda.bindings.driver` that are used, on a device of 8 MiB.

    Commands run as soon as nothing holds the stream; a hold ends when its host word is set.
    """

    class CUipcMemHandle:
        reserved = HANDLE

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.failing: dict[str, Result] = {}
        self.free_bytes = 8 * MIB
        self._word = ctypes.c_uint32(77)
        self._epoch = 0
        self.work_us = 0.0
        """Device time of everything enqueued so far."""
        self._reached_us: dict[int, float] = {}
        self._happened: set[int] = set()
        self._queued: list[int] = []

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.told.append((name, *arguments))
            if name in self.failing:
                return (self.failing[name], None)
            values = getattr(self, f"_{name}", lambda *_: ())(*arguments)
            return values if values and isinstance(values[0], Result) else (Result(0), *values)

        return call

    def names(self) -> list[str]:
        return [entry[0] for entry in self.told]

    def _cuDeviceGet(self, ordinal: int) -> tuple[Any, ...]:
        return (f"device {ordinal}",)

    def _cuDevicePrimaryCtxRetain(self, device: str) -> tuple[Any, ...]:
        return (f"context of {device}",)

    def _cuDriverGetVersion(self) -> tuple[Any, ...]:
        return (13010,)

    def _cuMemGetInfo(self) -> tuple[Any, ...]:
        return (self.free_bytes, 8 * MIB)

    def _cuMemAlloc(self, nbytes: int) -> tuple[Any, ...]:
        if nbytes > self.free_bytes:
            return (Result.OUT_OF_MEMORY, None)
        address = 0x7F00_0000_0000 + len(self.told) * 64 * MIB
        self.free_bytes -= nbytes
        return (address,)

    def _cuIpcGetMemHandle(self, _address: int) -> tuple[Any, ...]:
        return (SimpleNamespace(reserved=HANDLE),)

    def _cuIpcOpenMemHandle(self, _handle: Any, _flags: int) -> tuple[Any, ...]:
        return (0x7E00_0000_0000,)

    def _cuMemHostAlloc(self, _nbytes: int, _flags: int) -> tuple[Any, ...]:
        return (ctypes.addressof(self._word),)

    def _cuMemHostGetDevicePointer(self, address: int, _flags: int) -> tuple[Any, ...]:
        return (address + 1,)

    def _cuModuleLoadData(self, _image: bytes) -> tuple[Any, ...]:
        return ("module",)

    def _cuModuleGetFunction(self, _module: str, _name: bytes) -> tuple[Any, ...]:
        return ("kernel",)

    def _cuLaunchKernel(self, *arguments: Any) -> tuple[Any, ...]:
        self._epoch = arguments[9][0][3]
        return ()

    def _cuEventCreate(self, _flags: int) -> tuple[Any, ...]:
        return (len(self.told),)

    def _cuEventRecord(self, event: int, _stream: int) -> tuple[Any, ...]:
        self._happened.discard(event)
        self._reached_us[event] = self.work_us
        self._queued.append(event)
        return ()

    def _cuEventQuery(self, event: int) -> tuple[Any, ...]:
        return () if self._is_past(event) else (Result.NOT_READY,)

    def _cuEventSynchronize(self, event: int) -> tuple[Any, ...]:
        assert self._is_past(event), "this would wait for ever"
        return ()

    def _cuEventElapsedTime(self, start: int, end: int) -> tuple[Any, ...]:
        return ((self._reached_us[end] - self._reached_us[start]) / 1000,)

    def _cuGetErrorName(self, status: Result) -> tuple[Any, ...]:
        return (f"CUDA_ERROR_{status.name}".encode(),)

    def _cuGetErrorString(self, _status: Result) -> tuple[Any, ...]:
        return (b"it went wrong",)

    def _is_past(self, event: int) -> bool:
        if self._word.value >= self._epoch:
            self._happened.update(self._queued)
            self._queued.clear()
        return event in self._happened


class FakeTorch:
    """The corner of torch that is used."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.version = SimpleNamespace(cuda="13.0")
        self.properties = SimpleNamespace(
            name="NVIDIA H200",
            major=9,
            minor=0,
            multi_processor_count=132,
            max_threads_per_multi_processor=2048,
            L2_cache_size=62_914_560,
            uuid="8f6b0000-aaaa",
        )
        self.cuda = SimpleNamespace(
            init=lambda: self.told.append("init"),
            set_device=lambda index: self.told.append(f"set_device {index}"),
            synchronize=lambda index: self.told.append(f"synchronize {index}"),
            get_device_properties=lambda _index: self.properties,
            current_stream=lambda _index: SimpleNamespace(cuda_stream=0),
            empty_cache=lambda: self.told.append("empty_cache"),
            max_memory_allocated=lambda _index: 4096,
            reset_peak_memory_stats=lambda index: self.told.append(f"reset {index}"),
        )

    def zeros(self, *shape: int, device: str) -> None:
        self.told.append(f"zeros {shape} {device}")

    def as_tensor(self, source: Any, *, device: str) -> Any:
        return FakeTensor(source, device)


class FakeTensor:
    def __init__(self, source: Any, device: str) -> None:
        self.interface = source.__cuda_array_interface__
        self.device = device

    def view(self, _what: Any) -> FakeTensor:
        return self


@pytest.fixture
def bindings() -> FakeBindings:
    return FakeBindings()


@pytest.fixture
def torch() -> FakeTorch:
    return FakeTorch()


@pytest.fixture(autouse=True)
def device_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")  # and back, whatever a test does


@pytest.fixture
def context(bindings: FakeBindings, torch: FakeTorch) -> CudaContext:
    return CudaContext(DEVICE, torch=torch, bindings=bindings)


# -- memory ----------------------------------------------------------------------------------------


def test_a_buffer_travels_as_the_drivers_handle(
    context: CudaContext, bindings: FakeBindings
) -> None:
    exported = context.allocate(10).handle()
    mapped = context.open_buffer(exported)
    view: Any = mapped.tensor(DType.UINT8, (4,), offset_bytes=6)

    assert exported == BufferHandle(kind="cuda-ipc", nbytes=10, token=HANDLE.hex())
    _, opened, flags = next(entry for entry in bindings.told if entry[0] == "cuIpcOpenMemHandle")
    assert (opened.reserved, flags) == (HANDLE, 1)
    assert view.interface["data"] == (0x7E00_0000_0006, False)
    assert view.device == "cuda:1"


def test_torchs_cache_is_given_back_before_giving_up(
    context: CudaContext, torch: FakeTorch
) -> None:
    with pytest.raises(MemoryError):
        context.allocate(9 * MIB)

    assert torch.told.count("empty_cache") == 1


# -- the held queue --------------------------------------------------------------------------------


@pytest.fixture
def queue(bindings: FakeBindings) -> HeldQueue:
    driver = Driver(bindings, 0)
    hold = Hold(driver, multiprocessors=132, threads_each=2048)
    return HeldQueue(driver, hold, current_stream=lambda: 0, synchronize=lambda: None)


def test_a_batch_is_enqueued_between_two_events_behind_a_full_device(
    queue: HeldQueue, bindings: FakeBindings
) -> None:
    bindings.told.clear()

    def call(index: int) -> None:
        bindings.told.append(("call", index))
        bindings.work_us += 125.0

    batch = queue.run_held(call, first=7, calls=2, limit_s=0.05)

    assert bindings.names() == [
        "cuLaunchKernel",
        "cuEventRecord",
        "call",
        "call",
        "cuEventRecord",
        "cuEventQuery",
        "cuEventSynchronize",
        "cuEventElapsedTime",
    ]
    _, _, *grid_and_block, shared_bytes, stream, parameters, _ = bindings.told[0]
    assert grid_and_block == [528, 1, 1, 512, 1, 1]  # 132 multiprocessors of 2048 threads
    assert (shared_bytes, stream) == (0, 1)
    assert parameters[0][2:] == (50_000_000, 2)
    assert [entry[1] for entry in bindings.told[2:4]] == [7, 8]
    assert (batch.calls, batch.held, batch.device_us) == (2, True, 250.0)


def test_a_hold_that_ended_early_is_noticed(queue: HeldQueue, bindings: FakeBindings) -> None:
    def outlast(index: int) -> None:
        if index == 1:
            bindings._epoch = 0  # the kernel's own time limit

    batch = queue.run_held(outlast, first=0, calls=3, limit_s=0.05)

    assert not batch.held


def test_the_device_is_let_go_when_a_call_raises(queue: HeldQueue, bindings: FakeBindings) -> None:
    def fail(_index: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        queue.run_held(fail, first=0, calls=1, limit_s=0.05)

    assert bindings._word.value == bindings._epoch


# -- the context -----------------------------------------------------------------------------------


def test_opening_joins_the_context_that_torch_uses(
    context: CudaContext, bindings: FakeBindings, torch: FakeTorch
) -> None:
    assert torch.told == ["init", "set_device 1", "zeros (1,) cuda:1", "synchronize 1"]
    assert bindings.told[-1] == ("cuCtxSetCurrent", "context of device 1")
    assert context.torch_device == "cuda:1"
    assert context.last_level_cache_bytes == 62_914_560
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_versions_name_driver_runtime_and_gpu(context: CudaContext) -> None:
    assert context.versions() == {
        "driver": "580.159.04",
        "cuda_driver_api": "13.1",
        "cuda_runtime": "13.0",
        "device_uuid": "GPU-8f6b0000-aaaa",
        "last_level_cache_bytes": "62914560",
        "compute_units": "132",
    }


def test_peak_memory_is_torchs(context: CudaContext, torch: FakeTorch) -> None:
    context.reset_peak_memory()

    assert context.peak_memory_bytes() == 4096
    assert torch.told[-1] == "reset 1"


def test_sampling_returns_device_time_per_call(
    context: CudaContext, bindings: FakeBindings
) -> None:
    def call(_index: int) -> None:
        bindings.work_us += 100.0

    found = context.sample(call, budget_s=0.5)

    assert found.samples_us == pytest.approx((100.0,) * 10)
    assert found.method == "events around a held queue"
    assert found.reason is None


def test_a_driver_without_a_compiler_is_a_reason(
    context: CudaContext, bindings: FakeBindings
) -> None:
    bindings.failing["cuModuleLoadData"] = Result.INVALID_PTX

    found = context.sample(lambda _index: None, budget_s=0.2)

    assert found.samples_us == ()
    assert found.method == "events around a held queue"
    assert found.reason == (
        "the driver cannot build the kernel that holds the queue: cuModuleLoadData failed: "
        "CUDA_ERROR_INVALID_PTX: it went wrong"
    )


def test_a_fault_of_the_device_is_not_a_reason(
    context: CudaContext, bindings: FakeBindings
) -> None:
    bindings.failing["cuEventSynchronize"] = Result.ILLEGAL_ADDRESS

    with pytest.raises(CudaError, match="cuEventSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
        context.sample(lambda _index: None, budget_s=0.2)


def test_another_gpu_than_the_one_listed_is_refused(
    bindings: FakeBindings, torch: FakeTorch
) -> None:
    torch.properties.major = 8

    with pytest.raises(HarnessError, match=r'"cuda:1" should be NVIDIA H200 \(sm_90\)'):
        CudaContext(DEVICE, torch=torch, bindings=bindings)


def test_a_torch_without_cuda_is_unavailable(bindings: FakeBindings, torch: FakeTorch) -> None:
    def refuse() -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    torch.cuda.init = refuse

    with pytest.raises(Unavailable, match="this torch cannot use CUDA") as raised:
        CudaContext(DEVICE, torch=torch, bindings=bindings)

    assert raised.value.hint == "install torch in its CUDA build"


def test_missing_bindings_are_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)

    with pytest.raises(Unavailable) as raised:
        open_context(DEVICE)

    assert raised.value.hint == "pip install 'atrex-eval[cuda]'"
