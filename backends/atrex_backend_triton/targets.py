"""The architectures that can be compiled for, and the limits that the hardware would enforce.

Imports no triton: the orchestrator reads these names on machines without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from atrex_core import TargetFailure

_KIB = 1024
_WARP_THREADS_NVIDIA = 32
_WAVE_THREADS_CDNA = 64
_WAVE_THREADS_RDNA = 32


@frozen(kw_only=True)
class Target:
    """One architecture, with what a launch on it may use."""

    name: str
    backend: str
    """The compiler's own name for the vendor."""
    arch: int | str
    warp_threads: int
    shared_limit_bytes: int
    """The most shared memory (LDS) that one program may take."""
    compute_units: int
    """Of the part that ships most; persistent kernels size their grid by it."""
    registers_per_unit: int
    """32-bit registers that the threads of one program share."""
    threads_limit: int = 1024
    """The most threads in one program."""

    @property
    def capability(self) -> tuple[int, int]:
        """What the vendor's runtime reports as the device's version."""
        if isinstance(self.arch, int):
            return divmod(self.arch, 10)
        return int(self.arch[3:-2]), int(self.arch[-2], 16)

    def gpu_target(self) -> Any:
        """Return triton's own name for this target. Imports triton."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget(self.backend, self.arch, self.warp_threads)


def _nvidia(version: int, shared_kib: int, units: int) -> Target:
    return Target(
        name=f"sm_{version}",
        backend="cuda",
        arch=version,
        warp_threads=_WARP_THREADS_NVIDIA,
        shared_limit_bytes=shared_kib * _KIB,
        compute_units=units,
        registers_per_unit=64 * _KIB,
    )


def _amd(arch: str, shared_kib: int, units: int, *, wave_threads: int) -> Target:
    return Target(
        name=arch,
        backend="hip",
        arch=arch,
        warp_threads=wave_threads,
        shared_limit_bytes=shared_kib * _KIB,
        compute_units=units,
        registers_per_unit=128 * _KIB,
    )


# Shared memory per block: CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability" (opt-in maximum); LDS per workgroup: the AMD instruction set manuals.
TARGETS: Mapping[str, Target] = {
    target.name: target
    for target in (
        _nvidia(90, 227, 132),
        _nvidia(80, 163, 108),
        _nvidia(86, 99, 84),
        _nvidia(89, 99, 142),
        _nvidia(100, 227, 148),
        _nvidia(103, 227, 160),
        _nvidia(120, 99, 170),
        _amd("gfx942", 64, 304, wave_threads=_WAVE_THREADS_CDNA),
        _amd("gfx950", 160, 256, wave_threads=_WAVE_THREADS_CDNA),
        _amd("gfx90a", 64, 110, wave_threads=_WAVE_THREADS_CDNA),
        _amd("gfx1100", 64, 48, wave_threads=_WAVE_THREADS_RDNA),
        _amd("gfx1201", 64, 32, wave_threads=_WAVE_THREADS_RDNA),
    )
}


def find_target(name: str) -> Target:
    """Return the target called `name`.

    Raises:
        TargetFailure: there is no such target; the message lists those that exist.
    """
    if name not in TARGETS:
        raise TargetFailure(name, f'unknown target "{name}"; known: {", ".join(TARGETS)}')
    return TARGETS[name]
