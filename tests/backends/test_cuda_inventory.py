"""Finding NVIDIA GPUs on machines with, without and with broken drivers."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from atrex_accelerator_cuda import CudaAccelerator, atrex_accelerators, nvml
from atrex_accelerator_cuda.inventory import Gpu, Inventory, take_inventory, visible_gpus

H200 = Gpu(
    uuid="GPU-8f6b0000-aaaa",
    name="NVIDIA H200",
    memory_bytes=150_754_820_096,
    capability=(9, 0),
    cores=16896,
)
L40S = Gpu(
    uuid="GPU-8f700000-bbbb",
    name="NVIDIA L40S",
    memory_bytes=48_305_799_168,
    capability=(8, 9),
    cores=18176,
)
BOTH = Inventory(gpus=(H200, L40S), driver="580.159.04")


def fake_nvml(**functions: Any) -> Any:
    """One GPU, like an H200, as the C library presents it."""

    def fill(value: int) -> Any:
        def answer(*arguments: Any) -> int:
            arguments[-1]._obj.value = value
            return 0

        return answer

    def text(value: bytes) -> Any:
        def answer(*arguments: Any) -> int:
            arguments[-2].value = value
            return 0

        return answer

    def memory(_gpu: Any, found: Any) -> int:
        found._obj.total = 150_754_820_096
        return 0

    def capability(_gpu: Any, major: Any, minor: Any) -> int:
        major._obj.value, minor._obj.value = 9, 0
        return 0

    def explain(code: int) -> bytes:
        return {3: b"Not Supported", 9: b"Driver Not Loaded", 15: b"GPU is lost"}[code]

    class Library:
        nvmlInit_v2 = staticmethod(lambda: 0)
        nvmlShutdown = staticmethod(lambda: 0)
        nvmlDeviceGetCount_v2 = staticmethod(fill(1))
        nvmlSystemGetDriverVersion = staticmethod(text(b"580.159.04"))
        nvmlDeviceGetHandleByIndex_v2 = staticmethod(fill(0x1000))
        nvmlDeviceGetUUID = staticmethod(text(b"GPU-8f6b"))
        nvmlDeviceGetName = staticmethod(text(b"NVIDIA H200"))
        nvmlDeviceGetMemoryInfo = staticmethod(memory)
        nvmlDeviceGetCudaComputeCapability = staticmethod(capability)
        nvmlDeviceGetNumGpuCores = staticmethod(fill(16896))
        nvmlDeviceGetMigMode = staticmethod(lambda *_: 3)
        nvmlErrorString = staticmethod(explain)

    library = Library()
    for name, function in functions.items():
        setattr(library, name, function)
    return library


def test_nvml_is_read_field_by_field() -> None:
    answer = nvml.read(fake_nvml())

    assert answer == {
        "driver": "580.159.04",
        "gpus": [
            {
                "uuid": "GPU-8f6b",
                "name": "NVIDIA H200",
                "memory_bytes": 150_754_820_096,
                "capability": [9, 0],
                "cores": 16896,
                "partitioned": False,
            }
        ],
    }


def test_a_lost_gpu_keeps_its_place() -> None:
    answer = nvml.read(fake_nvml(nvmlDeviceGetName=lambda *_: 15))

    assert answer["gpus"] == [{"error": "nvmlDeviceGetName: GPU is lost"}]


def test_an_old_driver_does_not_tell_the_cores() -> None:
    answer = nvml.read(fake_nvml(nvmlDeviceGetNumGpuCores=lambda *_: 3))

    assert answer["gpus"][0]["cores"] is None


def test_a_driver_that_is_not_loaded_is_named() -> None:
    with pytest.raises(nvml.NvmlError, match=r"^nvmlInit_v2: Driver Not Loaded$"):
        nvml.read(fake_nvml(nvmlInit_v2=lambda: 9))


def test_a_function_that_the_library_lacks_is_an_error_not_a_crash() -> None:
    library = ctypes.CDLL(None)

    with pytest.raises(nvml.NvmlError, match="nvmlInit_v2: this driver does not have it"):
        nvml.read(library)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        pytest.param(None, [H200, L40S], id="unset"),
        pytest.param("", [], id="empty"),
        pytest.param("-1", [], id="minus one"),
        pytest.param("1", [L40S], id="one"),
        pytest.param("1,0", [L40S, H200], id="reordered"),
        pytest.param(" 1 , 0 ", [L40S, H200], id="spaces"),
        pytest.param("0,7,1", [H200], id="stops at the first invalid"),
        pytest.param("0,0", [], id="repeated"),
        pytest.param("GPU-8f700000-bbbb", [L40S], id="uuid"),
        pytest.param("GPU-8f7,GPU-8f6", [L40S, H200], id="short uuids"),
        pytest.param("GPU-8f", [], id="ambiguous uuid"),
        pytest.param("MIG-8f70", [], id="mig instance"),
    ],
)
def test_visibility_is_read_as_the_driver_reads_it(
    setting: str | None, expected: list[Gpu]
) -> None:
    assert list(visible_gpus(BOTH.gpus, setting)) == expected


@pytest.mark.parametrize(
    ("gpu", "expected"),
    [
        pytest.param(H200, 132, id="hopper"),
        pytest.param(L40S, 142, id="ada"),
        pytest.param(Gpu(capability=(8, 0), cores=6912), 108, id="ampere"),
        pytest.param(Gpu(capability=(9, 0), cores=None), None, id="untold"),
        pytest.param(Gpu(capability=(99, 0), cores=16896), None, id="unknown generation"),
    ],
)
def test_multiprocessors_follow_from_cores(gpu: Gpu, expected: int | None) -> None:
    assert gpu.multiprocessors == expected


def test_devices_are_numbered_within_what_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    accelerator = CudaAccelerator(lambda: BOTH)

    first, second = accelerator.devices()

    assert (first.id, first.index, first.name, first.arch) == ("cuda:0", 0, "NVIDIA L40S", "sm_89")
    assert (second.id, second.name, second.arch) == ("cuda:1", "NVIDIA H200", "sm_90")
    assert second.vendor == "nvidia"
    assert second.memory_bytes == 150_754_820_096
    assert second.compute_units == 132
    assert second.driver == "580.159.04"
    assert accelerator.device("cuda") == first
    assert accelerator.device("cuda:1") == second
    assert accelerator.device("cuda:2") is None


def test_an_unusable_gpu_keeps_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    split = Gpu(uuid="GPU-1", trouble="it is split")
    accelerator = CudaAccelerator(lambda: Inventory(gpus=(split, H200), driver="580"))

    assert [device.id for device in accelerator.devices()] == ["cuda:1"]


@pytest.mark.parametrize(
    ("inventory", "setting", "expected"),
    [
        pytest.param(
            Inventory(problem="the driver is not usable (x): load it"),
            None,
            "no CUDA device: the driver is not usable (x): load it",
            id="problem",
        ),
        pytest.param(
            Inventory(driver="580"),
            None,
            "no CUDA device: the NVIDIA driver lists no GPU on this machine",
            id="no gpu",
        ),
        pytest.param(
            BOTH,
            "",
            "no CUDA device: CUDA_VISIBLE_DEVICES='' hides all 2; unset it or name one of them",
            id="hidden",
        ),
        pytest.param(
            Inventory(gpus=(Gpu(trouble="nvmlDeviceGetName: GPU is lost"),), driver="580"),
            None,
            "no usable CUDA device: GPU 0: nvmlDeviceGetName: GPU is lost",
            id="lost",
        ),
    ],
)
def test_absence_names_the_step_that_found_nothing(
    inventory: Inventory, setting: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    accelerator = CudaAccelerator(lambda: inventory)

    assert accelerator.devices() == []
    assert accelerator.absence() == expected


def script(folder: Path, text: str) -> Path:
    path = folder / "reader.py"
    path.write_text(text)
    return path


def test_a_crash_of_the_driver_stays_in_the_probe(tmp_path: Path) -> None:
    found = take_inventory(reader=script(tmp_path, "import os; os.kill(os.getpid(), 11)"))

    assert found.gpus == ()
    assert found.problem is not None
    assert found.problem.startswith("asking NVML ended with SIGSEGV: ")


def test_a_hanging_driver_is_given_up(tmp_path: Path) -> None:
    reader = script(tmp_path, "import time; time.sleep(60)")

    found = take_inventory(reader=reader, timeout_s=0.3)

    assert found.problem is not None
    assert found.problem.startswith("the NVIDIA driver did not answer within 0.3 s: ")


def test_an_unreadable_answer_is_a_problem_not_an_exception(tmp_path: Path) -> None:
    found = take_inventory(reader=script(tmp_path, 'print(\'{"driver": "1"}\')'))

    assert found.problem == "NVML's answer cannot be read (KeyError('gpus')): report this as a bug"


def test_a_machine_without_the_library_says_so(tmp_path: Path) -> None:
    source = Path(nvml.__file__).read_text().replace(nvml.LIBRARY, "libabsent.so.1")

    found = take_inventory(reader=script(tmp_path, source))

    assert found.gpus == ()
    assert found.problem is not None
    assert found.problem.startswith("NVIDIA's management library is not installed (libabsent.so.1")


def test_the_real_probe_answers_on_this_machine() -> None:
    accelerator = CudaAccelerator()

    devices = accelerator.devices()

    assert [device.accelerator for device in devices] == ["cuda"] * len(devices)
    assert devices or "no " in accelerator.absence()


def test_workers_keep_our_numbering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    accelerator = CudaAccelerator(lambda: BOTH)

    environment = accelerator.worker_environment(accelerator.devices()[0])

    assert environment == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "CUDA_MODULE_LOADING": "LAZY",
        "CUDA_VISIBLE_DEVICES": "1",
    }


def test_an_unset_visibility_stays_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    accelerator = CudaAccelerator(lambda: BOTH)

    environment = accelerator.worker_environment(accelerator.devices()[0])

    assert "CUDA_VISIBLE_DEVICES" not in environment


def test_the_hook_provides_a_timed_exclusive_accelerator() -> None:
    (accelerator,) = atrex_accelerators()

    assert accelerator.name == "cuda"
    assert accelerator.is_timed
    assert accelerator.exclusive
    assert not accelerator.limits_address_space


def test_importing_the_plugin_imports_no_framework() -> None:
    code = (
        "import sys, atrex_accelerator_cuda as plugin\n"
        "list(plugin.atrex_accelerators())\n"
        "print([name for name in ('torch', 'triton', 'numba', 'cuda') if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert done.stdout == "[]\n"
