"""What this machine is, and how much of it this process may use.

Every function reads below `root`, so that a test can describe another machine. A fact that the
kernel does not tell is None, never a guess.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")
_MOST_CLOCKS = 8
"""Some kernels take a millisecond to tell the clock of a CPU."""
_UNLIMITED_BYTES = 2**60
"""Control groups of version 1 write "no limit" as the largest multiple of a page."""


def cpu_name(root: Path = _ROOT) -> str:
    """Return the processor's brand string, or its architecture where there is none."""
    for line in _read(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu") and value.strip():
            return " ".join(value.split())
    return f"{platform.machine()} processor"


def usable_cpus(root: Path = _ROOT) -> int:
    """Return how many CPUs this process may keep busy: its affinity, cut to its quota."""
    allowed = len(os.sched_getaffinity(0))
    quotas = [int(quota) // int(period) for quota, period in _cpu_quotas(root) if int(period) > 0]
    return max(1, min([allowed, *quotas]))


def load_1min() -> float | None:
    """Return the number of runnable threads of the machine, averaged over a minute."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def clock_mhz(root: Path = _ROOT) -> float | None:
    """Return the highest clock of the usable CPUs, idle ones being slow; of eight at most."""
    allowed = sorted(os.sched_getaffinity(0))
    chosen = allowed[:: max(1, len(allowed) // _MOST_CLOCKS)][:_MOST_CLOCKS]
    folder = root / "sys/devices/system/cpu"
    texts = [_read(folder / f"cpu{cpu}/cpufreq/scaling_cur_freq").strip() for cpu in chosen]
    return max((int(khz) / 1e3 for khz in texts if khz.isdigit()), default=None)


def memory_bytes(root: Path = _ROOT) -> int | None:
    """Return the memory this process may use: the machine's, cut to its control group's."""
    total = _meminfo_bytes(root, "MemTotal")
    sizes = [size for size in (total, *(limit for limit, _ in _memory_groups(root))) if size]
    return min(sizes, default=None)


def available_bytes(root: Path = _ROOT) -> int | None:
    """Return how much memory could be taken now without anything being killed for it."""
    free = _meminfo_bytes(root, "MemAvailable")
    sizes = [] if free is None else [free]
    sizes += [max(0, limit - used) for limit, used in _memory_groups(root)]
    return min(sizes, default=None)


def last_level_cache_bytes(root: Path = _ROOT) -> int | None:
    """Return the size of the last-level caches that the usable CPUs share, all of them."""
    caches: dict[tuple[int, str], int] = {}
    for cpu in os.sched_getaffinity(0):
        for index in (root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*"):
            level, size = _read(index / "level").strip(), _size_bytes(_read(index / "size"))
            if level.isdigit() and size and _read(index / "type").strip() != "Instruction":
                caches[int(level), _read(index / "shared_cpu_list").strip()] = size
    if not caches:
        return _configured_cache_bytes()
    last = max(level for level, _ in caches)
    return sum(size for (level, _), size in caches.items() if level == last)


def _configured_cache_bytes() -> int | None:
    """Ask the C library, which knows the cache where sysfs is not mounted."""
    for name in ("SC_LEVEL4_CACHE_SIZE", "SC_LEVEL3_CACHE_SIZE", "SC_LEVEL2_CACHE_SIZE"):
        try:
            size = os.sysconf(name)
        except (ValueError, OSError):
            continue
        if size > 0:
            return size
    return None


def _memory_groups(root: Path) -> Iterator[tuple[int, int]]:
    """Yield (limit, bytes in use that cannot be reclaimed) of each group that has a limit."""
    files = (
        ("", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    )
    for controller, limit_file, usage_file, cache_key in files:
        for group in _groups(root, controller):
            limit = _read(group / limit_file).strip()
            if not limit.isdigit() or int(limit) >= _UNLIMITED_BYTES:
                continue
            usage = _read(group / usage_file).strip()
            words = _read(group / "memory.stat").split()
            stat = dict(zip(words[::2], words[1::2], strict=False))
            used = int(usage) if usage.isdigit() else 0
            yield int(limit), max(0, used - int(stat.get(cache_key, 0)))


def _cpu_quotas(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (quota, period) in microseconds of each group that has a quota."""
    for group in _groups(root, ""):
        words = _read(group / "cpu.max").split()
        if len(words) == 2 and words[0].isdigit():
            yield words[0], words[1]
    for group in _groups(root, "cpu"):
        quota = _read(group / "cpu.cfs_quota_us").strip()
        period = _read(group / "cpu.cfs_period_us").strip()
        if quota.isdigit() and period.isdigit():
            yield quota, period


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control group and of those above it.

    Args:
        root: where the file systems are mounted.
        controller: of version 1, or "" for the unified hierarchy of version 2.

    In a container the path that the kernel tells may not exist below the mount point: its
    missing parts read as no limit, and the mount point itself is the container's own group.
    """
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller in controllers.split(","):
            for name in (controller, controllers) if controller else ("", "unified"):
                mount = root / "sys/fs/cgroup" / name
                inner = mount / path.lstrip("/")
                yield from (inner, *(p for p in inner.parents if p.is_relative_to(mount)))


def _meminfo_bytes(root: Path, key: str) -> int | None:
    for line in _read(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return None


def _size_bytes(text: str) -> int | None:
    """Parse sysfs's "32768K"."""
    digits, unit = text.strip()[:-1], text.strip()[-1:]
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}.get(unit)
    return int(digits) * scale if scale and digits.isdigit() else None


def _read(path: Path) -> str:
    """Return a file's text, "" where there is none: every file here is optional."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
