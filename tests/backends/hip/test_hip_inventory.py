"""Finding AMD GPUs on machines with, without and with broken drivers."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import atrex_profile_amd
import pytest
from atrex_accelerator_cuda import CudaAccelerator
from atrex_accelerator_hip import HipAccelerator, atrex_accelerators, listing
from atrex_accelerator_hip.inventory import Gpu, Inventory, take_inventory
from atrex_accelerator_hip.kfd import Kfd, pci_of
from attrs import evolve

from atrex_core import Device, PluginHost

MIB = 2**20
GIB = 2**30
MI300X = Gpu(
    name="AMD Instinct MI300X",
    arch="gfx942",
    memory_bytes=206_141_652_992,
    compute_units=304,
    last_level_cache_bytes=256 * MIB,
)
CARD = Gpu(name="AMD Radeon RX 7900 XTX", arch="gfx1100", memory_bytes=24 * GIB, compute_units=48)
BOTH = Inventory(gpus=(MI300X, CARD), present=2, driver="amdgpu 6.12.12")
NOT_SHOWN = (
    "HIP shows none of the driver's 8; check that this ROCm supports them, as rocminfo tells"
)
VISIBILITY = (
    *("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "GPU_DEVICE_ORDINAL",
)


@pytest.fixture(autouse=True)
def _visible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show everything, whatever the machine that tests run on hides."""
    for name in VISIBILITY:
        monkeypatch.delenv(name, raising=False)


# -- HIP -------------------------------------------------------------------------------------------


def fake_hip(**functions: Any) -> Any:
    """One GPU, like an MI300X, as the C library presents it."""

    def fill(value: int) -> Any:
        def answer(found: Any, *_rest: Any) -> int:
            found._obj.value = value
            return 0

        return answer

    def text(value: bytes) -> Any:
        def answer(found: Any, *_rest: Any) -> int:
            found.value = value
            return 0

        return answer

    def properties(found: Any, _index: Any) -> int:
        found._obj.arch = b"gfx942:sramecc+:xnack-"
        return 0

    def attribute(found: Any, which: Any, _index: Any) -> int:
        found._obj.value = {63: 304, 19: 4 * MIB}[which.value]
        return 0

    def explain(code: int) -> bytes:
        return {100: b"no ROCm-capable device is detected", 101: b"invalid device ordinal"}[code]

    class Library:
        hipInit = staticmethod(lambda _flags: 0)
        hipGetDeviceCount = staticmethod(fill(1))
        hipRuntimeGetVersion = staticmethod(fill(70125424))
        hipGetDevicePropertiesR0600 = staticmethod(properties)
        hipDeviceTotalMem = staticmethod(fill(206_141_652_992))
        hipDeviceGetName = staticmethod(text(b"AMD Instinct MI300X"))
        hipDeviceGetPCIBusId = staticmethod(text(b"0000:c1:00.0"))
        hipDeviceGetAttribute = staticmethod(attribute)
        hipGetErrorString = staticmethod(explain)

    library = Library()
    for name, function in functions.items():
        setattr(library, name, function)
    return library


def test_hip_is_read_field_by_field() -> None:
    assert listing.read(fake_hip()) == {
        "runtime": 70125424,
        "gpus": [
            {
                "name": "AMD Instinct MI300X",
                "arch": "gfx942:sramecc+:xnack-",
                "memory_bytes": 206_141_652_992,
                "compute_units": 304,
                "l2_bytes": 4_194_304,
                "bus_id": "0000:c1:00.0",
            }
        ],
    }


def test_a_gpu_that_cannot_be_read_keeps_its_place() -> None:
    answer = listing.read(fake_hip(hipDeviceGetName=lambda *_: 101))

    assert answer["gpus"] == [{"error": "hipDeviceGetName: invalid device ordinal"}]


@pytest.mark.parametrize("function", ["hipInit", "hipGetDeviceCount"])
def test_no_device_is_an_empty_list(function: str) -> None:
    assert listing.read(fake_hip(**{function: lambda *_: 100}))["gpus"] == []


def test_a_hip_that_does_not_start_is_an_error() -> None:
    with pytest.raises(listing.HipCallError, match=r"^hipInit: invalid device ordinal$"):
        listing.read(fake_hip(hipInit=lambda _flags: 101))


def test_a_function_that_the_library_lacks_is_an_error_not_a_crash() -> None:
    with pytest.raises(listing.HipCallError, match="hipInit: this HIP does not have it; 6.0 or"):
        listing.read(ctypes.CDLL(None))


# -- the kernel driver -----------------------------------------------------------------------------


@pytest.fixture
def kfd(tmp_path: Path) -> Kfd:
    """Return the files of a machine with one CPU and two GPUs; the first tells of its L3."""
    (tmp_path / "kfd").touch()
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    for number, (simds, location, caches) in enumerate(
        [(0, 0, []), (1216, 0xC100, [(1, 32), (2, 4096), (3, 262144)]), (304, 0x0300, [(2, 8192)])]
    ):
        node = nodes / str(number)
        (node / "caches").mkdir(parents=True)
        (node / "properties").write_text(
            f"simd_count {simds}\ndomain 0\nlocation_id {location}\nname text\n"
        )
        for index, (level, kib) in enumerate(caches):
            (node / "caches" / str(index)).mkdir()
            (node / "caches" / str(index) / "properties").write_text(f"level {level}\nsize {kib}\n")
    return Kfd(root=tmp_path, device=tmp_path / "kfd")


def test_gpus_of_the_kernel_driver_have_their_outermost_cache(kfd: Kfd) -> None:
    assert [(node.pci, node.last_level_cache_bytes) for node in kfd.gpus()] == [
        ((0, 0xC100), 256 * MIB),
        ((0, 0x0300), 8 * MIB),
    ]


@pytest.mark.parametrize(
    ("bus_id", "expected"),
    [
        ("0000:c1:00.0", (0, 0xC100)),
        ("0001:03:1f.2", (1, 0x03FA)),
        ("", None),
        ("c1:00.0", None),
    ],
)
def test_a_bus_id_is_the_kernel_drivers_number(
    bus_id: str, expected: tuple[int, int] | None
) -> None:
    assert pci_of(bus_id) == expected


def test_the_driver_has_its_own_version_or_the_kernels(kfd: Kfd, tmp_path: Path) -> None:
    before = kfd.version()
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    (tmp_path / "sys/module/amdgpu/version").write_text("6.12.12\n")

    assert before == f"amdgpu of Linux {platform.release()}"
    assert kfd.version() == "amdgpu 6.12.12"


def test_a_device_file_that_may_not_be_opened_is_a_problem(
    kfd: Kfd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert str(kfd.problem()).startswith(f"this user may not open {kfd.device}: join the groups")


# -- both ------------------------------------------------------------------------------------------


def script(tmp_path: Path, source: str) -> Path:
    path = tmp_path / "reader.py"
    path.write_text(source)
    return path


def answering(tmp_path: Path, **changes: Any) -> Path:
    entry = {**listing.read(fake_hip())["gpus"][0], **changes}
    document = {"runtime": 70125424, "gpus": [entry]}
    return script(tmp_path, f"import json\nprint('a warning')\nprint(json.dumps({document!r}))")


def test_a_gpu_is_listed_with_its_target_and_its_cache(kfd: Kfd, tmp_path: Path) -> None:
    found = take_inventory(kfd=kfd, reader=answering(tmp_path))

    assert found == Inventory(
        gpus=(MI300X,), present=2, driver=f"amdgpu of Linux {platform.release()}"
    )


@pytest.mark.parametrize(
    ("changes", "cache_mib"),
    [
        ({"bus_id": "0000:99:00.0"}, 256),  # the kernel driver does not say: documented
        ({"bus_id": "0000:99:00.0", "arch": "gfx90a:sramecc+", "l2_bytes": 8 * MIB}, 8),
        ({"bus_id": "0000:03:00.0", "arch": "gfx90a", "l2_bytes": 0}, 8),
        ({"arch": "gfx1100", "l2_bytes": 6 * MIB}, 256),  # the kernel driver does
    ],
)
def test_the_last_cache_is_the_largest_that_is_known(
    kfd: Kfd, tmp_path: Path, changes: dict[str, Any], cache_mib: int
) -> None:
    (gpu,) = take_inventory(kfd=kfd, reader=answering(tmp_path, **changes)).gpus

    assert gpu.last_level_cache_bytes == cache_mib * MIB


def test_a_crashing_driver_is_named_by_its_signal(kfd: Kfd, tmp_path: Path) -> None:
    crash = script(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")

    found = take_inventory(kfd=kfd, reader=crash)

    assert found.problem == (
        "asking HIP ended with SIGSEGV: reinstall the AMD driver, or check that rocminfo works"
    )


def test_a_hanging_driver_is_given_up(kfd: Kfd, tmp_path: Path) -> None:
    found = take_inventory(
        kfd=kfd, reader=script(tmp_path, "import time; time.sleep(60)"), timeout_s=0.3
    )

    assert str(found.problem).startswith("the AMD driver did not answer within 0.3 s: ")


@pytest.mark.parametrize("output", ["", "[]", "{}", "not JSON"])
def test_an_unreadable_answer_is_a_problem_not_an_exception(
    kfd: Kfd, tmp_path: Path, output: str
) -> None:
    found = take_inventory(kfd=kfd, reader=script(tmp_path, f"print({output!r})"))

    assert str(found.problem).startswith("HIP's answer cannot be read (")


def test_a_machine_without_the_library_says_so(kfd: Kfd) -> None:
    found = take_inventory(kfd=kfd, libraries=["libabsent-too.so.7", "libabsent.so"])

    assert str(found.problem).startswith("ROCm's HIP runtime is not installed (libabsent.so: ")


def test_a_library_that_is_not_hip_says_so(kfd: Kfd) -> None:
    found = take_inventory(kfd=kfd, libraries=["libc.so.6"])

    assert str(found.problem).startswith("HIP does not start (hipInit: this HIP does not have it")


def test_the_real_probe_answers_on_this_machine() -> None:
    accelerator = HipAccelerator()

    devices = accelerator.devices()

    assert [device.accelerator for device in devices] == ["hip"] * len(devices)
    assert devices or accelerator.absence().startswith("no HIP device: ")


# -- the accelerator -------------------------------------------------------------------------------


def test_devices_are_hips_in_hips_order() -> None:
    accelerator = HipAccelerator(lambda: BOTH)

    first, second = accelerator.devices()

    assert first == Device(
        id="hip:0",
        accelerator="hip",
        vendor="amd",
        name="AMD Instinct MI300X",
        arch="gfx942",
        index=0,
        memory_bytes=206_141_652_992,
        last_level_cache_bytes=268_435_456,
        compute_units=304,
        driver="amdgpu 6.12.12",
    )
    assert (second.id, second.arch, second.compute_units) == ("hip:1", "gfx1100", 48)
    assert accelerator.device("hip") == first
    assert accelerator.device("hip:2") is None


def test_an_unusable_gpu_keeps_its_number() -> None:
    accelerator = HipAccelerator(lambda: Inventory(gpus=(Gpu(trouble="lost"), MI300X), present=2))

    assert [device.id for device in accelerator.devices()] == ["hip:1"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ["mi300x"]),
        ({"name": "AMD Radeon Graphics"}, ["mi300x"]),
        ({"name": "AMD Radeon Graphics", "memory_bytes": 256 * GIB}, ["mi325x"]),
        ({"name": "AMD Radeon Graphics", "compute_units": 80}, ["mi308x"]),
        ({"name": "AMD Radeon Graphics", "arch": "gfx90a"}, []),
        ({"compute_units": 38}, []),  # a partition
        ({"name": CARD.name, "arch": CARD.arch, "compute_units": 48}, ["rx7900xtx"]),
    ],
)
def test_profiles_match_by_name_units_and_target(
    changes: dict[str, Any], expected: list[str]
) -> None:
    known = Inventory(gpus=(evolve(MI300X, **changes),), present=1)
    (device,) = HipAccelerator(lambda: known).devices()
    profiles = PluginHost.of(atrex_profile_amd).profiles.items.values()

    assert [profile.name for profile in profiles if profile.match.accepts(device)] == expected


@pytest.mark.parametrize(
    ("inventory", "settings", "expected"),
    [
        (Inventory(problem="it is not usable (x): load it"), {}, "it is not usable (x): load it"),
        (Inventory(), {}, "AMD's kernel driver lists no GPU on this machine"),
        (
            Inventory(present=8),
            {"HIP_VISIBLE_DEVICES": ""},
            "HIP_VISIBLE_DEVICES='' hides all 8; unset it or name one of them",
        ),
        (
            Inventory(present=8),
            {},
            NOT_SHOWN,
        ),
    ],
    ids=["problem", "no gpu", "hidden", "not supported"],
)
def test_absence_names_the_step_that_found_nothing(
    inventory: Inventory,
    settings: dict[str, str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    assert HipAccelerator(lambda: inventory).absence() == f"no HIP device: {expected}"


def test_absence_names_every_gpu_in_trouble() -> None:
    broken = Inventory(gpus=(Gpu(trouble="lost"), Gpu(trouble="hung")), present=2)

    assert HipAccelerator(lambda: broken).absence() == (
        "no usable HIP device: GPU 0: lost; GPU 1: hung"
    )


def test_workers_see_the_same_devices_and_share_memory_the_same_way(
    gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ROCM_PATH", "ROCM_HOME", "HIP_PATH", "HSA_OVERRIDE_GFX_VERSION", "HSA_XNACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("HSA_ENABLE_IPC_MODE_LEGACY", "0")

    assert HipAccelerator(lambda: BOTH).worker_environment(gpu) == {
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "GPU_STREAMOPS_CP_WAIT": "0",
        "KINETO_LOG_LEVEL": "99",
        "HIP_VISIBLE_DEVICES": "1",
        "HSA_ENABLE_IPC_MODE_LEGACY": "0",
    }


def test_a_process_that_only_compiles_sees_no_device(gpu: Device) -> None:
    hip = HipAccelerator(lambda: BOTH).deviceless_environment(gpu)
    cuda = CudaAccelerator().deviceless_environment(gpu)

    assert hip == dict.fromkeys(VISIBILITY, "-1")
    assert cuda == {"CUDA_VISIBLE_DEVICES": ""}


def test_the_hook_provides_a_timed_exclusive_accelerator() -> None:
    (accelerator,) = atrex_accelerators()

    assert accelerator.name == "hip"
    assert accelerator.is_timed
    assert accelerator.exclusive


def test_importing_the_plugin_imports_no_framework() -> None:
    code = (
        "import sys, atrex_accelerator_hip as plugin\n"
        "(hip,) = plugin.atrex_accelerators()\n"
        "hip.devices()\n"
        "print([name for name in ('torch', 'triton', 'amdsmi') if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )

    assert done.stdout == "[]\n"
