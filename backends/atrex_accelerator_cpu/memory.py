"""Shared memory that the referee owns: anonymous files, sealed so that nobody can resize them.

A worker maps the same pages. Shrinking the file under the referee would turn its next look into a
bus error, so the size is sealed before the descriptor is ever sent.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Sequence
from math import prod

from atrex_accelerator_cpu.host import available_bytes
from atrex_core import Buffer, BufferHandle, DType, HarnessError, Tensor, torch_dtype

KIND = "memfd"
RESERVE_BYTES = 256 * 2**20
"""What an allocation leaves to the rest of the machine."""


class SharedBuffer(Buffer):
    """A mapping of an anonymous file. The owner keeps the descriptor, to export it."""

    def __init__(self, memory: mmap.mmap, nbytes: int, *, fd: int | None = None) -> None:
        self.nbytes = nbytes
        self._memory: mmap.mmap | None = memory
        self._fd = fd

    def handle(self) -> BufferHandle:
        """Return the handle, whose descriptor stays ours.

        Raises:
            HarnessError: this side does not own the buffer, or has closed it.
        """
        if self._fd is None:
            raise HarnessError("only an open buffer's owner can export it")
        return BufferHandle(kind=KIND, nbytes=self.nbytes, fd=self._fd)

    def tensor(self, dtype: DType, shape: Sequence[int], offset_bytes: int = 0) -> Tensor:
        """Return a contiguous view that shares this memory.

        Raises:
            ValueError: it would leave the buffer, or is not aligned to its elements.
            HarnessError: the buffer is closed.
        """
        import torch

        if self._memory is None:
            raise HarnessError("the buffer is closed")
        count = prod(shape)
        if offset_bytes < 0 or offset_bytes % dtype.item_bytes:
            raise ValueError(f"offset {offset_bytes} does not fit elements of {dtype}")
        if offset_bytes + count * dtype.item_bytes > self.nbytes:
            raise ValueError(
                f"{count} elements of {dtype} at {offset_bytes} exceed {self.nbytes} bytes"
            )
        if count == 0:
            return torch.empty(tuple(shape), dtype=torch_dtype(dtype))
        flat = torch.frombuffer(
            self._memory, dtype=torch_dtype(dtype), count=count, offset=offset_bytes
        )
        return flat.view(tuple(shape))

    def close(self) -> None:
        """Release the memory. While views live, the last of them releases it instead.

        The mapping is dropped, never closed: torch keeps a reference to it but no lock on it, and
        would go on to read an address that is gone.
        """
        self._memory = None
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def allocate(nbytes: int) -> SharedBuffer:
    """Return new shared memory, every page of it really there.

    Raises:
        MemoryError: the machine, or a limit on this process, cannot hold it.
    """
    available = available_bytes()
    if available is not None and nbytes + RESERVE_BYTES > available:
        raise MemoryError(
            f"{nbytes} bytes of shared memory asked for, {available} available, "
            f"{RESERVE_BYTES} of them kept back"
        )
    fd = os.memfd_create("atrex-buffer", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.posix_fallocate(fd, 0, _mapped_bytes(nbytes))
        fcntl.fcntl(
            fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        )
        return SharedBuffer(_map(fd, nbytes), nbytes, fd=fd)
    except OSError as error:
        os.close(fd)
        raise MemoryError(f"{nbytes} bytes of shared memory: {error.strerror}") from error


def open_buffer(handle: BufferHandle) -> SharedBuffer:
    """Map a referee's buffer. `handle.fd` stays the caller's, to close.

    Raises:
        HarnessError: the handle is not one of ours, or its size is not the file's.
        MemoryError: the mapping exceeds a limit on this process.
    """
    if handle.kind != KIND or handle.fd is None:
        raise HarnessError(f"a buffer handle of kind {handle.kind!r} is not shared memory")
    size = os.fstat(handle.fd).st_size
    if size != _mapped_bytes(handle.nbytes):
        raise HarnessError(f"a buffer of {handle.nbytes} bytes came as a file of {size}")
    try:
        return SharedBuffer(_map(handle.fd, handle.nbytes), handle.nbytes)
    except OSError as error:
        raise MemoryError(f"mapping {handle.nbytes} bytes: {error.strerror}") from error


def _map(fd: int, nbytes: int) -> mmap.mmap:
    """Map the whole file with its page table filled: else the first timed call pays for it."""
    return mmap.mmap(fd, _mapped_bytes(nbytes), flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)


def _mapped_bytes(nbytes: int) -> int:
    """An empty file cannot be mapped, so an empty buffer takes one byte."""
    return max(nbytes, 1)
