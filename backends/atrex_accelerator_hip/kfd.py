"""What the amdgpu kernel driver says of itself, from its files. Nothing here can hang.

Nodes and their properties: "KFD Topology" in the ROCm documentation, and
`drivers/gpu/drm/amd/amdkfd/kfd_topology.c` in Linux.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import field, frozen

DEVICE: Final = Path("/dev/kfd")
"""What every process that computes on an AMD GPU has open."""
_NODES: Final = Path("sys/class/kfd/kfd/topology/nodes")
_VERSION: Final = Path("sys/module/amdgpu/version")


@frozen(kw_only=True)
class Kfd:
    """The driver's files."""

    root: Path = Path("/")
    """Where the file systems of the machine are mounted."""
    device: Path = DEVICE

    def problem(self) -> str | None:
        """Return why no AMD GPU can be used by this process, and what would change that."""
        if not self.device.exists():
            return (
                f"there is no {self.device}, through which AMD's kernel driver lets compute: load "
                "amdgpu, or start the container with --device=/dev/kfd --device=/dev/dri"
            )
        if not os.access(self.device, os.R_OK | os.W_OK):
            return (
                f"this user may not open {self.device}: join the groups that own it, usually "
                "render and video, or add them to the container with --group-add"
            )
        return None

    def version(self) -> str:
        """Return the driver's version; one that came with the kernel has the kernel's."""
        try:
            return f"amdgpu {(self.root / _VERSION).read_text().strip()}"
        except OSError:
            return f"amdgpu of Linux {platform.release()}"

    def gpus(self) -> tuple[Node, ...]:
        """Return the GPUs the driver knows, visible to this process or not."""
        nodes = []
        for folder in sorted((self.root / _NODES).glob("*")):
            properties = _properties(folder / "properties")
            if properties.get("simd_count", 0) > 0:  # CPUs are nodes too, and have none
                nodes.append(Node(properties=properties, caches=_caches(folder)))
        return tuple(nodes)


@frozen(kw_only=True)
class Node:
    """One GPU, or one partition of a GPU."""

    properties: Mapping[str, int]
    caches: tuple[Mapping[str, int], ...] = field(default=())

    @property
    def pci(self) -> tuple[int, int]:
        """Its PCI domain, and within it bus, device and function in one number."""
        return self.properties.get("domain", 0), self.properties.get("location_id", -1)

    @property
    def last_level_cache_bytes(self) -> int | None:
        """Size of the outermost cache it tells of; older drivers leave out the third level."""
        known = [(cache.get("level", 0), cache.get("size", 0) * 1024) for cache in self.caches]
        return max(known)[1] or None if known else None


def pci_of(bus_id: str) -> tuple[int, int] | None:
    """Return what `Node.pci` has for a bus id such as `0000:c1:00.0`, None if it is none."""
    try:
        domain, bus, rest = bus_id.split(":")
        device, function = rest.split(".")
        location = int(bus, 16) << 8 | int(device, 16) << 3 | int(function, 16)
        return int(domain, 16), location
    except ValueError:
        return None


def _caches(node: Path) -> tuple[Mapping[str, int], ...]:
    return tuple(_properties(path) for path in sorted((node / "caches").glob("*/properties")))


def _properties(path: Path) -> Mapping[str, int]:
    """Return the lines `name number` of a file; one that cannot be read has none."""
    found: dict[str, int] = {}
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        words = line.split()
        if len(words) == 2 and words[1].isdigit():
            found[words[0]] = int(words[1])
    return found
