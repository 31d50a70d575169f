"""The `cuda` accelerator on a real GPU. Skips itself where none is visible."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from atrex_accelerator_cuda import CudaAccelerator

from atrex_core import Device, DeviceContext, DType

MIB = 2**20

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def device() -> Device:
    accelerator = CudaAccelerator()
    devices = accelerator.devices()  # asks NVML: creates no context
    if not devices:
        pytest.skip(accelerator.absence())
    return devices[0]


@pytest.fixture(scope="module")
def context(device: Device) -> DeviceContext:
    pytest.importorskip("cuda.bindings")
    return CudaAccelerator().open(device)


def test_the_device_is_what_torch_opens(device: Device, context: DeviceContext) -> None:
    import torch

    properties = torch.cuda.get_device_properties(context.torch_device)

    assert properties.name == device.name
    assert properties.multi_processor_count == device.compute_units
    assert context.last_level_cache_bytes is not None
    assert context.last_level_cache_bytes >= MIB
    assert context.versions()["driver"] == device.driver


def test_conditions_are_read_from_a_busy_device(context: DeviceContext) -> None:
    import torch

    pytest.importorskip("pynvml")
    a = torch.rand(4096, 4096, device=context.torch_device)
    for _ in range(20):
        a @ a
    context.synchronize()

    found = context.conditions()

    assert found is not None
    assert found.clock_mhz is not None
    assert found.clock_mhz > 0
    assert found.memory_clock_mhz is not None
    assert found.throttle_reasons is not None
    assert found.power_w is not None
    assert found.power_limit_w is not None
    assert 0 < found.power_w < 1.5 * found.power_limit_w
    assert found.temperature_c is not None
    assert 0 < found.temperature_c < 120
    assert found.other_processes is not None or found.reason is not None


def test_views_of_a_buffer_alias_its_bytes(context: DeviceContext) -> None:
    import torch

    buffer = context.allocate(64)
    buffer.tensor(DType.UINT8, (64,)).fill_(0)
    buffer.tensor(DType.FP32, (2, 2), offset_bytes=16).fill_(1.0)
    found = buffer.tensor(DType.INT32, (16,)).cpu().tolist()
    scalar = buffer.tensor(DType.FP32, (), offset_bytes=16).item()
    narrow = buffer.tensor(DType.BF16, (8,), offset_bytes=16).cpu()
    nothing = buffer.tensor(DType.FP8_E4M3FN, (0, 3))
    context.synchronize()
    buffer.close()
    buffer.close()

    assert found == [0] * 4 + [0x3F80_0000] * 4 + [0] * 8
    assert scalar == 1.0
    assert narrow.tolist() == [0.0, 1.0] * 4
    assert nothing.shape == (0, 3)
    assert nothing.dtype is torch.float8_e4m3fn


def test_more_than_the_device_holds_is_a_memory_error(context: DeviceContext) -> None:
    with pytest.raises(MemoryError, match="are free"):
        context.allocate(2**46)


def test_a_copy_reads_as_a_plausible_bandwidth(context: DeviceContext) -> None:
    import torch

    sets = [torch.zeros(64 * MIB, dtype=torch.uint8, device=context.torch_device) for _ in range(4)]
    targets = [torch.empty_like(source) for source in sets]

    def copy(index: int) -> None:
        targets[index % 4].copy_(sets[index % 4])

    found = context.sample(copy, budget_s=1.0)

    assert found.reason is None
    assert len(found.samples_us) == 10
    terabytes_per_s = 2 * 64 * MIB / median(found.samples_us) / 1e6
    assert 0.1 < terabytes_per_s < 20.0


def test_a_call_that_reads_a_value_back_has_no_device_time(context: DeviceContext) -> None:
    import torch

    source = torch.ones(1024, device=context.torch_device)

    def read_back(_index: int) -> None:
        source.sum().item()

    found = context.sample(read_back, budget_s=0.5)

    assert found.samples_us == ()
    assert found.reason == "forward synchronises; only call time is known"


def test_work_on_an_unjoined_stream_is_found_out(context: DeviceContext) -> None:
    import torch

    source = torch.ones(16 * MIB, device=context.torch_device)
    target = torch.empty_like(source)
    aside: Any = torch.cuda.Stream(context.torch_device)

    def call(_index: int) -> None:
        with torch.cuda.stream(aside):
            torch.add(source, 1.0, out=target)

    found = context.sample(call, budget_s=0.5)

    assert found.samples_us == ()
    assert found.reason == "work outlives the stream it was launched from"


def test_two_processes_and_the_profiler_agree(device: Device) -> None:
    pytest.importorskip("cuda.bindings")
    script = Path(__file__).parents[2] / "benchmarks" / "cuda_accelerator.py"

    done = subprocess.run(
        [sys.executable, str(script), device.id],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
