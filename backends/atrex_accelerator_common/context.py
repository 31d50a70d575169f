"""One process's hold on one GPU, shared between torch and a raw driver beside it.

For vendors whose torch calls its devices "cuda" and offers them as `torch.cuda`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from attrs import evolve

from atrex_accelerator_common import spans
from atrex_accelerator_common.driver import DriverError
from atrex_accelerator_common.gate import GateDriver, StreamGate
from atrex_accelerator_common.held_queue import HeldQueue
from atrex_accelerator_common.memory import Ipc, MemoryDriver
from atrex_accelerator_common.timing import measure
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


class GpuDriver(MemoryDriver, GateDriver, Protocol):
    """A driver of one device, in the context that torch uses too."""


class Reader(Protocol):
    """What reads clocks and power."""

    def read(self) -> Conditions:
        """Return them as they are now."""
        ...


def start_torch(
    device: Device, torch: Torch, *, kind: str, hint: str, before: Callable[[], None] = lambda: None
) -> Any:
    """Start torch on `device` and return what torch calls the device's properties.

    Args:
        kind: What such devices are used through, for messages.
        hint: Which build of torch to install, where this one cannot use such devices.
        before: What must come before the first work on the device.

    Raises:
        Unavailable: torch was built without them.
        HarnessError: the device does not start.
    """
    try:
        torch.cuda.init()
        torch.cuda.set_device(device.index)
        before()
        torch.zeros(1, device=f"cuda:{device.index}")  # creates the context now, not in a call
        torch.cuda.synchronize(device.index)
        return torch.cuda.get_device_properties(device.index)
    except AssertionError as error:  # how torch says that it was built without them
        raise Unavailable(f"this torch cannot use {kind}: {error}", hint=hint) from error
    except RuntimeError as error:
        raise HarnessError(
            f'device "{device.id}" does not start: {error}',
            hint=f"{kind} must not be used in a process before it forks workers",
        ) from error


class GpuContext(DeviceContext):
    """What every such context does."""

    ipc: ClassVar[Ipc]
    """How this driver shares memory."""
    hold_name: ClassVar[str]
    """What records call that which holds a queue."""

    def __init__(
        self,
        device: Device,
        *,
        torch: Torch,
        driver: GpuDriver,
        reader: Reader,
        cache_bytes: int | None,
    ) -> None:
        """Keep what torch offers now, since a candidate may replace torch's own names later."""
        self.torch_device = f"cuda:{device.index}"
        self.last_level_cache_bytes = cache_bytes
        self._device = device
        self._torch = torch
        self._driver = driver
        self._reader = reader
        self._device_synchronize: Callable[[int], None] = torch.cuda.synchronize
        self._stream_of: Callable[[int], Any] = torch.cuda.current_stream
        self._overrun: Any = None
        self._recorder: spans.Source | None = None
        self._no_records: str | None = None

    def allocate(self, nbytes: int) -> Buffer:
        """Allocate blocks of the driver's own, apart from torch's cache, 2 MiB aligned.

        Raises:
            MemoryError: the device cannot hold it, even with torch's cache given back.
        """
        self._driver.make_current()
        return self.ipc.allocate(
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
        return self.ipc.open_mapped(
            self._driver, handle, torch=self._torch, torch_device=self.torch_device
        )

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
                prepare=self._give_back_lines,
            )
        except DriverError as error:
            raise Unavailable(f"the referee cannot hold a queue of this device: {error}") from error

    def overrun_caches(self) -> bool:
        """Read twice what the last-level cache holds; return False where its size is not known."""
        if not self.last_level_cache_bytes:
            return False
        self._give_back_lines()
        if self._overrun is None:
            count = 2 * self.last_level_cache_bytes // 4
            self._overrun = self._torch.zeros(
                count, dtype=self._torch.int32, device=self.torch_device
            )
        self._overrun.amax()
        return True

    def _give_back_lines(self) -> None:
        """Let no line stay in the cache because a call has set it aside; some kinds cannot."""

    def peak_memory_bytes(self) -> int | None:
        """Return the most that torch had allocated; raw allocations are not in it."""
        return int(self._torch.cuda.max_memory_allocated(self._device.index))

    def reset_peak_memory(self) -> None:
        """Start a new peak at what torch has allocated now."""
        self._torch.cuda.reset_peak_memory_stats(self._device.index)

    def conditions(self) -> Conditions:
        """Return clocks, power, temperature and company."""
        return self._reader.read()

    @abstractmethod
    def _load_recorder(self) -> spans.Source:
        """Return what collects records.

        Raises:
            Unavailable: there are none to be had.
        """

    def _by_records(
        self, queue: HeldQueue, call: Callable[[int], None], budget_s: float
    ) -> DeviceSamples:
        """Measure by activity records; where there are none, by events, and say why."""
        try:
            if self._no_records is None and self._recorder is None:
                self._recorder = self._load_recorder()
        except Unavailable as error:
            self._no_records = str(error)
        if self._recorder is None:
            return self._by_events(queue, call, budget_s, str(self._no_records))
        try:
            return spans.measure(
                queue,
                self._recorder,
                call,
                hold_name=self.hold_name,
                overrun=self._overrun_and_wait,
                budget_s=budget_s,
            )
        except Unavailable as error:
            return self._by_events(queue, call, budget_s, str(error))

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
