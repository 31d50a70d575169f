"""The accelerators `cpu` and `virtual` as core and a worker meet them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import atrex_accelerator_cpu
import pytest
import torch
from atrex_accelerator_cpu import CpuAccelerator, VirtualAccelerator, host

from atrex_core import Device, Scale
from atrex_core.plugins import PluginHost

MIB = 2**20


def cpu() -> Device:
    device = CpuAccelerator().device("cpu")
    assert device is not None
    return device


def virtual(arch: str) -> Device:
    device = VirtualAccelerator().device(f"virtual:{arch}")
    assert device is not None
    return device


def test_the_package_provides_both() -> None:
    accelerators = PluginHost.of(atrex_accelerator_cpu).accelerators

    assert sorted(accelerator.name for accelerator in accelerators) == ["cpu", "virtual"]


def test_importing_it_imports_no_torch() -> None:
    code = """
import sys, atrex_accelerator_cpu
atrex_accelerator_cpu.CpuAccelerator().devices()
print("torch" in sys.modules)
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout == "False\n"


def test_the_cpu_is_one_timed_device_with_all_usable_cpus() -> None:
    accelerator = CpuAccelerator()

    (device,) = accelerator.devices()

    assert device == cpu()
    assert (device.id, device.accelerator, device.vendor) == ("cpu", "cpu", "host")
    assert device.arch == platform.machine()
    assert device.compute_units == host.usable_cpus()
    assert not device.virtual
    assert accelerator.is_timed
    assert accelerator.is_synchronous
    assert accelerator.exclusive
    assert accelerator.limits_address_space
    assert accelerator.default_scale is Scale.SMOKE


@pytest.mark.parametrize("arch", ["sm_90", "gfx942", "A9_z"])
def test_a_virtual_device_takes_any_architecture(arch: str) -> None:
    device = virtual(arch)

    assert device.id == f"virtual:{arch}"
    assert device.arch == arch
    assert device.accelerator == "virtual"
    assert device.virtual


@pytest.mark.parametrize(
    "device_id",
    ["virtual", "virtual:", "virtual:sm-90", "virtual:sm_90 ", "virtual:a:b", "cpu", "xvirtual:a"],
)
def test_any_other_id_is_no_virtual_device(device_id: str) -> None:
    assert VirtualAccelerator().device(device_id) is None


def test_no_virtual_device_is_listed_and_absence_says_how_to_get_one() -> None:
    accelerator = VirtualAccelerator()

    assert accelerator.devices() == ()
    assert "virtual:sm_90" in accelerator.absence()
    assert not accelerator.is_timed
    assert not accelerator.exclusive


def test_a_virtual_device_never_gives_a_time() -> None:
    calls: list[int] = []

    result = VirtualAccelerator().open(virtual("sm_90")).sample(calls.append, budget_s=1.0)

    assert calls == []
    assert result.samples_us == ()
    assert result.reason == "virtual:sm_90 executes on the CPU: it never gives a time"


def test_a_context_samples_calls_and_computes_on_torchs_cpu() -> None:
    context = CpuAccelerator().open(cpu())
    calls: list[int] = []

    result = context.sample(calls.append, budget_s=0.01)
    context.synchronize()

    assert len(result.samples_us) >= 5
    assert torch.empty(1, device=context.torch_device).device.type == "cpu"
    assert context.last_level_cache_bytes == cpu().last_level_cache_bytes
    assert context.versions()["kernel"] == platform.release()


def test_conditions_tell_the_load_and_what_a_worker_is_given() -> None:
    device = cpu()

    found = CpuAccelerator().open(device).conditions()

    assert found is not None
    assert found.load_1min is not None
    assert found.load_1min >= 0
    assert str(found.threads) == CpuAccelerator().worker_environment(device)["OMP_NUM_THREADS"]
    assert found.cpus == len(os.sched_getaffinity(0))
    assert (found.throttle_reasons, found.other_processes) == (None, None)


def test_peak_memory_counts_from_the_last_reset() -> None:
    context = CpuAccelerator().open(cpu())
    assert context.peak_memory_bytes() is None

    context.reset_peak_memory()
    before = context.peak_memory_bytes()
    block = torch.ones(64 * MIB, dtype=torch.uint8)
    during = context.peak_memory_bytes()
    del block
    context.reset_peak_memory()
    after = context.peak_memory_bytes()

    assert before is not None
    assert during is not None
    assert after is not None
    assert during - before >= 60 * MIB
    assert during - after >= 60 * MIB


def test_workers_get_a_thread_per_cpu_and_virtual_ones_a_single_thread() -> None:
    device = cpu()
    count = str(device.compute_units)

    real = CpuAccelerator().worker_environment(device)
    stand_in = VirtualAccelerator().worker_environment(virtual("sm_90"))

    assert real["OMP_NUM_THREADS"] == real["NUMBA_NUM_THREADS"] == count
    assert stand_in["OMP_NUM_THREADS"] == stand_in["NUMBA_NUM_THREADS"] == "1"


def test_tunables_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.perturb=1")

    tunables = CpuAccelerator().worker_environment(cpu())["GLIBC_TUNABLES"].split(":")

    assert tunables == [
        "glibc.malloc.perturb=1",
        "glibc.malloc.mmap_max=0",
        "glibc.malloc.trim_threshold=70368744177664",
        "glibc.malloc.hugetlb=1",
    ]


ALLOCATE_AND_FREE = """
import ctypes, resource
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
size = 48 * 2**20
def touch():
    block = libc.malloc(ctypes.c_size_t(size))
    ctypes.memset(block, 1, size)
    libc.free(ctypes.c_void_p(block))
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_freed_output_memory_is_used_again_without_page_faults() -> None:
    settings = CpuAccelerator().worker_environment(cpu())

    def faults(environment: dict[str, str]) -> int:
        kept = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
        shown = subprocess.run(
            [sys.executable, "-c", ALLOCATE_AND_FREE],
            env={**kept, **environment},
            capture_output=True,
            text=True,
            check=True,
        )
        return int(shown.stdout)

    assert faults({}) > 5 * 1000
    assert faults(dict(settings)) < 100
