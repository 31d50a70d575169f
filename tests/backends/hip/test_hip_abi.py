"""Calls through ctypes, into a library that was compiled against HIP's own header.

The header is the one that triton brings. What numbers, structures and parameters are is then the
compiler's word, not ours; what a device would do with them is not shown.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from atrex_accelerator_hip import library, listing
from atrex_accelerator_hip.driver import Driver, HipError
from atrex_accelerator_hip.inventory import take_inventory
from atrex_accelerator_hip.kfd import Kfd

SOURCE = Path(__file__).with_name("pretended.c")
HANDLE = bytes(i * 5 % 256 for i in range(64))


def headers() -> Path | None:
    """Return the folder of HIP's headers, if triton is installed."""
    spec = find_spec("triton")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    found = [Path(folder, "backends", "amd", "include") for folder in folders]
    return next((path for path in found if (path / "hip").is_dir()), None)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler, include = shutil.which("cc"), headers()
    if compiler is None or include is None:
        pytest.skip("needs a C compiler, and triton for HIP's header")
    path = tmp_path_factory.mktemp("hip") / "libamdhip64.so"
    command = [compiler, "-shared", "-fPIC", "-w", f"-I{include}", str(SOURCE), "-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def hip(compiled: Path) -> Any:
    return library.load(str(compiled))


@pytest.fixture
def driver(hip: Any) -> Driver:
    return Driver(hip, 1)


def told(hip: Any) -> list[str]:
    """Return the last lines that the library wrote down."""
    hip.told.restype = ctypes.c_char_p
    return str(hip.told().decode()).splitlines()


def test_every_function_that_is_used_is_pretended(hip: Any) -> None:
    driver_source = Path(library.__file__).with_name("driver.py").read_text()

    assert [name for name in library.SIGNATURES if f'"{name}"' not in driver_source] == []


def test_every_signature_has_as_many_parameters_as_the_header() -> None:
    source = SOURCE.read_text()
    counts = {
        name: source.split(f"hipError_t {name}(")[1].split(")")[0].count(",") + 1
        for name in library.SIGNATURES
    }

    assert {name: len(takes) for name, takes in library.SIGNATURES.items()} == counts


def test_a_library_that_is_loaded_is_found_again(hip: Any, compiled: Path) -> None:
    assert library.loaded() == str(compiled)


def test_identity_crosses(driver: Driver, hip: Any) -> None:
    assert driver.version().startswith(("6.", "7.", "8.", "9.", "10."))
    assert (driver.uuid(), Driver(hip, 0).uuid()) == ("GPU-0123456789abcdef", None)
    assert driver.bus_id() == "0000:c1:00.0"
    assert driver.can_wait()
    assert told(hip)[-2:] == ["hipSetDevice 1", "hipSetDevice 0"]


def test_addresses_and_sizes_of_64_bits_cross(driver: Driver, hip: Any) -> None:
    address = driver.allocate(2**33)
    driver.free(address)

    assert address == 0x7F0012345678
    assert driver.free_and_total_bytes() == (5 * 2**32, 6 * 2**32)
    assert told(hip)[-2:] == ["hipMalloc 8589934592", "hipFree 0x7f0012345678"]


def test_a_handle_crosses_by_value(driver: Driver, hip: Any) -> None:
    handle = driver.export(0x7F0012345678)
    there = driver.map(handle)
    driver.unmap(there)

    assert handle == HANDLE
    assert there == 0x7E0012345678
    assert told(hip)[-2:] == [
        "hipIpcGetMemHandle 0x7f0012345678",
        "hipIpcCloseMemHandle 0x7e0012345678",
    ]


def test_another_handle_is_refused(driver: Driver) -> None:
    with pytest.raises(HipError, match="hipIpcOpenMemHandle failed: another: pretended"):
        driver.map(bytes(64))


def test_events_cross(driver: Driver, hip: Any) -> None:
    event = driver.event()
    driver.record(event, 0x7C0000000020)

    assert not driver.has_happened(event)
    assert driver.elapsed_us(event, 1) == 125.0
    assert told(hip)[-1] == "hipEventRecord 0x7d0000000010 0x7c0000000020"


def test_waits_and_writes_cross(driver: Driver, hip: Any) -> None:
    word = driver.host_word()
    page = driver.register_host(0x7B0000000000, 4096)
    driver.wait_for_word(page + 64, 0xFFFFFFFE, 0)
    driver.write_word(page + 128, 7, 0x7C0000000020)

    assert (word.read(), word.device_address) == (0, word.host_address)
    assert told(hip)[-3:] == [
        "hipHostRegister 0x7b0000000000 4096",
        "hipStreamWaitValue32 (nil) 0x7b0000000040 4294967294 ffffffff",
        "hipStreamWriteValue32 0x7c0000000020 0x7b0000000080 7 0",
    ]


def test_errors_come_with_hips_words(driver: Driver) -> None:
    with pytest.raises(HipError) as lacking:
        driver.allocate(2**41)
    with pytest.raises(HipError) as faulted:
        driver.wait(1)

    assert lacking.value.is_out_of_memory
    assert str(faulted.value) == (
        "hipEventSynchronize failed: hipErrorIllegalAddress: an illegal memory access"
    )


def test_the_layout_of_properties_is_the_headers(compiled: Path, tmp_path: Path) -> None:
    source = tmp_path / "layout.c"
    source.write_text(
        "#define __HIP_PLATFORM_AMD__ 1\n#include <hip/hip_runtime_api.h>\n"
        "#include <stddef.h>\n#include <stdio.h>\n"
        'int main(void) { printf("%zu %zu", offsetof(hipDeviceProp_t, gcnArchName),'
        " sizeof(hipDeviceProp_t)); return 0; }\n"
    )
    program = tmp_path / "layout"
    subprocess.run(
        ["cc", "-w", f"-I{headers()}", str(source), "-o", str(program)], check=True, timeout=60
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True)

    offset, size = map(int, done.stdout.split())
    assert offset == listing.ARCH_OFFSET_BYTES
    assert size <= ctypes.sizeof(listing.Properties)


def test_a_machine_is_listed_through_the_library(compiled: Path, tmp_path: Path) -> None:
    (tmp_path / "kfd").touch()

    found = take_inventory(
        kfd=Kfd(root=tmp_path, device=tmp_path / "kfd"), libraries=["libabsent.so", str(compiled)]
    )

    first, second = found.gpus
    assert (found.problem, first.name, first.arch) == (None, "Pretended 0", "gfx942")
    assert (first.memory_bytes, first.compute_units) == (206_141_652_992, 304)
    assert first.last_level_cache_bytes == 256 * 2**20
    assert second.trouble == "hipDeviceGetName: pretended"
