"""The accelerator `hip`: AMD GPUs, listed and used through ROCm's HIP runtime.

Never run on a device. It is written against the published interfaces (HIP's headers, the pages and
sources that comments name) and tested with a library that pretends, so expect to mend it on the
first real one: docs/hip.md says what is documented and what is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from atrex_core import hookimpl

if TYPE_CHECKING:
    from atrex_accelerator_hip.accelerator import HipAccelerator
    from atrex_core import Accelerator

__all__ = ["HipAccelerator", "atrex_accelerators"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from atrex_accelerator_hip import accelerator

        return getattr(accelerator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@hookimpl
def atrex_accelerators() -> Iterable[Accelerator]:
    """Provide the `hip` accelerator."""
    from atrex_accelerator_hip.accelerator import HipAccelerator

    return [HipAccelerator()]
