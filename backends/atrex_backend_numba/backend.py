"""Numba as the orchestrator and the fork server see it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from atrex_core import Backend, BackendRuntime, RuntimeRequest, Unavailable

_PACKAGES = ("numba", "llvmlite")

THREADING: Mapping[str, str] = {"NUMBA_THREADING_LAYER_PRIORITY": "omp tbb workqueue"}
"""How `prange` shares out its work, in a worker that was forked after the import.

OpenMP's team is made by the first parallel loop, so a child of a server that has run none is safe.
An empty loop over two threads takes 2 us with it and 50 to 100 us with the work queue, which
sleeps between loops; TBB comes as a package of its own.
"""


class NumbaBackend(Backend):
    """Numba's compiler for the host CPU: `njit`, `vectorize`, `guvectorize` and `stencil`."""

    name: ClassVar[str] = "numba"
    summary: ClassVar[str] = "Python compiled by Numba for the host CPU"
    accelerators: ClassVar[tuple[str, ...]] = ("cpu",)
    is_default: ClassVar[bool] = True

    def check_available(self) -> None:
        """Return if Numba is installed, without importing it.

        Raises:
            Unavailable: it is not.
        """
        if find_spec("numba") is None:
            raise Unavailable(
                "numba is not installed", hint="install it: pip install 'atrex-eval[numba]'"
            )

    @property
    def kernels(self) -> Path | None:
        """The kernels that ship with this backend."""
        return Path(__file__).parent / "kernels"

    def preload(self) -> None:
        """Import torch and Numba, and let the compiler build its tables.

        The tables are built by compiling one function that is never run. It has no parallel loop,
        so no thread is started, and every worker's first compilation is 0.2 s shorter.
        """
        for name, value in THREADING.items():
            os.environ.setdefault(name, value)
        import torch  # noqa: F401  (for the workers that are forked from here)

        from atrex_backend_numba.warmth import warm_up

        warm_up()

    def start(self, request: RuntimeRequest) -> BackendRuntime:
        """Keep Numba's cache in the scratch folder, and watch compilations and launches."""
        from atrex_backend_numba.runtime import start_runtime

        return start_runtime(request)

    def versions(self) -> Mapping[str, str]:
        """Return the versions of Numba and of its LLVM binding, where they are installed."""
        found: dict[str, str] = {}
        for package in _PACKAGES:
            try:
                found[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                continue
        return found
