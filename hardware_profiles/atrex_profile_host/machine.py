"""What this machine is, as far as its speed depends on it. Reads files; runs nothing."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Final

from attrs import asdict, frozen

_SYSTEM: Final = Path("/sys/devices/system/cpu")
_CGROUP: Final = Path("/sys/fs/cgroup")
_FALLBACK_CACHE_BYTES: Final = 64 * 2**20
"""Assumed where the kernel does not describe the caches, as in some containers."""


@frozen(kw_only=True)
class Machine:
    """Everything a cached calibration must agree with to be used again."""

    cpu_model: str
    usable_cpus: int
    memory_bytes: int
    machine_id: str
    torch_version: str

    @property
    def identity(self) -> str:
        """A digest to name the cache file by; the fields themselves are stored inside it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:20]


@frozen(kw_only=True)
class Cpus:
    """The CPUs this process may use: one of each physical core first, then their siblings."""

    order: tuple[int, ...]
    cores: int


def describe(torch_version: str) -> Machine:
    """Describe this machine as this process sees it."""
    return Machine(
        cpu_model=_cpu_model(),
        usable_cpus=len(usable_cpus().order),
        memory_bytes=_meminfo_bytes("MemTotal"),
        machine_id=_read(Path("/etc/machine-id")),
        torch_version=torch_version,
    )


def usable_cpus() -> Cpus:
    """Return the CPUs of the affinity mask, cut to the cgroup's quota, cores first."""
    first: list[int] = []
    siblings: list[int] = []
    seen: set[str] = set()
    for cpu in sorted(os.sched_getaffinity(0)):
        core = _read(_SYSTEM / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu)
        (siblings if core in seen else first).append(cpu)
        seen.add(core)
    order = [*first, *siblings]
    quota = min(_quotas(), default=float(len(order)))
    order = order[: max(1, ceil(quota))]
    return Cpus(order=tuple(order), cores=min(len(first), len(order)))


def last_level_cache_bytes(cpus: Cpus) -> int:
    """Return the sum of the distinct last-level caches that the CPUs reach."""
    caches: dict[str, int] = {}
    for cpu in cpus.order:
        levels = [
            (level, folder)
            for folder in (_SYSTEM / f"cpu{cpu}/cache").glob("index*")
            if (level := _read(folder / "level")).isdigit()
        ]
        if levels:
            folder = max(levels, key=lambda found: int(found[0]))[1]
            caches[_read(folder / "shared_cpu_list") or str(cpu)] = _size_bytes(
                _read(folder / "size")
            )
    return sum(caches.values()) or _FALLBACK_CACHE_BYTES


def is_virtual() -> bool:
    """Return whether a hypervisor places this machine's CPUs, as far as the CPU tells."""
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            return "hypervisor" in value.split()
    return _read(Path("/sys/hypervisor/type")) != ""


def available_memory_bytes() -> int:
    """Return what can be allocated without swapping; 0 when it is not known."""
    return _meminfo_bytes("MemAvailable")


def _cpu_model() -> str:
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "CPU part", "cpu model"):
            return f"{platform.machine()} {value.strip()}"
    return platform.machine()


def _quotas() -> Iterator[float]:
    """Yield the CPU quotas that bind this process, in CPUs, of either cgroup version."""
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        unified = not controllers
        if not unified and "cpu" not in controllers.split(","):
            continue
        root = _CGROUP if unified else _CGROUP / "cpu"
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(root):
                break
            limit = _read(folder / "cpu.max").split() if unified else _legacy_quota(folder)
            if len(limit) == 2 and all(part.isdigit() for part in limit) and int(limit[1]) > 0:
                yield int(limit[0]) / int(limit[1])


def _legacy_quota(folder: Path) -> list[str]:
    return [_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")]


def _meminfo_bytes(key: str) -> int:
    for line in _read(Path("/proc/meminfo")).splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return 0


def _size_bytes(text: str) -> int:
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    digits = text.rstrip("KMG")
    return int(digits) * units.get(text[-1], 1) if digits.isdigit() else 0


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
