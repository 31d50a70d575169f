"""What the host is found to be, told by the files of machines that are not this one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from atrex_accelerator_cpu import host

GIB = 2**30
MEMINFO = "MemTotal:       16777216 kB\nMemFree:         1000 kB\nMemAvailable:    8388608 kB\n"


def machine(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})


def test_the_name_is_the_model_name(tmp_path: Path) -> None:
    text = "processor\t: 0\nmodel\t\t: 2\nmodel name\t: Intel(R)  Xeon(R) CPU\n"
    root = machine(tmp_path, {"proc/cpuinfo": text})

    assert host.cpu_name(root) == "Intel(R) Xeon(R) CPU"


def test_without_a_model_name_the_architecture_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    root = machine(tmp_path, {"proc/cpuinfo": "processor\t: 0\nCPU part\t: 0xd40\n"})

    assert host.cpu_name(root) == "aarch64 processor"


def test_without_a_group_the_machines_memory_counts(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/meminfo": MEMINFO})

    assert host.memory_bytes(root) == 16 * GIB
    assert host.available_bytes(root) == 8 * GIB


def test_a_version_2_group_limits_memory_and_its_page_cache_counts_as_free(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/user/job\n",
            "sys/fs/cgroup/user/memory.max": str(4 * GIB),
            "sys/fs/cgroup/user/memory.current": str(3 * GIB),
            "sys/fs/cgroup/user/memory.stat": f"anon {GIB}\ninactive_file {2 * GIB}\n",
            "sys/fs/cgroup/user/job/memory.max": "max",
        },
    )

    assert host.memory_bytes(root) == 4 * GIB
    assert host.available_bytes(root) == 3 * GIB


def test_a_version_1_group_limits_memory(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/memory/jobs/7/memory"
    root = machine(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "5:devices:/\n4:memory:/jobs/7\n0::/\n",
            f"{group}.limit_in_bytes": str(2 * GIB),
            f"{group}.usage_in_bytes": str(GIB),
            f"{group}.stat": f"total_inactive_file {GIB // 2}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        },
    )

    assert host.memory_bytes(root) == 2 * GIB
    assert host.available_bytes(root) == 3 * GIB // 2


def test_a_containers_own_group_is_its_mount_point(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "4:memory:/docker/not-visible-in-here\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(GIB),
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "0",
        },
    )

    assert host.memory_bytes(root) == GIB


@pytest.mark.usefixtures("four_cpus")
@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 4),
        ({"sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, 4),
        ({"sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"sys/fs/cgroup/cpu.max": "1600000 100000\n"}, 4),
    ],
    ids=["no group", "2.5 CPUs", "no quota", "half a CPU", "16 CPUs"],
)
def test_a_version_2_quota_limits_the_cpus(
    tmp_path: Path, files: Mapping[str, str], cpus: int
) -> None:
    root = machine(tmp_path, {"proc/self/cgroup": "0::/\n", **files})

    assert host.usable_cpus(root) == cpus


@pytest.mark.usefixtures("four_cpus")
@pytest.mark.parametrize(("quota", "cpus"), [("300000", 3), ("-1", 4)], ids=["3 CPUs", "none"])
def test_a_version_1_quota_limits_the_cpus(tmp_path: Path, quota: str, cpus: int) -> None:
    group = "sys/fs/cgroup/cpu,cpuacct/job"
    root = machine(
        tmp_path,
        {
            "proc/self/cgroup": "1:cpu,cpuacct:/job\n",
            f"{group}/cpu.cfs_quota_us": quota,
            f"{group}/cpu.cfs_period_us": "100000",
        },
    )

    assert host.usable_cpus(root) == cpus


def cache(cpu: int, index: int, level: int, kind: str, size: str, shared: str) -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
    facts = {"level": str(level), "type": kind, "size": size, "shared_cpu_list": shared}
    return {f"{folder}/{name}": f"{text}\n" for name, text in facts.items()}


@pytest.mark.usefixtures("four_cpus")
def test_the_clock_is_that_of_the_fastest_usable_cpu(tmp_path: Path) -> None:
    speeds_khz = {0: 800_000, 1: 2_596_118, 3: 1_200_000, 4: 3_900_000}
    name = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_cur_freq"
    root = machine(tmp_path, {name.format(cpu): f"{khz}\n" for cpu, khz in speeds_khz.items()})

    assert host.clock_mhz(root) == 2596.118


def test_a_clock_that_is_not_told_is_none(tmp_path: Path) -> None:
    assert host.clock_mhz(tmp_path) is None


def test_of_many_cpus_eight_tell_their_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(100)))
    read: list[Path] = []
    monkeypatch.setattr(host, "_read", lambda path: read.append(path) or "1000000\n")

    assert host.clock_mhz(tmp_path) == 1000.0
    assert len(set(read)) == 8


def test_a_load_that_is_not_told_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError

    assert host.load_1min() is not None
    monkeypatch.setattr(os, "getloadavg", refuse)
    assert host.load_1min() is None


@pytest.mark.usefixtures("four_cpus")
def test_last_level_caches_of_all_usable_cpus_add_up(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    for cpu in range(8):  # pairs share a third level; only four CPUs, two pairs, are ours
        pair = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"
        files |= cache(cpu, 0, 1, "Data", "48K", str(cpu))
        files |= cache(cpu, 1, 2, "Unified", "1024K", str(cpu))
        files |= cache(cpu, 2, 3, "Unified", "32M", pair)
    root = machine(tmp_path, files)

    assert host.last_level_cache_bytes(root) == 2 * 32 * 2**20


@pytest.mark.usefixtures("four_cpus")
def test_an_instruction_cache_is_no_last_level(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        cache(0, 0, 2, "Unified", "512K", "0-3") | cache(0, 1, 3, "Instruction", "8M", "0-3"),
    )

    assert host.last_level_cache_bytes(root) == 512 * 1024


def test_without_sysfs_the_c_library_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"SC_LEVEL4_CACHE_SIZE": 0, "SC_LEVEL3_CACHE_SIZE": 12 * 2**20}
    monkeypatch.setattr(os, "sysconf", lambda name: sizes[name])

    assert host.last_level_cache_bytes(tmp_path) == 12 * 2**20


def test_this_machine_is_described() -> None:
    total, available = host.memory_bytes(), host.available_bytes()

    assert host.cpu_name()
    assert 1 <= host.usable_cpus() <= (os.cpu_count() or 1)
    assert total is not None
    assert available is not None
    assert 0 < available < total
