"""One process's hold on one GPU, shared between torch and the raw driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve

from atrex_accelerator_cuda import spans
from atrex_accelerator_cuda.activities import Recorder
from atrex_accelerator_cuda.conditions import Reader
from atrex_accelerator_cuda.driver import CudaError, Driver, load_bindings
from atrex_accelerator_cuda.gate import StreamGate
from atrex_accelerator_cuda.held_queue import HeldQueue
from atrex_accelerator_cuda.hold import NAME, Hold
from atrex_accelerator_cuda.inventory import DEVICE_ORDER
from atrex_accelerator_cuda.memory import allocate, open_mapped
from atrex_accelerator_cuda.timing import METHOD, measure
from atrex_core import (
    Buffer,
    BufferHandle,
    Conditions,
    Device,
    DeviceContext,
    DeviceSamples,
    HarnessError,
    QueueGate,
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
        self._overrun: Any = None
        self._recorder: Recorder | None = None
        self._no_records: str | None = None
        self._conditions = Reader(f"GPU-{self._properties.uuid}")

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

    def open_gate(self, released_address: int, finished_address: int) -> QueueGate:
        """Make a gate of two words in one page of host memory.

        Raises:
            Unavailable: the driver cannot let a stream wait for them.
        """
        self._driver.make_current()
        try:
            return StreamGate(
                self._driver,
                released_address=released_address,
                finished_address=finished_address,
                current_stream=self._current_stream,
            )
        except CudaError as error:
            raise Unavailable(f"the referee cannot hold a queue of this device: {error}") from error

    def overrun_caches(self) -> bool:
        """Read twice what the last-level cache holds; give back lines that were set aside."""
        self._driver.make_current()
        self._driver.reset_persisting_lines()
        if self._overrun is None:
            count = 2 * int(self._properties.L2_cache_size) // 4
            self._overrun = self._torch.zeros(
                count, dtype=self._torch.int32, device=self.torch_device
            )
        self._overrun.amax()
        return True

    def sample(self, call: Callable[[int], None], *, budget_s: float) -> DeviceSamples:
        """Measure `call` by activity records; where there are none, by events, and say why.

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
        self._driver.reset_persisting_lines()
        if self._recorder is None and self._no_records is None:
            self._recorder, self._no_records = _recorder()
        if self._recorder is None:
            return self._by_events(self._queue, call, budget_s, str(self._no_records))
        try:
            return spans.measure(
                self._queue,
                self._recorder,
                call,
                hold_name=NAME,
                overrun=self._overrun_and_wait,
                budget_s=budget_s,
            )
        except Unavailable as error:
            return self._by_events(self._queue, call, budget_s, str(error))

    def _by_events(
        self, queue: HeldQueue, call: Callable[[int], None], budget_s: float, why: str
    ) -> DeviceSamples:
        found = measure(queue, call, budget_s=budget_s)
        reason = f"no activity records: {why}"
        return evolve(found, reason=f"{reason}; {found.reason}" if found.reason else reason)

    def _overrun_and_wait(self) -> None:
        self.overrun_caches()
        self.synchronize()

    def _current_stream(self) -> int:
        return int(self._stream_of(self._device.index).cuda_stream)

    def peak_memory_bytes(self) -> int | None:
        """Return the most that torch had allocated; raw allocations are not in it."""
        return int(self._torch.cuda.max_memory_allocated(self._device.index))

    def reset_peak_memory(self) -> None:
        """Start a new peak at what torch has allocated now."""
        self._torch.cuda.reset_peak_memory_stats(self._device.index)

    def conditions(self) -> Conditions:
        """Return clocks, power, temperature and company, through NVML."""
        return self._conditions.read()

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
            current_stream=self._current_stream,
            synchronize=self.synchronize,
        )


def _recorder() -> tuple[Recorder | None, str | None]:
    try:
        return Recorder.load(), None
    except Unavailable as error:
        return None, str(error)


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
