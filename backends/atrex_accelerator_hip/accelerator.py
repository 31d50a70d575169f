"""The `hip` accelerator as the orchestrator sees it: no torch, no context, no surprises."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from atrex_accelerator_hip.inventory import Inventory, take_inventory
from atrex_core import Accelerator, Device, DeviceContext

_VISIBLE: Final = (
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)
"""What hides devices: "ROCm environment variables", GPU isolation variables."""
_KEPT: Final = (
    *_VISIBLE,
    *("ROCM_PATH", "ROCM_HOME", "HIP_PATH"),
    *("HSA_OVERRIDE_GFX_VERSION", "HSA_XNACK", "HSA_ENABLE_IPC_MODE_LEGACY"),
)
"""What must be the same wherever a device is used: which ones, what they are, how they share."""


class HipAccelerator(Accelerator):
    """AMD GPUs through HIP: `hip:0`, `hip:1`, ...; `hip` is the first.

    Numbers are HIP's own within what the environment shows, so `hip:1` is torch's `cuda:1`.
    """

    name: ClassVar[str] = "hip"

    def __init__(self, inventory: Callable[[], Inventory] = take_inventory) -> None:
        self._take_inventory = inventory
        self._inventory: Inventory | None = None

    def devices(self) -> Sequence[Device]:
        """Return the visible GPUs. HIP is asked once, in a process of its own."""
        known = self._known()
        return [
            Device(
                id=f"{self.name}:{index}",
                accelerator=self.name,
                vendor="amd",
                name=gpu.name,
                arch=gpu.arch,
                index=index,
                memory_bytes=gpu.memory_bytes,
                last_level_cache_bytes=gpu.last_level_cache_bytes,
                compute_units=gpu.compute_units,
                driver=known.driver,
            )
            for index, gpu in enumerate(known.gpus)
            if gpu.trouble is None
        ]

    def open(self, device: Device) -> DeviceContext:
        """Initialise HIP in this process, which must not be one that others fork from."""
        from atrex_accelerator_hip.context import open_context

        return open_context(device)

    def worker_environment(self, device: Device) -> Mapping[str, str]:
        """Return what keeps a worker's device numbers ours, and what it does predictable.

        PyTorch's variable keeps `torch.cuda.is_available()` from starting HIP before a fork, where
        `amdsmi` is installed. HIP's lets a stream wait for memory that processes share. Kineto's
        keeps its log out of a candidate's output.
        """
        return {
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "GPU_STREAMOPS_CP_WAIT": "0",
            "KINETO_LOG_LEVEL": "99",
            **{name: os.environ[name] for name in _KEPT if name in os.environ},
        }

    def deviceless_environment(self, device: Device) -> Mapping[str, str]:
        """Return what hides every GPU from ROCm's runtime, and from HIP and torch above it."""
        return dict.fromkeys(_VISIBLE, "-1")

    def absence(self) -> str:
        """Say which step found nothing: driver, permission, library, visibility or state."""
        known = self._known()
        if known.problem is not None:
            return f"no HIP device: {known.problem}"
        troubles = "; ".join(
            f"GPU {index}: {gpu.trouble}" for index, gpu in enumerate(known.gpus) if gpu.trouble
        )
        if troubles:
            return f"no usable HIP device: {troubles}"
        if not known.present:
            return "no HIP device: AMD's kernel driver lists no GPU on this machine"
        hiding = [f"{name}={os.environ[name]!r}" for name in _VISIBLE if name in os.environ]
        if hiding:
            return (
                f"no HIP device: {' '.join(hiding)} hides all {known.present}; unset it or name "
                "one of them"
            )
        return (
            f"no HIP device: HIP shows none of the driver's {known.present}; check that this ROCm "
            "supports them, as rocminfo tells"
        )

    def _known(self) -> Inventory:
        if self._inventory is None:
            self._inventory = self._take_inventory()
        return self._inventory
