"""The CUDA driver calls this accelerator makes, with errors as exceptions.

The only module that touches `cuda.bindings`; addresses and streams are plain integers outside.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

from atrex_accelerator_common.driver import DriverError, HostWord

from atrex_core import Unavailable

Bindings = Any
"""The module `cuda.bindings.driver`, or something that answers like it."""
Kernel = Any
"""A function handle of the driver."""
Event = Any
"""An event handle of the driver."""

_NOT_READY = 600
_NOT_SUPPORTED = 801
_CANNOT_LOAD = frozenset({200, 209, 218, 221, 222, 223, 225})
"""Invalid image, no binary for this GPU, invalid or too new PTX, no just-in-time compiler."""

_LAZY_PEER_ACCESS = 1
_HOST_PORTABLE_MAPPED = 1 | 2
_WAIT_GEQ = 0
_LEGACY_STREAM = 1
"""Stream 0 means another stream in programs built for per-thread default streams; 1 never does."""


class CudaError(DriverError):
    """A call of the CUDA driver failed: the device faulted, or it refused."""

    @property
    def cannot_load(self) -> bool:
        """Whether the driver could not turn a kernel into code for this device."""
        return self.code in _CANNOT_LOAD


def load_bindings() -> Bindings:
    """Import the driver bindings.

    Raises:
        Unavailable: they are not installed.
    """
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise Unavailable(
            f"NVIDIA's driver bindings cannot be imported: {error}",
            hint="pip install 'atrex-eval[cuda]'",
        ) from error


class Driver:
    """One device's primary context, the one torch uses too."""

    def __init__(self, bindings: Bindings, ordinal: int) -> None:
        """Join the context of device `ordinal` in this process.

        Raises:
            CudaError: the driver does not give it.
        """
        self._cu = bindings
        self._call("cuInit", 0)
        device = self._call("cuDeviceGet", ordinal)
        # Never released: torch keeps the same context for as long as the process lives.
        self._context = self._call("cuDevicePrimaryCtxRetain", device)
        self.make_current()

    def make_current(self) -> None:
        """Make the context current in the calling thread."""
        self._call("cuCtxSetCurrent", self._context)

    def version(self) -> int:
        """Return the newest CUDA version the driver serves, as 1000 * major + 10 * minor."""
        return int(self._call("cuDriverGetVersion"))

    def free_and_total_bytes(self) -> tuple[int, int]:
        """Return how much device memory is free, and how much there is."""
        free, total = self._call("cuMemGetInfo")
        return int(free), int(total)

    def allocate(self, nbytes: int) -> int:
        """Return the address of fresh device memory."""
        return int(self._call("cuMemAlloc", nbytes))

    def free(self, address: int) -> None:
        """Give back what `allocate` returned."""
        self._call("cuMemFree", address)

    def export(self, address: int) -> bytes:
        """Return the handle by which another process can map `address`."""
        return bytes(self._call("cuIpcGetMemHandle", address).reserved)

    def map(self, handle: bytes) -> int:
        """Map another process's memory and return its address here."""
        exported = self._cu.CUipcMemHandle()
        exported.reserved = handle
        return int(self._call("cuIpcOpenMemHandle", exported, _LAZY_PEER_ACCESS))

    def unmap(self, address: int) -> None:
        """Undo `map`."""
        self._call("cuIpcCloseMemHandle", address)

    def event(self) -> Event:
        """Return an event that keeps the time."""
        return self._call("cuEventCreate", 0)

    def record(self, event: Event, stream: int) -> None:
        """Enqueue `event` on `stream`."""
        self._call("cuEventRecord", event, stream or _LEGACY_STREAM)

    def has_happened(self, event: Event) -> bool:
        """Return whether the device has reached `event`."""
        status = self._cu.cuEventQuery(event)[0]
        if int(status) == _NOT_READY:
            return False
        self._raise_if_failed("cuEventQuery", status)
        return True

    def wait(self, event: Event) -> None:
        """Return once the device has reached `event`."""
        self._call("cuEventSynchronize", event)

    def elapsed_us(self, start: Event, end: Event) -> float:
        """Return the device time between two events; good to about half a microsecond."""
        return float(self._call("cuEventElapsedTime", start, end)) * 1e3

    def load_kernel(self, ptx: str, name: str) -> Kernel:
        """Build `ptx` for this device. It stays loaded while the process lives."""
        module = self._call("cuModuleLoadData", ptx.encode() + b"\0")
        return self._call("cuModuleGetFunction", module, name.encode())

    def launch(
        self,
        kernel: Kernel,
        *,
        blocks: int,
        threads: int,
        stream: int,
        words64: tuple[int, ...],
        words32: tuple[int, ...],
    ) -> None:
        """Enqueue a kernel whose parameters are `words64`, then `words32`, all unsigned."""
        types = (ctypes.c_uint64,) * len(words64) + (ctypes.c_uint32,) * len(words32)
        self._call(
            "cuLaunchKernel",
            kernel,
            *(blocks, 1, 1),
            *(threads, 1, 1),
            0,
            stream or _LEGACY_STREAM,
            ((*words64, *words32), types),
            0,
        )

    def host_word(self) -> HostWord:
        """Return a fresh word of host memory that kernels can read, set to 0."""
        address = int(self._call("cuMemHostAlloc", 4, _HOST_PORTABLE_MAPPED))
        device_address = int(self._call("cuMemHostGetDevicePointer", address, 0))
        word = HostWord(host_address=address, device_address=device_address)
        word.write(0)
        return word

    def device_word(self) -> int:
        """Return the address of a fresh word of device memory, set to 0."""
        address = self.allocate(4)
        self._call("cuMemsetD32", address, 0, 1)
        return address

    def register_host(self, address: int, nbytes: int) -> int:
        """Pin host memory that is already mapped; return its address on the device."""
        self._call("cuMemHostRegister", address, nbytes, _HOST_PORTABLE_MAPPED)
        return int(self._call("cuMemHostGetDevicePointer", address, 0))

    def wait_for_word(self, device_address: int, value: int, stream: int) -> None:
        """Let `stream` wait until the word, which counts up, has reached `value`."""
        self._call(
            "cuStreamWaitValue32", stream or _LEGACY_STREAM, device_address, value, _WAIT_GEQ
        )

    def write_word(self, device_address: int, value: int, stream: int) -> None:
        """Let `stream` write the word when all before it is done, and visible to the host."""
        self._call("cuStreamWriteValue32", stream or _LEGACY_STREAM, device_address, value, 0)

    def reset_persisting_lines(self) -> None:
        """Give back the part of the cache that somebody has set aside; older GPUs have none."""
        try:
            self._call("cuCtxResetPersistingL2Cache")
        except CudaError as error:
            if error.code != _NOT_SUPPORTED:
                raise

    def _call(self, function: str, *arguments: Any) -> Any:
        status, *values = getattr(self._cu, function)(*arguments)
        self._raise_if_failed(function, status)
        return values[0] if len(values) == 1 else tuple(values)

    def _raise_if_failed(self, function: str, status: Any) -> None:
        code = int(status)
        if code == 0:
            return
        texts = [self._cu.cuGetErrorName(status)[1], self._cu.cuGetErrorString(status)[1]]
        known = [text.decode(errors="replace") for text in texts if text]
        raise CudaError(function, code, ": ".join(known) or f"error {code}")
