"""The Triton backend: real NVIDIA and AMD devices, and virtual ones on any CPU.

Importing this package imports neither torch nor triton.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from atrex_backend_triton.targets import TARGETS
from atrex_core import (
    Backend,
    BackendRuntime,
    Device,
    RuntimeRequest,
    Unavailable,
    hookimpl,
)

__all__ = ["TritonBackend", "install_virtual_device"]

_OLDEST, _NEWEST = (3, 6), (3, 9)
_DISTRIBUTIONS = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-rocm")
_HINT = "pip install 'atrex-eval[triton]'"


class TritonBackend(Backend):
    """Kernels written with `@triton.jit`."""

    name = "triton"
    summary = "Triton kernels, on CUDA and HIP devices or executed for an absent target on the CPU"
    accelerators = ("cuda", "hip")
    virtual_targets = tuple(TARGETS)
    targets = tuple(TARGETS)
    default_targets = ("sm_90", "gfx942")
    compiles_ahead = True

    def check_available(self) -> None:
        """Return if a triton that this backend knows is installed.

        Raises:
            Unavailable: it is not, or its version is not one that was tried.
        """
        for module in ("triton", "torch"):
            if find_spec(module) is None:
                raise Unavailable(f'the package "{module}" is not installed', hint=_HINT)
        installed = _installed_version()
        if not _OLDEST <= _minor(installed) <= _NEWEST:
            oldest, newest = (".".join(map(str, bound)) for bound in (_OLDEST, _NEWEST))
            raise Unavailable(
                f"triton {installed} is installed, but this backend knows {oldest} to {newest}",
                hint=_HINT,
            )

    @property
    def kernels(self) -> Path:
        """The folder of bundled kernels."""
        return Path(__file__).parent / "kernels"

    def preload(self) -> None:
        """Import torch, triton and what a worker needs of them; initialise no device."""
        # With its own interpreter switched on, nothing would be compiled.
        os.environ.pop("TRITON_INTERPRET", None)
        import torch  # noqa: F401
        import triton.language  # noqa: F401

        import atrex_backend_triton.runtime
        import atrex_backend_triton.virtual.driver  # noqa: F401
        from atrex_backend_triton.compilation import hash_the_compiler

        hash_the_compiler()

    def start(self, request: RuntimeRequest) -> BackendRuntime:
        """Install the driver and the hooks in a fresh worker."""
        os.environ.pop("TRITON_INTERPRET", None)
        from atrex_backend_triton.runtime import start

        return start(request)

    def start_ahead(self, request: RuntimeRequest) -> BackendRuntime:
        """Install a driver that compiles for a device which cannot be seen, and launches nothing.

        Raises:
            TargetFailure: it is not among the devices whose limits are known.
        """
        os.environ.pop("TRITON_INTERPRET", None)
        from atrex_backend_triton.runtime import start_ahead

        return start_ahead(request)

    def versions(self) -> Mapping[str, str]:
        """Return triton's version, without importing it."""
        return {"triton": _installed_version()}

    def repro_prelude(self, device: Device) -> str:
        """Return the lines that make a plain script run on `device`."""
        if not device.virtual:
            return ""
        return (
            "import atrex_backend_triton\n"
            f"atrex_backend_triton.install_virtual_device({device.arch!r})\n"
        )


def install_virtual_device(target: str) -> None:
    """Make `kernel[grid](cpu_tensors)` compile for `target` and execute on the CPU.

    Call it before the kernels are launched for the first time.

    Raises:
        TargetFailure: there is no such target.
    """
    os.environ.pop("TRITON_INTERPRET", None)
    from atrex_backend_triton.runtime import install_virtual

    install_virtual(target)


def _installed_version() -> str:
    for distribution in _DISTRIBUTIONS:
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    return "unknown"


def _minor(text: str) -> tuple[int, ...]:
    parts = text.split("+")[0].split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())


@hookimpl
def atrex_backends() -> Iterator[Backend]:
    """Provide the backend."""
    yield TritonBackend()
