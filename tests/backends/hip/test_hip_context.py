"""A process's hold on a pretended AMD GPU: opening it, and what it says of itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from atrex_accelerator_hip import library
from atrex_accelerator_hip.context import HipContext, open_context
from attrs import evolve

from atrex_core import Device, HarnessError, Unavailable

MIB = 2**20


def test_opening_starts_torch_then_hip(context: HipContext, hip: Any, torch: Any) -> None:
    assert torch.told == ["init", "set_device 1", "profile", "zeros (1,) cuda:1", "synchronize 1"]
    assert hip.told == [("hipSetDevice", 1), ("hipDeviceGetPCIBusId", "&", 32, 1)]
    assert context.torch_device == "cuda:1"
    assert not torch.is_profiled


def test_a_profiler_that_refuses_does_not_keep_a_device_from_opening(
    hip: Any, torch: Any, gpu: Device
) -> None:
    torch.is_profiled = True

    assert HipContext(gpu, torch=torch, hip=hip).torch_device == "cuda:1"


def test_the_cache_is_the_one_that_was_listed(context: HipContext, hip: Any, torch: Any) -> None:
    assert context.last_level_cache_bytes == 256 * MIB
    assert context.overrun_caches()
    assert torch.told[-1] == "zeros (134217728,) cuda:1"  # twice the cache, in 4-byte words
    assert [entry.name for entry in hip.ran] == ["overrun"]


def test_where_none_was_listed_it_is_torchs(hip: Any, torch: Any, gpu: Device) -> None:
    untold = evolve(gpu, last_level_cache_bytes=None)

    assert HipContext(untold, torch=torch, hip=hip).last_level_cache_bytes == 4 * MIB


def test_versions_name_driver_runtime_and_gpu(context: HipContext) -> None:
    assert context.versions() == {
        "driver": "amdgpu 6.12.12",
        "hip_runtime": "7.1.25424",
        "hip_of_torch": "7.1.25424",
        "device_uuid": "GPU-8f6b0123456789ab",
        "last_level_cache_bytes": "268435456",
        "compute_units": "304",
    }


def test_a_part_without_a_number_leaves_it_out(context: HipContext, hip: Any) -> None:
    hip.uuid = b"XX"

    assert "device_uuid" not in context.versions()


def test_peak_memory_is_torchs(context: HipContext, torch: Any) -> None:
    context.reset_peak_memory()

    assert context.peak_memory_bytes() == 4096
    assert torch.told[-1] == "reset 1"


def test_conditions_are_those_of_the_gpu_that_was_opened(
    context: HipContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Smi:
        class AmdSmiLibraryException(Exception):
            pass

        AmdSmiClkType = SimpleNamespace(GFX=1, MEM=5)
        AmdSmiTemperatureType = SimpleNamespace(JUNCTION=1)
        AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)

        @staticmethod
        def amdsmi_init() -> None:
            pass

        @staticmethod
        def amdsmi_get_processor_handle_from_bdf(bus_id: str) -> str:
            return bus_id

        @staticmethod
        def amdsmi_get_temp_metric(gpu: str, *_sensor: int) -> int:
            assert gpu == "0000:c1:00.0"
            return 51

    monkeypatch.setitem(sys.modules, "amdsmi", Smi())  # type: ignore[arg-type]

    found = context.conditions()

    assert (found.temperature_c, found.clock_mhz) == (51.0, None)
    assert "clock_mhz, memory_clock_mhz" in str(found.reason)


# -- what does not open ----------------------------------------------------------------------------


def test_another_gpu_than_the_one_listed_is_refused(hip: Any, torch: Any, gpu: Device) -> None:
    torch.properties.gcnArchName = "gfx90a:sramecc+:xnack-"

    with pytest.raises(HarnessError, match=r'"hip:1" should be AMD Instinct MI300X \(gfx942\)'):
        HipContext(gpu, torch=torch, hip=hip)


@pytest.mark.parametrize("function", ["hipSetDevice", "hipDeviceGetPCIBusId"])
def test_a_device_that_vanished_for_hip_does_not_start(
    hip: Any, torch: Any, gpu: Device, function: str
) -> None:
    hip.failing[function] = 101

    with pytest.raises(HarnessError, match=f'"hip:1" does not start: {function} failed: hipErrorI'):
        HipContext(gpu, torch=torch, hip=hip)


def test_a_device_that_vanished_for_torch_does_not_start(hip: Any, torch: Any, gpu: Device) -> None:
    def refuse(_index: int) -> None:
        raise RuntimeError("HIP error: invalid device ordinal")

    torch.cuda.set_device = refuse

    with pytest.raises(HarnessError, match='device "hip:1" does not start: HIP error: invalid'):
        HipContext(gpu, torch=torch, hip=hip)


def test_a_device_that_faults_later_is_torchs_error(context: HipContext, torch: Any) -> None:
    def fault(_index: int) -> None:
        raise RuntimeError("HIP error: an illegal memory access was encountered")

    context._device_synchronize = fault

    with pytest.raises(RuntimeError, match="illegal memory access"):
        context.synchronize()


def test_a_torch_without_rocm_is_unavailable(gpu: Device) -> None:
    with pytest.raises(Unavailable) as raised:
        open_context(gpu)

    assert str(raised.value) == "this torch was built without ROCm"
    assert raised.value.hint == "install torch in its ROCm build"


def test_a_torch_that_cannot_start_devices_is_unavailable(
    hip: Any, torch: Any, gpu: Device
) -> None:
    def refuse() -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    torch.cuda.init = refuse

    with pytest.raises(Unavailable, match="this torch cannot use HIP: Torch not compiled"):
        HipContext(gpu, torch=torch, hip=hip)


@pytest.fixture
def rocm_torch(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def test_the_library_is_the_one_that_torch_loaded(
    rocm_torch: Any, hip: Any, gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    load: Callable[[str], Any] = lambda path: asked.append(path) or hip  # noqa: E731
    monkeypatch.setattr(library, "loaded", lambda: "/env/torch/lib/libamdhip64.so.7")
    monkeypatch.setattr(library, "load", load)

    assert open_context(gpu).torch_device == "cuda:1"
    assert asked == ["/env/torch/lib/libamdhip64.so.7"]


def test_a_torch_that_did_not_load_hip_is_unavailable(
    rocm_torch: Any, gpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "loaded", lambda: None)

    with pytest.raises(Unavailable, match="torch has not loaded HIP's library"):
        open_context(gpu)


# -- the library -----------------------------------------------------------------------------------


def test_a_loaded_library_is_found_among_the_mappings(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r--p 00000000 08:01 11    /usr/lib/libc.so.6\n"
        "7f02-7f03 r-xp 00001000 08:01 12    /env with space/torch/lib/libamdhip64.so.7.1.25424\n"
        "7f04-7f05 rw-p 00000000 00:00 0 \n"
    )

    assert library.loaded(maps) == "/env with space/torch/lib/libamdhip64.so.7.1.25424"
    assert library.loaded(tmp_path / "none") is None


def test_a_missing_library_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="HIP cannot be loaded: .*libabsent") as raised:
        library.load(str(tmp_path / "libabsent.so"))

    assert raised.value.hint == "install ROCm, or torch in its ROCm build"


def test_a_library_without_the_functions_is_not_hip() -> None:
    with pytest.raises(Unavailable, match="is not the HIP that is needed: .*hipSetDevice"):
        library.load("libc.so.6")


def test_the_places_to_look_follow_the_environment() -> None:
    found = library.candidates({"ROCM_PATH": "/roots/rocm", "HIP_PATH": ""})

    assert found[-3:] == (
        "/roots/rocm/lib/libamdhip64.so",
        "libamdhip64.so",
        "/opt/rocm/lib/libamdhip64.so",
    )


def test_torchs_copy_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = tmp_path / "torch" / "lib"
    lib.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("raise AssertionError('imported')")
    (lib / "libamdhip64.so.7").touch()
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    assert library.candidates({})[0] == str(lib / "libamdhip64.so.7")
