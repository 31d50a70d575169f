"""What HIP says about this machine's GPUs, as one JSON document on stdout.

Run as a script, in a process of its own: HIP must not be started in a process that forks, and a
broken driver may hang or crash its caller. So it imports the standard library only, and nothing of
this package. HIP itself reads the variables that hide devices, so the numbers are torch's.

Signatures, numbers and layout: `hip/hip_runtime_api.h` of ROCm 6.0 to 7.1.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from typing import Any

_NO_DEVICE = 100
_MULTIPROCESSORS = 63
_L2_BYTES = 19
_NAME_BYTES = 256
_BUS_ID_BYTES = 32

ARCH_OFFSET_BYTES = 1160
"""Of `gcnArchName` in `hipDeviceProp_tR0600`."""


class HipCallError(Exception):
    """HIP returned something else than success."""

    def __init__(self, function: str, code: int, text: str) -> None:
        super().__init__(f"{function}: {text}")
        self.code = code


class Properties(ctypes.Structure):
    """`hipDeviceProp_tR0600`, with room for what a newer one may have at its end."""

    _fields_ = (
        ("before", ctypes.c_char * ARCH_OFFSET_BYTES),
        ("arch", ctypes.c_char * _NAME_BYTES),
        ("after", ctypes.c_char * 4096),
    )


def read(library: Any) -> dict[str, Any]:
    """Return HIP's version and one entry per visible GPU.

    A GPU that cannot be read keeps its place in the list, with an `error`.

    Raises:
        HipCallError: HIP itself does not start.
    """
    count, version = ctypes.c_int(), ctypes.c_int()
    try:
        _call(library, "hipInit", ctypes.c_uint(0))
        _call(library, "hipGetDeviceCount", ctypes.byref(count))
    except HipCallError as error:
        if error.code != _NO_DEVICE:
            raise
        count.value = 0
    _call(library, "hipRuntimeGetVersion", ctypes.byref(version))
    gpus = [_read_gpu(library, index) for index in range(count.value)]
    return {"runtime": version.value, "gpus": gpus}


def _read_gpu(library: Any, index: int) -> dict[str, Any]:
    memory = ctypes.c_size_t()
    properties = Properties()
    try:
        _call(library, "hipGetDevicePropertiesR0600", ctypes.byref(properties), ctypes.c_int(index))
        _call(library, "hipDeviceTotalMem", ctypes.byref(memory), ctypes.c_int(index))
        return {
            "name": _text(library, "hipDeviceGetName", _NAME_BYTES, index),
            "arch": properties.arch.decode(errors="replace"),
            "memory_bytes": memory.value,
            "compute_units": _attribute(library, _MULTIPROCESSORS, index),
            "l2_bytes": _attribute(library, _L2_BYTES, index),
            "bus_id": _text(library, "hipDeviceGetPCIBusId", _BUS_ID_BYTES, index),
        }
    except HipCallError as error:
        return {"error": str(error)}


def _attribute(library: Any, attribute: int, index: int) -> int:
    value = ctypes.c_int()
    _call(
        library,
        "hipDeviceGetAttribute",
        ctypes.byref(value),
        ctypes.c_int(attribute),
        ctypes.c_int(index),
    )
    return value.value


def _text(library: Any, function: str, capacity_bytes: int, index: int) -> str:
    text = ctypes.create_string_buffer(capacity_bytes)
    _call(library, function, text, ctypes.c_int(capacity_bytes), ctypes.c_int(index))
    return text.value.decode(errors="replace")


def _call(library: Any, function: str, *arguments: Any) -> None:
    try:
        entry = getattr(library, function)
    except AttributeError:
        raise HipCallError(function, -1, "this HIP does not have it; 6.0 or newer does") from None
    code = int(entry(*arguments))
    if code != 0:
        raise HipCallError(function, code, _explain(library, code))


def _explain(library: Any, code: int) -> str:
    try:
        entry = library.hipGetErrorString
    except AttributeError:
        return f"error {code}"
    entry.restype = ctypes.c_char_p
    text = entry(code)
    return text.decode(errors="replace") if text else f"error {code}"


def _load(paths: Sequence[str]) -> Any:
    """Return the first library that loads.

    Raises:
        OSError: none does; it is the last one's error.
    """
    trouble = OSError("no path was given")
    for path in paths:
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            trouble = error
    raise trouble


def main(paths: Sequence[str]) -> None:
    """Print the inventory, or `{"missing": ...}` or `{"error": ...}`, on a line of its own."""
    answer: dict[str, Any]
    try:
        answer = read(_load(paths))
    except OSError as error:
        answer = {"missing": str(error)}
    except HipCallError as error:
        answer = {"error": str(error)}
    sys.stdout.write(f"\n{json.dumps(answer)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
