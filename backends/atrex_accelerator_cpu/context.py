"""One process's hold on the host, as the device itself or in place of an absent one."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from pathlib import Path

from atrex_accelerator_cpu import memory, timing
from atrex_accelerator_cpu.host import available_bytes
from atrex_core import Buffer, BufferHandle, Device, DeviceContext, DeviceSamples

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

    def allocate(self, nbytes: int) -> Buffer:
        """Allocate shared memory.

        Raises:
            MemoryError: the machine, or a limit on this process, cannot hold it.
        """
        return memory.allocate(nbytes)

    def free_bytes(self) -> int | None:
        """Return what `allocate` could hand out at most."""
        available = available_bytes()
        return None if available is None else max(0, available - memory.RESERVE_BYTES)

    def open_buffer(self, handle: BufferHandle) -> Buffer:
        """Map the referee's shared memory. The descriptor stays the caller's, to close."""
        return memory.open_buffer(handle)

    def synchronize(self) -> None:
        """Return at once: a call on the host is done when it returns."""

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
