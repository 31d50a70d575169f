"""The accelerators `cpu` and `virtual`: the machine itself, and stand-ins for absent devices.

Both hold tensors in shared memory and compute on the host. Only `cpu` gives times.
"""

from __future__ import annotations

from collections.abc import Iterable

from atrex_accelerator_cpu.accelerator import CpuAccelerator, VirtualAccelerator
from atrex_core import Accelerator, hookimpl

__all__ = ["CpuAccelerator", "VirtualAccelerator", "atrex_accelerators"]


@hookimpl
def atrex_accelerators() -> Iterable[Accelerator]:
    """Provide the accelerators `cpu` and `virtual`."""
    return [CpuAccelerator(), VirtualAccelerator()]
