"""What a pack's code did instead of answering, put into words."""

from __future__ import annotations

import os
import traceback
from collections.abc import Collection, Mapping
from typing import Any

from atrex_core.errors import PluginError
from atrex_core.memory import is_out_of_memory
from atrex_core.model import TensorSpec
from atrex_core.model.lint import Fate
from atrex_core.printable import one_line
from atrex_core.tensors import dtype_of
from atrex_core.traces import raised_at

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
    if _is_out_of_memory(error):
        traceback.clear_frames(error.__traceback__)
        release(device)
        return Fate.SKIPPED, f"needs more memory than {device} has free: {said(error)}"
    return Fate.BROKEN, said(error)


def _is_out_of_memory(error: BaseException) -> bool:
    try:
        return is_out_of_memory(error)
    except Exception:  # noqa: BLE001  (what the error says of itself may raise)
        return False


def said(error: BaseException) -> str:
    """Return one line: the error, and the line of code that raised it."""
    if isinstance(error, Complaint | PluginError):
        return one_line(str(error), MOST_REASON)
    place = raised_at(error)
    where = f" (at {place})" if place else ""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  (the pack's own class of errors may be broken as well)
        message = "its message cannot be read"
    text = one_line(f"{type(error).__name__}: {message}", MOST_REASON - len(where))
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


def unlike(specs: Collection[TensorSpec], outputs: Any, device: Any) -> str | None:
    """Say how `outputs` differ from what `specs` declare for the torch `device`, if they do.

    They may be anything: whatever a look at them raises is said, too.
    """
    names = [spec.name for spec in specs]
    try:
        if not isinstance(outputs, Mapping):
            return f"{type(outputs).__name__!r} is no mapping of {names}"
        if set(outputs) != set(names):
            return f"it names {list(outputs)}, not {names}"
        for spec in specs:
            if fault := _unlike_tensor(spec, outputs[spec.name], device):
                return f"{spec.name!r} {fault}"
    except Exception as error:  # noqa: BLE001  (a pack's own types: say what they did)
        return said(error)
    return None


def _unlike_tensor(spec: TensorSpec, tensor: Any, device: Any) -> str | None:
    import torch

    if type(tensor) is not torch.Tensor:
        what = "a plain tensor" if isinstance(tensor, torch.Tensor) else "a tensor"
        return f"is of type {type(tensor).__name__!r}, not {what}"
    if tensor.layout is not torch.strided or tensor.is_nested:
        layout = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        return f"is {layout}, not dense"
    if tuple(tensor.shape) != spec.shape or dtype_of(tensor) is not spec.dtype:
        found = f"{dtype_of(tensor) or tensor.dtype} {list(tensor.shape)}"
        return f"is {found}, not {spec.dtype} {list(spec.shape)}"
    wanted = torch.empty(0, device=device).device  # with its number
    if tensor.device != wanted:
        return f"is on device {tensor.device}, not {wanted}"
    return "requires a gradient" if tensor.requires_grad else None
