"""Tensors without memory on a device that is not open: enough to compile what a call needs.

Nothing is measured, compared or believed here. What cannot be done on a stand-in is left to the
first call on the device.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Self

from attrs import define

from atrex_core.errors import Unavailable
from atrex_core.interfaces import Buffer, BufferHandle, DeviceContext, DeviceSamples, Tensor
from atrex_core.model import TensorSpec
from atrex_core.tensors import torch_dtype

_MODULE = "torch._subclasses.fake_tensor"
_STORAGE_ALIGNMENT_BYTES = 512
"""Of torch's allocators for devices; kernels are specialised on what divides an address."""
_POINTER_BYTES = 16
_REASONS: Mapping[str, str] = {
    "DataDependentOutputException": "it reads a value of a tensor",
    "DynamicOutputShapeException": "the shape of a tensor depends on values",
    "DynamicOutputShapeError": "the shape of a tensor depends on values",
}


def preload() -> None:
    """Import what stand-ins need, some seconds' worth; make none."""
    fake: Any = importlib.import_module(_MODULE)
    fake.FakeTensorMode()  # imports more when it is first made; entering it would ask for devices


class AbsentContext(DeviceContext):
    """What is known of a device without opening it: what torch calls it."""

    def __init__(self, torch_device: str) -> None:
        self.torch_device = torch_device

    def allocate(self, nbytes: int) -> Buffer:
        """Refuse.

        Raises:
            Unavailable: always.
        """
        self._refuse()

    def open_buffer(self, handle: BufferHandle) -> Buffer:
        """Refuse.

        Raises:
            Unavailable: always.
        """
        self._refuse()

    def synchronize(self) -> None:
        """Return at once: nothing ever runs."""

    def sample(self, call: Callable[[int], None], *, budget_s: float) -> DeviceSamples:
        """Refuse.

        Raises:
            Unavailable: always.
        """
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise Unavailable(f"{self.torch_device} is compiled for here, not opened")


@define(eq=False)
class StandIns:
    """One process's stand-ins. While `mode` is entered, every new tensor is one."""

    torch_device: str
    mode: Any
    """torch's own context; it may be entered again and again, and within itself."""

    @classmethod
    def prepare(cls, torch_device: str) -> Self:
        """Change torch, for the rest of this process, so that stand-ins pass for tensors."""
        fake: Any = importlib.import_module(_MODULE)

        class Mode(fake.FakeTensorMode):
            avoid_device_init = True
            """Whatever `is_available` says: a candidate may be told that the device is there."""

        fake.FakeTensor.data_ptr = _address
        fake.init_gpu_context = lambda _device: None
        return cls(torch_device, Mode(allow_non_fake_inputs=True))

    def inputs(self, specs: Sequence[TensorSpec]) -> dict[str, Tensor]:
        """Return contiguous stand-ins for the inputs of a call, by name."""
        import torch

        with self.mode:
            return {
                spec.name: torch.empty(
                    spec.shape, dtype=torch_dtype(spec.dtype), device=self.torch_device
                )
                for spec in specs
            }


def shortfall(error: BaseException) -> str | None:
    """Return what `error` says a candidate asked of a stand-in that only a tensor has, if so."""
    return next((_REASONS[k.__name__] for k in type(error).__mro__ if k.__name__ in _REASONS), None)


def _address(tensor: Any) -> int:
    """Return where a tensor would lie, as far as alignment and sharing of memory go."""
    if not tensor.numel():
        return 0
    # Distinct storages that live at once differ in this number by a pointer's size at least.
    storage = tensor.untyped_storage()._cdata // _POINTER_BYTES * _STORAGE_ALIGNMENT_BYTES
    return int(storage + tensor.storage_offset() * tensor.element_size())
