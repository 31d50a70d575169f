"""The backend `numba`: kernels compiled for the host CPU, and timed there for real.

Importing this package imports neither numba nor torch.
"""

from __future__ import annotations

from collections.abc import Iterable

from atrex_backend_numba.backend import NumbaBackend
from atrex_core import Backend, hookimpl

__all__ = ["NumbaBackend", "atrex_backends"]


@hookimpl
def atrex_backends() -> Iterable[Backend]:
    """Provide the backend `numba`."""
    return [NumbaBackend()]
