"""Where HIP's library is, and what its functions take.

Signatures: `hip/hip_runtime_api.h` of ROCm 6.0 to 7.1, as its documentation prints them under "HIP
runtime API reference" (device, memory, event and error handling; stream memory operations).
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Mapping
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint32, c_void_p
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from atrex_core import Unavailable

Library = Any
"""The loaded library, or something that answers like it."""

NAME: Final = "libamdhip64.so"
_ROOTS: Final = ("ROCM_PATH", "ROCM_HOME", "HIP_PATH")
_DEFAULT_ROOT: Final = "/opt/rocm"
_MAPS: Final = Path("/proc/self/maps")
_MAPPED: Final = re.compile(r"\S+ \S+ \S+ \S+ \S+ +(/.*/libamdhip64\.so[.\d]*)$", re.MULTILINE)


class IpcMemHandle(ctypes.Structure):
    """`hipIpcMemHandle_t`: passed by value where memory is opened."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


class Uuid(ctypes.Structure):
    """`hipUUID`."""

    _fields_ = (("bytes", ctypes.c_ubyte * 16),)


SIGNATURES: Final[Mapping[str, tuple[Any, ...]]] = {
    "hipSetDevice": (c_int,),
    "hipRuntimeGetVersion": (POINTER(c_int),),
    "hipDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "hipDeviceGetUuid": (POINTER(Uuid), c_int),
    "hipDeviceGetPCIBusId": (c_char_p, c_int, c_int),
    "hipMemGetInfo": (POINTER(c_size_t), POINTER(c_size_t)),
    "hipMalloc": (POINTER(c_void_p), c_size_t),
    "hipFree": (c_void_p,),
    "hipIpcGetMemHandle": (POINTER(IpcMemHandle), c_void_p),
    "hipIpcOpenMemHandle": (POINTER(c_void_p), IpcMemHandle, c_uint),
    "hipIpcCloseMemHandle": (c_void_p,),
    "hipEventCreateWithFlags": (POINTER(c_void_p), c_uint),
    "hipEventRecord": (c_void_p, c_void_p),
    "hipEventQuery": (c_void_p,),
    "hipEventSynchronize": (c_void_p,),
    "hipEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "hipHostMalloc": (POINTER(c_void_p), c_size_t, c_uint),
    "hipHostRegister": (c_void_p, c_size_t, c_uint),
    "hipHostGetDevicePointer": (POINTER(c_void_p), c_void_p, c_uint),
    "hipStreamWaitValue32": (c_void_p, c_void_p, c_uint32, c_uint, c_uint32),
    "hipStreamWriteValue32": (c_void_p, c_void_p, c_uint32, c_uint),
}
"""What each function that returns `hipError_t` takes."""
_TEXTS: Final = ("hipGetErrorName", "hipGetErrorString")


def candidates(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return where the library may be, in the order to try: what torch will load comes first."""
    environment = os.environ if environment is None else environment
    found = [*_in_package("torch"), *_in_package("_rocm_sdk_core")]
    roots = [environment[name] for name in _ROOTS if environment.get(name)]
    found += [str(Path(root) / "lib" / NAME) for root in roots]
    found += [NAME, str(Path(_DEFAULT_ROOT) / "lib" / NAME)]
    return tuple(dict.fromkeys(found))


def loaded(maps: Path = _MAPS) -> str | None:
    """Return the library that this process has loaded, as torch does on import.

    A second copy would be a second runtime, which knows none of torch's memory.
    """
    try:
        found = _MAPPED.search(maps.read_text())
    except OSError:
        return None
    return found[1] if found else None


def load(path: str) -> Library:
    """Load the library and tell ctypes what its functions take.

    Raises:
        Unavailable: it cannot be loaded, or lacks one of them.
    """
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise Unavailable(
            f"HIP cannot be loaded: {error}", hint="install ROCm, or torch in its ROCm build"
        ) from error
    try:
        for name, takes in SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = takes, c_int
        for name in _TEXTS:
            function = getattr(library, name)
            function.argtypes, function.restype = (c_int,), c_char_p
    except AttributeError as error:
        raise Unavailable(f"{path} is not the HIP that is needed: {error}", hint=_HINT) from error
    return library


_HINT: Final = "ROCm 6.0 or newer has all that is used"


def _in_package(name: str) -> Iterator[str]:
    """Yield the copies of the library that an installed package brings, without importing it."""
    spec = find_spec(name)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from (str(path) for path in sorted(Path(folder, "lib").glob(f"{NAME}*")))
