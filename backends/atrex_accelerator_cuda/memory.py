"""CUDA's way of sharing device memory between processes."""

from __future__ import annotations

from typing import Final

from atrex_accelerator_common.memory import Ipc, MappedBuffer, OwnedBuffer

__all__ = ["CUDA_IPC", "MappedBuffer", "OwnedBuffer", "allocate", "open_mapped"]

CUDA_IPC: Final = Ipc(
    kind="cuda-ipc",
    needs="CUDA IPC needs Linux and, in a container, a shared IPC namespace",
)
allocate = CUDA_IPC.allocate
open_mapped = CUDA_IPC.open_mapped
