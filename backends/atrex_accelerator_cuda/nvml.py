"""What NVML says about this machine's GPUs, as one JSON document on stdout.

Run as a script, in a process of its own: a broken driver may hang or crash its caller. So it
imports the standard library only, and nothing of this package. NVML creates no context and
takes no device memory.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

LIBRARY = "libnvidia-ml.so.1"

_NAME_BYTES = 96
_DRIVER_BYTES = 80
_NOT_SUPPORTED = 3


class NvmlError(Exception):
    """NVML returned something else than success."""

    def __init__(self, function: str, code: int, text: str) -> None:
        super().__init__(f"{function}: {text}")
        self.code = code


class _Memory(ctypes.Structure):
    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


def read(library: Any) -> dict[str, Any]:
    """Return the driver's version and one entry per GPU, in PCI bus order.

    A GPU that cannot be read keeps its place in the list, with an `error`.

    Raises:
        NvmlError: NVML itself does not start.
    """
    _call(library, "nvmlInit_v2")
    try:
        count = ctypes.c_uint()
        _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
        gpus = [_read_gpu(library, index) for index in range(count.value)]
        return {"driver": _text(library, "nvmlSystemGetDriverVersion", _DRIVER_BYTES), "gpus": gpus}
    finally:
        library.nvmlShutdown()


def _read_gpu(library: Any, index: int) -> dict[str, Any]:
    gpu = ctypes.c_void_p()
    memory = _Memory()
    major, minor = ctypes.c_int(), ctypes.c_int()
    try:
        _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(gpu))
        uuid = _text(library, "nvmlDeviceGetUUID", _NAME_BYTES, gpu)
        name = _text(library, "nvmlDeviceGetName", _NAME_BYTES, gpu)
        _call(library, "nvmlDeviceGetMemoryInfo", gpu, ctypes.byref(memory))
        _call(
            library,
            "nvmlDeviceGetCudaComputeCapability",
            gpu,
            ctypes.byref(major),
            ctypes.byref(minor),
        )
        return {
            "uuid": uuid,
            "name": name,
            "memory_bytes": memory.total,
            "capability": [major.value, minor.value],
            "cores": _cores(library, gpu),
            "partitioned": _is_partitioned(library, gpu),
        }
    except NvmlError as error:
        return {"error": str(error)}


def _cores(library: Any, gpu: ctypes.c_void_p) -> int | None:
    """Return the number of CUDA cores, which drivers before 510 do not tell."""
    cores = ctypes.c_uint()
    try:
        _call(library, "nvmlDeviceGetNumGpuCores", gpu, ctypes.byref(cores))
    except NvmlError:
        return None
    return cores.value


def _is_partitioned(library: Any, gpu: ctypes.c_void_p) -> bool:
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    try:
        _call(library, "nvmlDeviceGetMigMode", gpu, ctypes.byref(current), ctypes.byref(pending))
    except NvmlError:
        return False  # most GPUs cannot be partitioned and answer "not supported"
    return current.value == 1


def _text(library: Any, function: str, capacity_bytes: int, *gpu: ctypes.c_void_p) -> str:
    text = ctypes.create_string_buffer(capacity_bytes)
    _call(library, function, *gpu, text, ctypes.c_uint(capacity_bytes))
    return text.value.decode(errors="replace")


def _call(library: Any, function: str, *arguments: Any) -> None:
    try:
        entry = getattr(library, function)
    except AttributeError:
        raise NvmlError(function, _NOT_SUPPORTED, "this driver does not have it") from None
    code = int(entry(*arguments))
    if code != 0:
        raise NvmlError(function, code, _explain(library, code))


def _explain(library: Any, code: int) -> str:
    try:
        entry = library.nvmlErrorString
    except AttributeError:
        return f"error {code}"
    entry.restype = ctypes.c_char_p
    text = entry(code)
    return text.decode(errors="replace") if text else f"error {code}"


def main() -> None:
    """Print the inventory, or `{"missing": ...}` or `{"error": ...}`."""
    answer: dict[str, Any]
    try:
        answer = read(ctypes.CDLL(LIBRARY))
    except OSError as error:
        answer = {"missing": str(error)}
    except NvmlError as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
