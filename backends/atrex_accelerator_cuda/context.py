"""One process's hold on one GPU, shared between torch and the raw driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from atrex_accelerator_cuda.driver import CudaError, Driver, load_bindings
from atrex_accelerator_cuda.held_queue import HeldQueue
from atrex_accelerator_cuda.hold import Hold
from atrex_accelerator_cuda.inventory import DEVICE_ORDER
from atrex_accelerator_cuda.memory import allocate, open_mapped
from atrex_accelerator_cuda.timing import METHOD, measure
from atrex_core import (
    Buffer,
    BufferHandle,
    Device,
    DeviceContext,
    DeviceSamples,
    HarnessError,
    Unavailable,
)

Torch = Any
"""The module `torch`, or something that answers like it."""


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


class CudaContext(DeviceContext):
    """Torch's context on one GPU, with raw memory and a clock beside it."""

    def __init__(self, device: Device, *, torch: Torch, bindings: Any) -> None:
        """Initialise CUDA in this process. Needs about half a second."""
        self.torch_device = f"cuda:{device.index}"
        self._device = device
        self._torch = torch
        # Kept, since a candidate may replace torch's own names later.
        self._device_synchronize: Callable[[int], None] = torch.cuda.synchronize
        self._stream_of: Callable[[int], Any] = torch.cuda.current_stream
        self._properties = _initialise(device, torch)
        self.last_level_cache_bytes = int(self._properties.L2_cache_size)
        try:
            self._driver = Driver(bindings, device.index)
        except CudaError as error:
            raise HarnessError(f'device "{device.id}" does not start: {error}') from error
        self._queue: HeldQueue | None = None

    @property
    def compute_units(self) -> int:
        """Number of multiprocessors."""
        return int(self._properties.multi_processor_count)

    def allocate(self, nbytes: int) -> Buffer:
        """Allocate blocks of the driver's own, apart from torch's cache, 2 MiB aligned.

        Raises:
            MemoryError: the device cannot hold it, even with torch's cache given back.
        """
        self._driver.make_current()
        return allocate(
            self._driver,
            nbytes,
            torch=self._torch,
            torch_device=self.torch_device,
            give_back_cached=self._torch.cuda.empty_cache,
        )

    def free_bytes(self) -> int:
        """Return what is free on the device, with torch's cache given back."""
        self._driver.make_current()
        free, _ = self._driver.free_and_total_bytes()
        cached = self._torch.cuda.memory_reserved(self._device.index)
        return free + int(cached - self._torch.cuda.memory_allocated(self._device.index))

    def open_buffer(self, handle: BufferHandle) -> Buffer:
        """Map a referee's buffer into this process, which must not be the referee's.

        Raises:
            HarnessError: the handle is not one of ours, or the driver refuses it.
        """
        self._driver.make_current()
        return open_mapped(self._driver, handle, torch=self._torch, torch_device=self.torch_device)

    def synchronize(self) -> None:
        """Wait for every stream. Raises torch's error if the device faulted."""
        self._device_synchronize(self._device.index)

    def sample(self, call: Callable[[int], None], *, budget_s: float) -> DeviceSamples:
        """Measure `call` behind a held queue; `timing` says how, and how well.

        Raises:
            CudaError: the device faulted. What `call` raises passes through.
        """
        self._driver.make_current()
        if self._queue is None:
            try:
                self._queue = self._new_queue()
            except CudaError as error:
                if not error.cannot_load:
                    raise
                reason = f"the driver cannot build the kernel that holds the queue: {error}"
                return DeviceSamples(method=METHOD, reason=reason)
        return measure(self._queue, call, budget_s=budget_s)

    def peak_memory_bytes(self) -> int | None:
        """Return the most that torch had allocated; raw allocations are not in it."""
        return int(self._torch.cuda.max_memory_allocated(self._device.index))

    def reset_peak_memory(self) -> None:
        """Start a new peak at what torch has allocated now."""
        self._torch.cuda.reset_peak_memory_stats(self._device.index)

    def versions(self) -> Mapping[str, str]:
        """Return what decides a time beside the candidate: driver, runtime, and which GPU."""
        served = self._driver.version()
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

    def _new_queue(self) -> HeldQueue:
        hold = Hold(
            self._driver,
            multiprocessors=self.compute_units,
            threads_each=int(self._properties.max_threads_per_multi_processor),
        )
        return HeldQueue(
            self._driver,
            hold,
            current_stream=lambda: int(self._stream_of(self._device.index).cuda_stream),
            synchronize=self.synchronize,
        )


def _initialise(device: Device, torch: Torch) -> Any:
    """Start torch's CUDA on `device` and return the device's properties."""
    # The driver reads it when it starts; it numbers devices, so ours must hold here too.
    os.environ["CUDA_DEVICE_ORDER"] = DEVICE_ORDER
    try:
        torch.cuda.init()
        torch.cuda.set_device(device.index)
        torch.zeros(1, device=f"cuda:{device.index}")  # creates the context now, not in a call
        torch.cuda.synchronize(device.index)
        properties = torch.cuda.get_device_properties(device.index)
    except AssertionError as error:  # how torch says that it was built without CUDA
        raise Unavailable(
            f"this torch cannot use CUDA: {error}", hint="install torch in its CUDA build"
        ) from error
    except RuntimeError as error:
        raise HarnessError(
            f'device "{device.id}" does not start: {error}',
            hint="CUDA must not be used in a process before it forks workers",
        ) from error
    found = f"sm_{properties.major}{properties.minor}"
    if found != device.arch:
        raise HarnessError(
            f'"{device.id}" should be {device.name} ({device.arch}), but CUDA gives '
            f"{properties.name} ({found})",
            hint="set CUDA_DEVICE_ORDER=PCI_BUS_ID",
        )
    return properties
