"""One process's hold on the host, as the device itself or in place of an absent one."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from atrex_accelerator_cpu import host, memory, threads, timing
from atrex_core import Buffer, BufferHandle, Conditions, Device, DeviceContext, DeviceSamples

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""What Linux takes as "start a new resident-set peak"."""


class HostContext(DeviceContext):
    """Shared memory and wall time. Nothing is ever left running when a call returns."""

    torch_device = "cpu"

    def __init__(self, device: Device) -> None:
        self.device = device
        self.last_level_cache_bytes = device.last_level_cache_bytes
        self._peak_is_ours = False
        self._allowed = tuple(sorted(os.sched_getaffinity(0)))

    def allocate(self, nbytes: int) -> Buffer:
        """Allocate shared memory.

        Raises:
            MemoryError: the machine, or a limit on this process, cannot hold it.
        """
        return memory.allocate(nbytes)

    def free_bytes(self) -> int | None:
        """Return what `allocate` could hand out at most."""
        available = host.available_bytes()
        return None if available is None else max(0, available - memory.RESERVE_BYTES)

    def open_buffer(self, handle: BufferHandle) -> Buffer:
        """Map the referee's shared memory. The descriptor stays the caller's, to close."""
        return memory.open_buffer(handle)

    def synchronize(self) -> None:
        """Return at once: a call on the host is done when it returns."""

    def placed_threads(self) -> AbstractContextManager[None]:
        """Give each thread a CPU of its own, as far as there are enough."""
        return threads.placed(self._allowed)

    def sample(self, call: Callable[[int], None], *, budget_s: float) -> DeviceSamples:
        """Measure the wall time of each call."""
        return timing.sample(call, budget_s=budget_s)

    def peak_memory_bytes(self) -> int | None:
        """Return the resident-set peak since the last reset, None where Linux keeps none."""
        if not self._peak_is_ours:
            return None
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return None

    def reset_peak_memory(self) -> None:
        """Start a new peak, where this process may."""
        try:
            _CLEAR_REFS.write_text(_RESET_PEAK)
        except OSError:
            self._peak_is_ours = False
        else:
            self._peak_is_ours = True

    def conditions(self) -> Conditions:
        """Return clock and load, and the threads and CPUs that a worker is given."""
        return Conditions(
            clock_mhz=host.clock_mhz(),
            load_1min=host.load_1min(),
            threads=self.device.compute_units or host.usable_cpus(),
            cpus=len(os.sched_getaffinity(0)),
        )

    def versions(self) -> Mapping[str, str]:
        """Return the kernel's and the C library's version."""
        library, version = platform.libc_ver()
        return {"kernel": platform.release(), **({library: version} if library else {})}


class VirtualContext(HostContext):
    """The host in place of a device that is absent: exact values, and never a time."""

    def sample(self, call: Callable[[int], None], *, budget_s: float) -> DeviceSamples:
        """Return no samples, and why."""
        return DeviceSamples(
            method="none",
            reason=f"{self.device.id} executes on the CPU: it never gives a time",
        )
