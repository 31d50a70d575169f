"""One process's hold on one GPU, shared between torch and the raw driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from atrex_accelerator_common.context import GpuContext, Torch, start_torch
from atrex_accelerator_common.held_queue import HeldQueue
from atrex_accelerator_common.memory import Ipc
from atrex_accelerator_common.timing import METHOD

from atrex_accelerator_cuda.activities import Recorder
from atrex_accelerator_cuda.conditions import Reader
from atrex_accelerator_cuda.driver import CudaError, Driver, load_bindings
from atrex_accelerator_cuda.hold import NAME, Hold
from atrex_accelerator_cuda.inventory import DEVICE_ORDER
from atrex_accelerator_cuda.memory import CUDA_IPC
from atrex_core import Device, DeviceSamples, HarnessError, Unavailable


def open_context(device: Device) -> CudaContext:
    """Initialise `device` with the installed torch and driver bindings.

    Raises:
        Unavailable: one of them is missing, or torch was built without CUDA.
        HarnessError: the device does not start.
    """
    bindings = load_bindings()
    try:
        import torch
    except ImportError as error:
        raise Unavailable(
            f"torch cannot be imported: {error}", hint="pip install torch, in its CUDA build"
        ) from error
    return CudaContext(device, torch=torch, bindings=bindings)


class CudaContext(GpuContext):
    """Torch's context on one GPU, with raw memory and a clock beside it."""

    ipc: ClassVar[Ipc] = CUDA_IPC
    hold_name: ClassVar[str] = NAME

    def __init__(self, device: Device, *, torch: Torch, bindings: Any) -> None:
        """Initialise CUDA in this process. Needs about half a second."""
        self._properties = _initialise(device, torch)
        try:
            self._cuda = Driver(bindings, device.index)
        except CudaError as error:
            raise HarnessError(f'device "{device.id}" does not start: {error}') from error
        super().__init__(
            device,
            torch=torch,
            driver=self._cuda,
            reader=Reader(f"GPU-{self._properties.uuid}"),
            cache_bytes=int(self._properties.L2_cache_size),
        )
        self._queue: HeldQueue | None = None

    @property
    def compute_units(self) -> int:
        """Number of multiprocessors."""
        return int(self._properties.multi_processor_count)

    def sample(self, call: Callable[[int], None], *, budget_s: float) -> DeviceSamples:
        """Measure `call` by activity records; where there are none, by events, and say why.

        Raises:
            CudaError: the device faulted. What `call` raises passes through.
        """
        self._cuda.make_current()
        if self._queue is None:
            try:
                self._queue = self._new_queue()
            except CudaError as error:
                if not error.cannot_load:
                    raise
                reason = f"the driver cannot build the kernel that holds the queue: {error}"
                return DeviceSamples(method=METHOD, reason=reason)
        self._cuda.reset_persisting_lines()
        return self._by_records(self._queue, call, budget_s)

    def versions(self) -> Mapping[str, str]:
        """Return what decides a time beside the candidate: driver, runtime, and which GPU."""
        served = self._cuda.version()
        found = {
            "cuda_driver_api": f"{served // 1000}.{served % 1000 // 10}",
            "cuda_runtime": str(self._torch.version.cuda),
            "device_uuid": f"GPU-{self._properties.uuid}",
            "last_level_cache_bytes": str(self.last_level_cache_bytes),
            "compute_units": str(self.compute_units),
        }
        if self._device.driver is not None:
            found["driver"] = self._device.driver
        return found

    def _give_back_lines(self) -> None:
        self._cuda.make_current()
        self._cuda.reset_persisting_lines()

    def _load_recorder(self) -> Recorder:
        return Recorder.load()

    def _new_queue(self) -> HeldQueue:
        hold = Hold(
            self._cuda,
            multiprocessors=self.compute_units,
            threads_each=int(self._properties.max_threads_per_multi_processor),
        )
        return HeldQueue(
            self._cuda,
            hold,
            current_stream=self._current_stream,
            synchronize=self.synchronize,
        )


def _initialise(device: Device, torch: Torch) -> Any:
    """Start torch's CUDA on `device` and return the device's properties."""
    # The driver reads it when it starts; it numbers devices, so ours must hold here too.
    os.environ["CUDA_DEVICE_ORDER"] = DEVICE_ORDER
    properties = start_torch(device, torch, kind="CUDA", hint="install torch in its CUDA build")
    found = f"sm_{properties.major}{properties.minor}"
    if found != device.arch:
        raise HarnessError(
            f'"{device.id}" should be {device.name} ({device.arch}), but CUDA gives '
            f"{properties.name} ({found})",
            hint="set CUDA_DEVICE_ORDER=PCI_BUS_ID",
        )
    return properties
