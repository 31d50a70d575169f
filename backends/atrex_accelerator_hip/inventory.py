"""The GPUs that HIP shows this process, whatever state the driver is in. No torch, no context."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from atrex_accelerator_common.asking import UnansweredError, ask
from attrs import frozen

from atrex_accelerator_hip.kfd import Kfd, Node, pci_of

_READER = Path(__file__).with_name("listing.py")
_TIMEOUT_S = 30.0
"""HIP starts the whole runtime to count devices, which takes seconds on a machine of eight."""

_MIB: Final = 2**20
_INFINITY_CACHE_BYTES: Final[Mapping[str, int]] = {"gfx942": 256 * _MIB, "gfx950": 256 * _MIB}
"""ROCm documentation, "AMD GPU specifications": the L3 of every part of these targets. HIP tells of
the L2 alone, and not every kernel driver of a third level."""


@frozen(kw_only=True)
class Gpu:
    """One GPU, in HIP's order. `trouble` says why it cannot be used, when it cannot."""

    name: str = ""
    arch: str = ""
    """The compilation target, without the features that may follow it."""
    memory_bytes: int = 0
    compute_units: int | None = None
    """As HIP counts: some graphics cards count in pairs."""
    last_level_cache_bytes: int | None = None
    trouble: str | None = None


@frozen(kw_only=True)
class Inventory:
    """Every GPU this process may use, and how many there are besides."""

    gpus: tuple[Gpu, ...] = ()
    present: int = 0
    """How many the kernel driver has, visible to this process or not."""
    driver: str | None = None
    problem: str | None = None
    """Why nothing could be listed, and what would change that."""


def take_inventory(
    *,
    kfd: Kfd | None = None,
    libraries: Sequence[str] | None = None,
    reader: Path = _READER,
    timeout_s: float = _TIMEOUT_S,
) -> Inventory:
    """Ask HIP in a short-lived process, which may crash or hang without harm."""
    kfd = Kfd() if kfd is None else kfd
    problem = kfd.problem()
    if problem is not None:
        return Inventory(problem=problem)
    from atrex_accelerator_hip.library import candidates  # needs ctypes, which others do not

    try:
        document = ask(
            reader,
            candidates() if libraries is None else libraries,
            timeout_s=timeout_s,
            library="HIP",
            driver="the AMD driver",
            tool="rocminfo",
        )
    except UnansweredError as error:
        return Inventory(problem=str(error))
    return _parse(document, kfd)


def _parse(document: bytes, kfd: Kfd) -> Inventory:
    try:
        answer = json.loads(document.splitlines()[-1])  # libraries may print before it
        if "missing" in answer:
            return Inventory(
                problem=f"ROCm's HIP runtime is not installed ({answer['missing']}): install ROCm, "
                "or torch in its ROCm build"
            )
        if "error" in answer:
            return Inventory(
                problem=f"HIP does not start ({answer['error']}): check that rocminfo works, and "
                "that driver and ROCm fit together"
            )
        nodes = kfd.gpus()
        gpus = tuple(_gpu(entry, nodes) for entry in answer["gpus"])
        return Inventory(driver=kfd.version(), gpus=gpus, present=len(nodes))
    except (IndexError, KeyError, TypeError, ValueError) as error:
        return Inventory(problem=f"HIP's answer cannot be read ({error!r}): report this as a bug")


def _gpu(entry: Mapping[str, Any], nodes: Sequence[Node]) -> Gpu:
    if "error" in entry:
        return Gpu(trouble=entry["error"])
    arch = entry["arch"].split(":")[0]
    return Gpu(
        name=entry["name"],
        arch=arch,
        memory_bytes=entry["memory_bytes"],
        compute_units=entry["compute_units"],
        last_level_cache_bytes=_cache_bytes(arch, entry["l2_bytes"], entry["bus_id"], nodes),
    )


def _cache_bytes(arch: str, l2_bytes: int, bus_id: str, nodes: Sequence[Node]) -> int | None:
    told = [node.last_level_cache_bytes or 0 for node in nodes if node.pci == pci_of(bus_id)]
    return max([l2_bytes, _INFINITY_CACHE_BYTES.get(arch, 0), *told]) or None
