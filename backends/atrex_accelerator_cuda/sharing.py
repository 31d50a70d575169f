"""Who else holds an NVIDIA GPU, as far as that can be seen."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from atrex_accelerator_common import sharing
from atrex_accelerator_common.sharing import UNCOUNTED, UNLISTED

__all__ = ["UNCOUNTED", "UNLISTED", "count_others"]

_DRIVER: Final = Path("/dev/nvidia-uvm")
"""What every process with a CUDA context has open."""
_PROC: Final = Path("/proc")


def count_others(
    listed: Collection[int], *, own: int | None = None, proc: Path = _PROC
) -> tuple[int | None, str | None]:
    """Return how many processes that NVML lists are not ours, or why it is unknown."""
    return sharing.count_others(listed, opened=_DRIVER, own=own, proc=proc)
