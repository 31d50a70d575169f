"""The accelerator `cuda`: NVIDIA GPUs, listed through NVML, used through the CUDA driver."""

from collections.abc import Iterable

from atrex_accelerator_cuda.accelerator import CudaAccelerator
from atrex_core import Accelerator, hookimpl

__all__ = ["CudaAccelerator", "atrex_accelerators"]


@hookimpl
def atrex_accelerators() -> Iterable[Accelerator]:
    """Provide the `cuda` accelerator."""
    return [CudaAccelerator()]
