"""The host CPU, and virtual devices that execute on it."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from atrex_accelerator_cpu import host
from atrex_core import Accelerator, Device, DeviceContext, Scale

_THREAD_COUNTS = (
    "OMP_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
)
_TUNABLES = "GLIBC_TUNABLES"
_NEVER_BYTES = 2**46
_SPINS = 1_000
_VIRTUAL_ID = re.compile(r"virtual:(?P<arch>[A-Za-z0-9_]+)")


class CpuAccelerator(Accelerator):
    """The machine's own processor, all of its usable cores as one device."""

    name: ClassVar[str] = "cpu"
    default_scale: ClassVar[Scale] = Scale.SMOKE
    limits_address_space: ClassVar[bool] = True
    is_synchronous: ClassVar[bool] = True

    def devices(self) -> Sequence[Device]:
        """Return the one device."""
        return [
            Device(
                id=self.name,
                accelerator=self.name,
                vendor="host",
                name=host.cpu_name(),
                arch=platform.machine(),
                memory_bytes=host.memory_bytes(),
                last_level_cache_bytes=host.last_level_cache_bytes(),
                compute_units=host.usable_cpus(),
                driver=f"{platform.system()} {platform.release()}",
            )
        ]

    def open(self, device: Device) -> DeviceContext:
        """Return a context; the host needs no initialisation."""
        from atrex_accelerator_cpu.context import HostContext

        return HostContext(device)

    def worker_environment(self, device: Device) -> Mapping[str, str]:
        """Return one thread per usable CPU, short waits, and an allocator that keeps its memory.

        glibc maps each large block afresh and gives it back when it is freed, so every call that
        allocates its output would be timed with the page faults: of an RMSNorm that writes 32 MiB
        they were 86 % (17.5 ms of CPU time, 2.5 ms without).

        GNU OpenMP's threads spin for milliseconds at a barrier. When a busy machine puts two of
        them on one core, each spins while the other could run, and a loop of 7 us took 16 ms. With
        spins of some 25 us it takes 60 us there, and as long as before on idle cores.
        """
        threads = str(device.compute_units or host.usable_cpus())
        keep = {"mmap_max": 0, "trim_threshold": _NEVER_BYTES, "hugetlb": 1}
        inherited = os.environ.get(_TUNABLES)
        tunables = [f"glibc.malloc.{name}={value}" for name, value in keep.items()]
        return {
            **dict.fromkeys(_THREAD_COUNTS, threads),
            "GOMP_SPINCOUNT": str(_SPINS),
            _TUNABLES: ":".join([*([inherited] if inherited else []), *tunables]),
        }


class VirtualAccelerator(Accelerator):
    """Any architecture by name, as in `virtual:sm_90`. None is listed: they are made on request."""

    name: ClassVar[str] = "virtual"
    default_scale: ClassVar[Scale] = Scale.SMOKE
    is_timed: ClassVar[bool] = False
    limits_address_space: ClassVar[bool] = True
    is_synchronous: ClassVar[bool] = True
    exclusive: ClassVar[bool] = False

    def devices(self) -> Sequence[Device]:
        """Return nothing: no virtual device is present until it is asked for."""
        return ()

    def device(self, device_id: str) -> Device | None:
        """Return a stand-in for `virtual:ARCH`, None for any other id."""
        match = _VIRTUAL_ID.fullmatch(device_id)
        if match is None:
            return None
        arch = match["arch"]
        return Device(
            id=device_id,
            accelerator=self.name,
            vendor="virtual",
            name=f"virtual {arch}",
            arch=arch,
            virtual=True,
            memory_bytes=host.memory_bytes(),
            compute_units=host.usable_cpus(),
        )

    def open(self, device: Device) -> DeviceContext:
        """Return a context on the host that gives no times."""
        from atrex_accelerator_cpu.context import VirtualContext

        return VirtualContext(device)

    def worker_environment(self, device: Device) -> Mapping[str, str]:
        """Return one thread: emulation is bound by the interpreter, and workers share the CPUs."""
        return dict.fromkeys(_THREAD_COUNTS, "1")

    def absence(self) -> str:
        """Say how to get a virtual device."""
        return "virtual devices are made on request: name one, as in virtual:sm_90"
