"""Which exceptions say that memory has run out."""

from __future__ import annotations

import pytest
import torch

from atrex_core.memory import is_out_of_memory


class OutOfMemoryError(Exception):
    """As a library calls its own that derives from nothing of ours."""


class _PoolError(OutOfMemoryError):
    pass


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("tried to allocate 16 GiB"), True),
        (OutOfMemoryError("1024 bytes"), True),
        (_PoolError("1024 bytes"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), True),
        (RuntimeError("error: Out of memory"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
        (KeyboardInterrupt(), False),
    ],
    ids=lambda value: f"{type(value).__name__} {value}" if isinstance(value, Exception) else None,
)
def test_error_of_memory_is_told_from_others(error: BaseException, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
