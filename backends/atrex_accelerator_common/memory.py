"""Raw device memory that crosses processes, and torch views of it.

An export handle gives away the whole block that an address lies in. Drivers carve small requests
out of shared 2 MiB blocks, so every buffer here is padded to blocks of its own: a worker that maps
one can reach nothing else.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from attrs import frozen

from atrex_accelerator_common.driver import DriverError
from atrex_core import Buffer, BufferHandle, DType, HarnessError, Tensor, torch_dtype

BLOCK_BYTES: Final = 2 * 2**20
_HANDLE_BYTES: Final = 64
"""Of `CUipcMemHandle` and of `hipIpcMemHandle_t` alike."""


class MemoryDriver(Protocol):
    """A driver that owns device memory. Each method raises a `DriverError` of its own."""

    def make_current(self) -> None:
        """Let the calling thread use the device."""
        ...

    def free_and_total_bytes(self) -> tuple[int, int]:
        """Return how much device memory is free, and how much there is."""
        ...

    def allocate(self, nbytes: int) -> int:
        """Return the address of fresh device memory."""
        ...

    def free(self, address: int) -> None:
        """Give back what `allocate` returned."""
        ...

    def export(self, address: int) -> bytes:
        """Return the handle by which another process can map `address`."""
        ...

    def map(self, handle: bytes) -> int:
        """Map another process's memory and return its address here."""
        ...

    def unmap(self, address: int) -> None:
        """Undo `map`."""
        ...


class DeviceBuffer(Buffer):
    """Device memory at a fixed address, ours or another process's."""

    def __init__(
        self, driver: MemoryDriver, *, address: int, nbytes: int, torch: Any, torch_device: str
    ) -> None:
        self.nbytes = nbytes
        self._driver = driver
        self._address: int | None = address
        self._torch = torch
        self._torch_device = torch_device

    def tensor(self, dtype: DType, shape: Sequence[int], offset_bytes: int = 0) -> Tensor:
        """Return a contiguous view of `shape` elements; it keeps this object alive.

        Raises:
            ValueError: the view is misaligned or does not fit.
            HarnessError: the buffer is closed.
        """
        size = math.prod(shape) * dtype.item_bytes
        if offset_bytes < 0 or offset_bytes % dtype.item_bytes:
            raise ValueError(f"offset {offset_bytes} is not a multiple of {dtype.item_bytes} bytes")
        if any(extent < 0 for extent in shape) or offset_bytes + size > self.nbytes:
            raise ValueError(
                f"{dtype} view of shape {tuple(shape)} at byte {offset_bytes} does not fit "
                f"{self.nbytes} bytes"
            )
        address = self._open_address()
        element = torch_dtype(dtype)
        if size == 0:
            return self._torch.empty(tuple(shape), dtype=element, device=self._torch_device)
        raw = self._torch.as_tensor(
            _ArrayInterface(self, address + offset_bytes, size), device=self._torch_device
        )
        return raw.view(element).view(tuple(shape))

    def close(self) -> None:
        """Release the memory or the mapping. A second call does nothing."""
        if self._address is None:
            return
        address, self._address = self._address, None
        self._driver.make_current()
        self._release(address)

    @abstractmethod
    def _release(self, address: int) -> None:
        """Give `address` back to the driver."""

    def _open_address(self) -> int:
        if self._address is None:
            raise HarnessError("a closed device buffer was used")
        return self._address


class OwnedBuffer(DeviceBuffer):
    """The referee's side."""

    def __init__(self, ipc: Ipc, driver: MemoryDriver, **rest: Any) -> None:
        super().__init__(driver, **rest)
        self._ipc = ipc

    def handle(self) -> BufferHandle:
        """Return what a worker's `open_buffer` takes.

        Raises:
            HarnessError: the device or the sandbox does not share memory between processes.
        """
        self._driver.make_current()
        try:
            exported = self._driver.export(self._open_address())
        except DriverError as error:
            raise HarnessError(
                f"device memory cannot be shared with workers: {error}", hint=self._ipc.needs
            ) from error
        return BufferHandle(kind=self._ipc.kind, nbytes=self.nbytes, token=exported.hex())

    def _release(self, address: int) -> None:
        self._driver.free(address)


class MappedBuffer(DeviceBuffer):
    """The worker's side."""

    def handle(self) -> BufferHandle:
        """Refuse: only the owner exports.

        Raises:
            HarnessError: always.
        """
        raise HarnessError("a mapped device buffer cannot be exported again")

    def _release(self, address: int) -> None:
        self._driver.unmap(address)


@frozen(kw_only=True)
class Ipc:
    """One driver's way of sharing device memory between processes."""

    kind: str
    """What its handles are called, so that no other driver's are taken for them."""
    needs: str
    """A hint: without what it does not work."""

    def allocate(
        self,
        driver: MemoryDriver,
        nbytes: int,
        *,
        torch: Any,
        torch_device: str,
        give_back_cached: Callable[[], None],
    ) -> OwnedBuffer:
        """Allocate whole blocks for `nbytes`, calling `give_back_cached` once if they do not fit.

        Raises:
            MemoryError: they do not fit even so.
        """
        if nbytes < 0:
            raise ValueError(f"a buffer cannot have {nbytes} bytes")
        padded = max(1, math.ceil(nbytes / BLOCK_BYTES)) * BLOCK_BYTES
        address = _try_allocate(driver, padded)
        if address is None:
            give_back_cached()
            address = _try_allocate(driver, padded)
        if address is None:
            free, total = driver.free_and_total_bytes()
            raise MemoryError(
                f"{torch_device} cannot hold {padded} more bytes: {free} of {total} are free"
            )
        return OwnedBuffer(
            self, driver, address=address, nbytes=nbytes, torch=torch, torch_device=torch_device
        )

    def open_mapped(
        self, driver: MemoryDriver, handle: BufferHandle, *, torch: Any, torch_device: str
    ) -> MappedBuffer:
        """Map a referee's buffer into this process.

        Raises:
            HarnessError: the handle is not one of ours, or the driver refuses it.
        """
        if handle.kind != self.kind:
            raise HarnessError(f'a buffer of kind "{handle.kind}" is not device memory')
        try:
            exported = bytes.fromhex(handle.token)
        except ValueError:
            exported = b""
        if len(exported) != _HANDLE_BYTES:
            raise HarnessError(f"a device memory handle has {_HANDLE_BYTES} bytes, in hexadecimal")
        try:
            address = driver.map(exported)
        except DriverError as error:
            raise HarnessError(
                f"the referee's device memory cannot be mapped: {error}",
                hint="referee and worker must run as the same user and see the same device",
            ) from error
        return MappedBuffer(
            driver, address=address, nbytes=handle.nbytes, torch=torch, torch_device=torch_device
        )


def _try_allocate(driver: MemoryDriver, nbytes: int) -> int | None:
    # Asked first because some drivers overcommit into host memory, which would time as PCIe.
    if nbytes > driver.free_and_total_bytes()[0]:
        return None
    try:
        return driver.allocate(nbytes)
    except DriverError as error:
        if error.is_out_of_memory:
            return None
        raise


class _ArrayInterface:
    """Raw bytes as torch reads them; every view holds this, and this holds the buffer."""

    def __init__(self, buffer: DeviceBuffer, address: int, nbytes: int) -> None:
        self._buffer = buffer
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }
