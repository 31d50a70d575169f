"""The HIP calls this accelerator makes, with errors as exceptions.

Numbers are those of `hip/hip_runtime_api.h`; addresses and streams are plain integers outside, and
stream 0 is the null stream, which waits for and is waited for by the others.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

from atrex_accelerator_common.driver import DriverError, HostWord

from atrex_accelerator_hip.library import IpcMemHandle, Library, Uuid

Event = Any
"""An event handle of HIP."""

_NOT_READY: Final = 600
_CAN_WAIT_FOR_VALUES: Final = 10013
"""`hipDeviceAttributeCanUseStreamWaitValue`."""
_LAZY_PEER_ACCESS: Final = 1
_HOST_MALLOC: Final = 0x1 | 0x2 | 0x4000_0000
"""Portable, mapped and coherent: a kernel that runs must see what the host writes."""
_HOST_REGISTER: Final = 0x1 | 0x2
"""Portable and mapped. Coherent unless `hipExtHostRegisterCoarseGrained` is given."""
_WAIT_GREATER_OR_EQUAL: Final = 0
_ALL_BITS: Final = 0xFFFF_FFFF
_BUS_ID_BYTES: Final = 32


class HipError(DriverError):
    """A call of HIP failed: the device faulted, or it refused."""


class Driver:
    """One device of this process, in the context that torch uses too."""

    def __init__(self, library: Library, ordinal: int) -> None:
        """Use device `ordinal` in this process.

        Raises:
            HipError: HIP does not give it.
        """
        self._hip = library
        self._ordinal = ordinal
        self.make_current()

    def make_current(self) -> None:
        """Make the device current in the calling thread."""
        self._call("hipSetDevice", self._ordinal)

    def version(self) -> str:
        """Return the runtime's version; HIP's "driver version" is the same number."""
        found = ctypes.c_int()
        self._call("hipRuntimeGetVersion", ctypes.byref(found))
        return f"{found.value // 10**7}.{found.value // 10**5 % 100}.{found.value % 10**5}"

    def uuid(self) -> str | None:
        """Return `GPU-` and the device's own number, where the device has one.

        HIP's 16 bytes are the hexadecimal digits that rocminfo prints, and "XX" on parts without.
        """
        found = Uuid()
        self._call("hipDeviceGetUuid", ctypes.byref(found), self._ordinal)
        text = bytes(found.bytes).rstrip(b"\0")
        try:
            int(text, 16)
        except ValueError:
            return None
        return f"GPU-{text.decode()}"

    def bus_id(self) -> str:
        """Return the PCI address, for example `0000:c1:00.0`."""
        text = ctypes.create_string_buffer(_BUS_ID_BYTES)
        self._call("hipDeviceGetPCIBusId", text, _BUS_ID_BYTES, self._ordinal)
        return text.value.decode(errors="replace")

    def can_wait(self) -> bool:
        """Return whether a stream can wait for a word of memory."""
        found = ctypes.c_int()
        self._call(
            "hipDeviceGetAttribute", ctypes.byref(found), _CAN_WAIT_FOR_VALUES, self._ordinal
        )
        return found.value == 1

    def free_and_total_bytes(self) -> tuple[int, int]:
        """Return how much device memory is free, and how much there is."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, nbytes: int) -> int:
        """Return the address of fresh device memory."""
        return self._address("hipMalloc", nbytes)

    def free(self, address: int) -> None:
        """Give back what `allocate` returned."""
        self._call("hipFree", address)

    def export(self, address: int) -> bytes:
        """Return the handle by which another process can map `address`."""
        handle = IpcMemHandle()
        self._call("hipIpcGetMemHandle", ctypes.byref(handle), address)
        return bytes(handle)

    def map(self, handle: bytes) -> int:
        """Map another process's memory and return its address here."""
        exported = IpcMemHandle.from_buffer_copy(handle)
        return self._address("hipIpcOpenMemHandle", exported, _LAZY_PEER_ACCESS)

    def unmap(self, address: int) -> None:
        """Undo `map`."""
        self._call("hipIpcCloseMemHandle", address)

    def event(self) -> Event:
        """Return an event that keeps the time."""
        return self._address("hipEventCreateWithFlags", 0)

    def record(self, event: Event, stream: int) -> None:
        """Enqueue `event` on `stream`."""
        self._call("hipEventRecord", event, stream)

    def has_happened(self, event: Event) -> bool:
        """Return whether the device has reached `event`."""
        code = int(self._hip.hipEventQuery(event))
        if code == _NOT_READY:
            return False
        self._raise_if_failed("hipEventQuery", code)
        return True

    def wait(self, event: Event) -> None:
        """Return once the device has reached `event`."""
        self._call("hipEventSynchronize", event)

    def elapsed_us(self, start: Event, end: Event) -> float:
        """Return the device time between two events."""
        found_ms = ctypes.c_float()
        self._call("hipEventElapsedTime", ctypes.byref(found_ms), start, end)
        return found_ms.value * 1e3

    def host_word(self) -> HostWord:
        """Return a fresh word of host memory that kernels can read, set to 0."""
        address = self._address("hipHostMalloc", 4, _HOST_MALLOC)
        word = HostWord(host_address=address, device_address=self._on_device(address))
        word.write(0)
        return word

    def register_host(self, address: int, nbytes: int) -> int:
        """Pin host memory that is already mapped; return its address on the device."""
        self._call("hipHostRegister", address, nbytes, _HOST_REGISTER)
        return self._on_device(address)

    def wait_for_word(self, device_address: int, value: int, stream: int) -> None:
        """Let `stream` wait until the word, which counts up, has reached `value`.

        The documentation asks for memory made with `hipMallocSignalMemory`. The runtime does so
        only where GPU_STREAMOPS_CP_WAIT is set (ROCm/clr, hipamd/src/hip_stream_ops.cpp); it waits
        in a small kernel otherwise, on any memory it knows. Such memory cannot be shared between
        processes, so workers start with that variable at 0.
        """
        self._call(
            "hipStreamWaitValue32", stream, device_address, value, _WAIT_GREATER_OR_EQUAL, _ALL_BITS
        )

    def write_word(self, device_address: int, value: int, stream: int) -> None:
        """Let `stream` write the word when all before it is done, and visible to the host."""
        self._call("hipStreamWriteValue32", stream, device_address, value, 0)

    def _on_device(self, host_address: int) -> int:
        return self._address("hipHostGetDevicePointer", host_address, 0)

    def _address(self, function: str, *arguments: Any) -> int:
        """Call what writes a pointer through its first parameter, and return the pointer."""
        found = ctypes.c_void_p()
        self._call(function, ctypes.byref(found), *arguments)
        return int(found.value or 0)

    def _call(self, function: str, *arguments: Any) -> None:
        self._raise_if_failed(function, int(getattr(self._hip, function)(*arguments)))

    def _raise_if_failed(self, function: str, code: int) -> None:
        if code == 0:
            return
        texts = [self._hip.hipGetErrorName(code), self._hip.hipGetErrorString(code)]
        known = [text.decode(errors="replace") for text in texts if text]
        raise HipError(function, code, ": ".join(known) or f"error {code}")
