"""What a driver of a GPU can raise and hand out."""

from __future__ import annotations

import ctypes

from attrs import frozen

_OUT_OF_MEMORY = 2
"""CUDA's number, and HIP's."""


class DriverError(RuntimeError):
    """A driver call failed: the device faulted, or it refused."""

    def __init__(self, function: str, code: int, text: str) -> None:
        super().__init__(f"{function} failed: {text}")
        self.code = code

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the device's memory is used up."""
        return self.code == _OUT_OF_MEMORY


@frozen(kw_only=True)
class HostWord:
    """Four bytes of pinned host memory that kernels can read."""

    host_address: int
    device_address: int

    def read(self) -> int:
        """Return what the host sees in it."""
        return int(ctypes.c_uint32.from_address(self.host_address).value)

    def write(self, value: int) -> None:
        """Make `value` visible to the device."""
        ctypes.c_uint32.from_address(self.host_address).value = value
