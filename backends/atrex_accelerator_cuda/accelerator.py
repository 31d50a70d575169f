"""The `cuda` accelerator as the orchestrator sees it: no torch, no context, no surprises."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from atrex_accelerator_cuda.inventory import (
    DEVICE_ORDER,
    Gpu,
    Inventory,
    take_inventory,
    visible_gpus,
)
from atrex_core import Accelerator, Device, DeviceContext

_VISIBLE = "CUDA_VISIBLE_DEVICES"


class CudaAccelerator(Accelerator):
    """NVIDIA GPUs through the CUDA driver: `cuda:0`, `cuda:1`, ...; `cuda` is the first.

    Numbers are those that a worker's CUDA gives, within `CUDA_VISIBLE_DEVICES` and in PCI bus
    order, so `cuda:1` is also torch's.
    """

    name: ClassVar[str] = "cuda"

    def __init__(self, inventory: Callable[[], Inventory] = take_inventory) -> None:
        self._take_inventory = inventory
        self._inventory: Inventory | None = None

    def devices(self) -> Sequence[Device]:
        """Return the visible GPUs. The driver is asked once, in a process of its own."""
        driver = self._known().driver
        return [
            Device(
                id=f"{self.name}:{index}",
                accelerator=self.name,
                vendor="nvidia",
                name=gpu.name,
                arch=gpu.arch,
                index=index,
                memory_bytes=gpu.memory_bytes,
                compute_units=gpu.multiprocessors,
                driver=driver,
            )
            for index, gpu in enumerate(self._visible())
            if gpu.trouble is None
        ]

    def open(self, device: Device) -> DeviceContext:
        """Initialise CUDA in this process, which must not be one that others fork from."""
        from atrex_accelerator_cuda.context import open_context

        return open_context(device)

    def worker_environment(self, device: Device) -> Mapping[str, str]:
        """Return what keeps a worker's device numbers ours and its start-up quick.

        PyTorch's variable keeps `torch.cuda.is_available()` from initialising CUDA before a
        fork.
        """
        visible = os.environ.get(_VISIBLE)
        return {
            "CUDA_DEVICE_ORDER": DEVICE_ORDER,
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "CUDA_MODULE_LOADING": "LAZY",
            **({} if visible is None else {_VISIBLE: visible}),
        }

    def deviceless_environment(self, device: Device) -> Mapping[str, str]:
        """Return what hides every GPU from CUDA."""
        return {_VISIBLE: ""}

    def absence(self) -> str:
        """Say which step found nothing: library, driver, GPU, visibility or state."""
        known = self._known()
        if known.problem is not None:
            return f"no CUDA device: {known.problem}"
        if not known.gpus:
            return "no CUDA device: the NVIDIA driver lists no GPU on this machine"
        visible = self._visible()
        if not visible:
            return (
                f"no CUDA device: {_VISIBLE}={os.environ.get(_VISIBLE, '')!r} hides all "
                f"{len(known.gpus)}; unset it or name one of them"
            )
        troubles = "; ".join(
            f"GPU {index}: {gpu.trouble}" for index, gpu in enumerate(visible) if gpu.trouble
        )
        return f"no usable CUDA device: {troubles}"

    def _known(self) -> Inventory:
        if self._inventory is None:
            self._inventory = self._take_inventory()
        return self._inventory

    def _visible(self) -> tuple[Gpu, ...]:
        return visible_gpus(self._known().gpus, os.environ.get(_VISIBLE))
