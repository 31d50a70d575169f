"""Memory, the held queue and the context, against a driver that records what it is told."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import pytest
from atrex_accelerator_common.held_queue import HeldQueue
from atrex_accelerator_cuda.context import CudaContext, open_context
from atrex_accelerator_cuda.driver import CudaError, Driver
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


@pytest.fixture(autouse=True)
def _variables(device_order: None) -> None:
    """Undo what opening a context sets."""


# -- memory ----------------------------------------------------------------------------------------


def test_a_buffer_travels_as_the_drivers_handle(context: CudaContext, bindings: Any) -> None:
    exported = context.allocate(10).handle()
    mapped = context.open_buffer(exported)
    view: Any = mapped.tensor(DType.UINT8, (4,), offset_bytes=6)

    assert exported == BufferHandle(kind="cuda-ipc", nbytes=10, token=HANDLE.hex())
    _, opened, flags = next(entry for entry in bindings.told if entry[0] == "cuIpcOpenMemHandle")
    assert (opened.reserved, flags) == (HANDLE, 1)
    assert view.interface["data"] == (0x7E00_0000_0006, False)
    assert view.device == "cuda:1"


def test_torchs_cache_is_given_back_before_giving_up(context: CudaContext, torch: Any) -> None:
    with pytest.raises(MemoryError):
        context.allocate(9 * MIB)

    assert torch.told.count("empty_cache") == 1


# -- the held queue --------------------------------------------------------------------------------


@pytest.fixture
def queue(bindings: Any) -> HeldQueue:
    driver = Driver(bindings, 0)
    hold = Hold(driver, multiprocessors=132, threads_each=2048)
    return HeldQueue(driver, hold, current_stream=lambda: 0, synchronize=lambda: None)


def test_a_batch_is_enqueued_between_two_events_behind_a_full_device(
    queue: HeldQueue, bindings: Any
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


def test_a_hold_that_ended_early_is_noticed(queue: HeldQueue, bindings: Any) -> None:
    def outlast(index: int) -> None:
        if index == 1:
            bindings._epoch = 0  # the kernel's own time limit

    batch = queue.run_held(outlast, first=0, calls=3, limit_s=0.05)

    assert not batch.held


def test_the_device_is_let_go_when_a_call_raises(queue: HeldQueue, bindings: Any) -> None:
    def fail(_index: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        queue.run_held(fail, first=0, calls=1, limit_s=0.05)

    assert bindings._word.value == bindings._epoch


# -- the context -----------------------------------------------------------------------------------


def test_opening_joins_the_context_that_torch_uses(
    context: CudaContext, bindings: Any, torch: Any
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


def test_peak_memory_is_torchs(context: CudaContext, torch: Any) -> None:
    context.reset_peak_memory()

    assert context.peak_memory_bytes() == 4096
    assert torch.told[-1] == "reset 1"


def test_without_records_sampling_is_by_events_and_says_why(
    context: CudaContext, bindings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupti.cupti", None)

    def call(_index: int) -> None:
        bindings.work_us += 100.0

    found = context.sample(call, budget_s=0.5)

    assert found.samples_us == pytest.approx((100.0,) * 10)
    assert found.method == "events around a held queue"
    assert str(found.reason).startswith("no activity records: activity records need cupti-python: ")


def test_a_driver_without_a_compiler_is_a_reason(context: CudaContext, bindings: Any) -> None:
    bindings.failing["cuModuleLoadData"] = bindings.Result.INVALID_PTX

    found = context.sample(lambda _index: None, budget_s=0.2)

    assert found.samples_us == ()
    assert found.method == "events around a held queue"
    assert found.reason == (
        "the driver cannot build the kernel that holds the queue: cuModuleLoadData failed: "
        "CUDA_ERROR_INVALID_PTX: it went wrong"
    )


def test_a_fault_of_the_device_is_not_a_reason(context: CudaContext, bindings: Any) -> None:
    bindings.failing["cuEventSynchronize"] = bindings.Result.ILLEGAL_ADDRESS

    with pytest.raises(CudaError, match="cuEventSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
        context.sample(lambda _index: None, budget_s=0.2)


def test_conditions_without_the_management_bindings_are_a_reason(
    context: CudaContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    found = context.conditions()

    assert found.clock_mhz is None
    assert found.reason is not None
    assert found.reason.startswith("clocks and power need nvidia-ml-py: ")


def test_conditions_are_those_of_the_gpu_that_torch_opened(
    context: CudaContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nvml:
        class NVMLError(Exception):
            value = 3

        @staticmethod
        def nvmlInit() -> None:
            pass

        @staticmethod
        def nvmlDeviceGetHandleByUUID(uuid: str) -> str:
            return uuid

        def __getattr__(self, name: str) -> Callable[..., int]:
            def call(handle: str, *arguments: int) -> int:
                assert handle == "GPU-8f6b0000-aaaa"
                if name == "nvmlDeviceGetTemperature":
                    return 51
                raise self.NVMLError("Not Supported")

            return call

    monkeypatch.setitem(sys.modules, "pynvml", Nvml())  # type: ignore[arg-type]

    assert context.conditions().temperature_c == 51.0


def test_another_gpu_than_the_one_listed_is_refused(bindings: Any, torch: Any) -> None:
    torch.properties.major = 8

    with pytest.raises(HarnessError, match=r'"cuda:1" should be NVIDIA H200 \(sm_90\)'):
        CudaContext(DEVICE, torch=torch, bindings=bindings)


def test_a_torch_without_cuda_is_unavailable(bindings: Any, torch: Any) -> None:
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
