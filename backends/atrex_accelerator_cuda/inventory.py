"""The GPUs of this machine, whatever state the driver is in. No torch and no context."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from atrex_accelerator_common.asking import UnansweredError, ask
from attrs import frozen

DEVICE_ORDER: Final = "PCI_BUS_ID"
"""The `CUDA_DEVICE_ORDER` under which CUDA counts devices as NVML does."""

_READER = Path(__file__).with_name("nvml.py")
_TIMEOUT_S = 20.0
"""Attaching to idle GPUs without a persistence daemon takes seconds on a large machine."""

_CORES_PER_MULTIPROCESSOR = {
    (7, 0): 64,
    (7, 2): 64,
    (7, 5): 64,
    (8, 0): 64,
    (8, 6): 128,
    (8, 7): 128,
    (8, 9): 128,
    (9, 0): 128,
    (10, 0): 128,
    (10, 3): 128,
    (11, 0): 128,
    (12, 0): 128,
    (12, 1): 128,
}


@frozen(kw_only=True)
class Gpu:
    """One GPU in PCI bus order. `trouble` says why it cannot be used, when it cannot."""

    uuid: str = ""
    name: str = ""
    memory_bytes: int = 0
    capability: tuple[int, int] = (0, 0)
    cores: int | None = None
    trouble: str | None = None

    @property
    def arch(self) -> str:
        """The compilation target, for example `sm_90`."""
        major, minor = self.capability
        return f"sm_{major}{minor}"

    @property
    def multiprocessors(self) -> int | None:
        """How many multiprocessors it has, where the core count tells."""
        per = _CORES_PER_MULTIPROCESSOR.get(self.capability)
        if per is None or self.cores is None or self.cores % per:
            return None
        return self.cores // per


@frozen(kw_only=True)
class Inventory:
    """Every GPU the driver knows, visible to this process or not."""

    gpus: tuple[Gpu, ...] = ()
    driver: str | None = None
    problem: str | None = None
    """Why nothing could be listed, and what would change that."""


def take_inventory(*, reader: Path = _READER, timeout_s: float = _TIMEOUT_S) -> Inventory:
    """Ask NVML in a short-lived process, which may crash or hang without harm."""
    try:
        document = ask(
            reader,
            timeout_s=timeout_s,
            library="NVML",
            driver="the NVIDIA driver",
            tool="nvidia-smi",
        )
    except UnansweredError as error:
        return Inventory(problem=str(error))
    return _parse(document)


def visible_gpus(gpus: Sequence[Gpu], setting: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs a process sees under `CUDA_VISIBLE_DEVICES=setting`, in its order.

    As the driver reads it: None shows all, the list ends at its first invalid entry, and a
    repeated entry shows nothing. Numbers count in PCI bus order, which is the order that worker
    processes are given.
    """
    if setting is None:
        return tuple(gpus)
    chosen: list[Gpu] = []
    for entry in setting.split(","):
        gpu = _named(gpus, entry.strip())
        if gpu is None:
            break
        if any(gpu is other for other in chosen):
            return ()
        chosen.append(gpu)
    return tuple(chosen)


def _named(gpus: Sequence[Gpu], entry: str) -> Gpu | None:
    if entry.startswith("GPU-"):
        found = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]
        return found[0] if len(found) == 1 else None
    number = re.match(r"\+?(\d+)", entry)  # the driver ignores what follows the digits
    if number is None or int(number[1]) >= len(gpus):
        return None
    return gpus[int(number[1])]


def _parse(document: bytes) -> Inventory:
    try:
        answer = json.loads(document)
        if "missing" in answer:
            return Inventory(
                problem=f"NVIDIA's management library is not installed ({answer['missing']}): "
                "install the NVIDIA driver, or use a machine that has one"
            )
        if "error" in answer:
            return Inventory(
                problem=f"the NVIDIA driver is not usable ({answer['error']}): load its kernel "
                "module, or restart after an update so that module and library match"
            )
        return Inventory(driver=answer["driver"], gpus=tuple(_gpu(gpu) for gpu in answer["gpus"]))
    except (KeyError, TypeError, ValueError) as error:
        return Inventory(problem=f"NVML's answer cannot be read ({error!r}): report this as a bug")


def _gpu(entry: dict[str, Any]) -> Gpu:
    if "error" in entry:
        return Gpu(trouble=entry["error"])
    major, minor = entry["capability"]
    return Gpu(
        uuid=entry["uuid"],
        name=entry["name"],
        memory_bytes=entry["memory_bytes"],
        capability=(major, minor),
        cores=entry["cores"],
        trouble="it is split into MIG instances, which have no published roofline"
        if entry["partitioned"]
        else None,
    )
