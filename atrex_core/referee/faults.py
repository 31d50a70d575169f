"""What a pack's code did instead of answering, put into words."""

from __future__ import annotations

import os
import traceback
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from atrex_core.memory import is_out_of_memory
from atrex_core.model import TensorSpec
from atrex_core.model.lint import Fate
from atrex_core.printable import one_line
from atrex_core.tensors import dtype_of

DEVICE_LOST = 70
"""How a process ends in which nothing more can be computed."""
MOST_REASON = 600


class Complaint(Exception):
    """Something of a pack's is not as it must be; the text says what."""


def fault_of(error: BaseException, device: str) -> tuple[Fate, str]:
    """Return what an exception of a pack's code means, and say it; free what it held.

    Ends the process where the device is lost with it.
    """
    if is_lost(device):
        os._exit(DEVICE_LOST)  # the parent goes on with a new process
    if is_out_of_memory(error):
        traceback.clear_frames(error.__traceback__)
        release(device)
        return Fate.SKIPPED, f"needs more memory than {device} has free: {said(error)}"
    return Fate.BROKEN, said(error)


def said(error: BaseException) -> str:
    """Return one line: the error, and the line of code that raised it."""
    if isinstance(error, Complaint):
        return one_line(str(error), MOST_REASON)
    frames = traceback.extract_tb(error.__traceback__)
    where = ""
    if frames and frames[-1].lineno is not None:
        path = Path(frames[-1].filename)
        where = f" (at {'/'.join(path.parts[-2:])}:{frames[-1].lineno})"
    text = one_line(f"{type(error).__name__}: {error}", MOST_REASON - len(where))
    return text.removesuffix(": ") + where


def is_lost(device: str) -> bool:
    """Return whether a fault has left this process without a device that works."""
    import torch

    place = torch.device(device)
    try:
        torch.get_device_module(place).synchronize(place)
    except RuntimeError:
        return True
    return False


def release(device: str) -> None:
    """Give memory that nobody holds any more back to the device."""
    import gc

    import torch

    gc.collect()
    empty_cache = getattr(torch.get_device_module(torch.device(device)), "empty_cache", None)
    if empty_cache is not None:
        empty_cache()


def unlike(specs: Collection[TensorSpec], outputs: Any) -> str | None:
    """Say how `outputs` differ from what `specs` declare, if they do."""
    import torch

    names = [spec.name for spec in specs]
    if not isinstance(outputs, Mapping):
        return f"{type(outputs).__name__!r} is no mapping of {names}"
    if set(outputs) != set(names):
        return f"it names {list(outputs)}, not {names}"
    for spec in specs:
        tensor = outputs[spec.name]
        if not isinstance(tensor, torch.Tensor):
            return f"{spec.name!r} is of type {type(tensor).__name__!r}, not a tensor"
        if tuple(tensor.shape) != spec.shape or dtype_of(tensor) is not spec.dtype:
            found = f"{dtype_of(tensor) or tensor.dtype} {list(tensor.shape)}"
            return f"{spec.name!r} is {found}, not {spec.dtype} {list(spec.shape)}"
    return None
