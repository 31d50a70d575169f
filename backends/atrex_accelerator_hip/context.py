"""One process's hold on one AMD GPU, shared between torch's ROCm build and HIP itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from atrex_accelerator_common.context import GpuContext, Torch, start_torch
from atrex_accelerator_common.held_queue import HeldQueue
from atrex_accelerator_common.memory import Ipc
from atrex_accelerator_common.timing import METHOD

from atrex_accelerator_hip import library
from atrex_accelerator_hip.conditions import Reader
from atrex_accelerator_hip.driver import Driver, HipError
from atrex_accelerator_hip.hold import NAME, Hold
from atrex_accelerator_hip.library import Library
from atrex_accelerator_hip.records import Recorder, register
from atrex_core import Device, DeviceSamples, HarnessError, QueueGate, Unavailable

_ROCM_BUILD: Final = "install torch in its ROCm build"
_CANNOT_WAIT: Final = "this device cannot let a stream wait for memory"


def open_context(device: Device) -> HipContext:
    """Initialise `device` with the installed torch and the HIP that torch has loaded.

    Raises:
        Unavailable: one of them is missing, or torch was built without ROCm.
        HarnessError: the device does not start.
    """
    try:
        import torch
    except ImportError as error:
        raise Unavailable(f"torch cannot be imported: {error}", hint=_ROCM_BUILD) from error
    if torch.version.hip is None:
        raise Unavailable("this torch was built without ROCm", hint=_ROCM_BUILD)
    path = library.loaded()
    if path is None:
        raise Unavailable("torch has not loaded HIP's library", hint=_ROCM_BUILD)
    return HipContext(device, torch=torch, hip=library.load(path))


class HipContext(GpuContext):
    """Torch's hold on one GPU, with raw memory and a clock beside it."""

    ipc: ClassVar[Ipc] = Ipc(
        kind="hip-ipc",
        needs="HIP shares memory on Linux alone, and with HSA_ENABLE_IPC_MODE_LEGACY either set to "
        "0 or to 1: some kernels know only one of the two ways",
    )

    hold_name: ClassVar[str] = NAME

    def __init__(self, device: Device, *, torch: Torch, hip: Library) -> None:
        """Initialise HIP in this process. Needs about a second."""
        self._properties = start_torch(
            device, torch, kind="HIP", hint=_ROCM_BUILD, before=lambda: register(torch)
        )
        found = str(self._properties.gcnArchName).split(":")[0]
        if found != device.arch:
            raise HarnessError(
                f'"{device.id}" should be {device.name} ({device.arch}), but HIP gives '
                f"{self._properties.name} ({found})",
                hint="HIP_VISIBLE_DEVICES and its like must not change while a command runs",
            )
        try:
            self._hip = Driver(hip, device.index)
            reader = Reader(self._hip.bus_id())
        except HipError as error:
            raise HarnessError(f'device "{device.id}" does not start: {error}') from error
        super().__init__(
            device,
            torch=torch,
            driver=self._hip,
            reader=reader,
            cache_bytes=device.last_level_cache_bytes or int(self._properties.L2_cache_size),
        )
        self._queue: HeldQueue | None = None

    def open_gate(self, released_address: int, finished_address: int) -> QueueGate:
        """Make a gate of two words in one page of host memory.

        Raises:
            Unavailable: HIP cannot let a stream wait for them.
        """
        if not self._can_wait():
            raise Unavailable(f"the referee cannot hold a queue: {_CANNOT_WAIT}")
        return super().open_gate(released_address, finished_address)

    def sample(self, call: Callable[[int], None], *, budget_s: float) -> DeviceSamples:
        """Measure `call` by activity records; where there are none, by events, and say why.

        Raises:
            HipError: the device faulted. What `call` raises passes through.
        """
        if not self._can_wait():
            return DeviceSamples(method=METHOD, reason=_CANNOT_WAIT)
        self._hip.make_current()
        if self._queue is None:
            self._queue = HeldQueue(
                self._hip,
                Hold(self._hip),
                current_stream=self._current_stream,
                synchronize=self.synchronize,
            )
        found = self._by_records(self._queue, call, budget_s)
        if not found.samples_us and found.method != METHOD:  # the profiler is known to lose records
            return self._by_events(self._queue, call, budget_s, str(found.reason))
        return found

    def versions(self) -> Mapping[str, str]:
        """Return what decides a time beside the candidate: driver, runtime, and which GPU."""
        uuid = self._hip.uuid()
        found = {
            "hip_runtime": self._hip.version(),
            "hip_of_torch": str(self._torch.version.hip),
            "last_level_cache_bytes": str(self.last_level_cache_bytes),
            "compute_units": str(self._properties.multi_processor_count),
        }
        if uuid is not None:
            found["device_uuid"] = uuid
        if self._device.driver is not None:
            found["driver"] = self._device.driver
        return found

    def _load_recorder(self) -> Recorder:
        return Recorder.load(self._torch, self._touch)

    def _can_wait(self) -> bool:
        self._hip.make_current()
        return self._hip.can_wait()

    def _touch(self) -> None:
        """Do one thing on the device, and wait until it is done."""
        self._torch.ones(1, device=self.torch_device)
        self.synchronize()
