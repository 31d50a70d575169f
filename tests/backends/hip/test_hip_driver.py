"""Each call of HIP: its arguments, its status, its words for what went wrong."""

from __future__ import annotations

from typing import Any

import pytest
from atrex_accelerator_hip.driver import Driver, HipError


@pytest.fixture
def driver(hip: Any) -> Driver:
    return Driver(hip, 1)


def test_the_device_is_made_current(driver: Driver, hip: Any) -> None:
    assert hip.told == [("hipSetDevice", 1)]


def test_identity_is_asked_for_by_ordinal(driver: Driver, hip: Any) -> None:
    found = (driver.version(), driver.uuid(), driver.bus_id(), driver.can_wait())

    assert found == ("7.1.25424", "GPU-8f6b0123456789ab", "0000:c1:00.0", True)
    assert hip.told[1:] == [
        ("hipRuntimeGetVersion", "&"),
        ("hipDeviceGetUuid", "&", 1),
        ("hipDeviceGetPCIBusId", "&", 32, 1),
        ("hipDeviceGetAttribute", "&", 10013, 1),
    ]


@pytest.mark.parametrize("uuid", [b"XX", b"", b"\x80\xff"], ids=["none", "empty", "not text"])
def test_a_part_without_a_number_of_its_own_has_no_uuid(
    driver: Driver, hip: Any, uuid: bytes
) -> None:
    hip.uuid = uuid

    assert driver.uuid() is None


def test_memory_is_made_shared_and_given_back(driver: Driver, hip: Any) -> None:
    address = driver.allocate(2**21)
    handle = driver.export(address)
    there = driver.map(handle)
    driver.unmap(there)
    driver.free(address)

    assert len(handle) == 64
    assert hip.told[1:] == [
        ("hipMalloc", "&", 2**21),
        ("hipIpcGetMemHandle", "&", address),
        ("hipIpcOpenMemHandle", "&", handle, 1),
        ("hipIpcCloseMemHandle", there),
        ("hipFree", address),
    ]
    assert (hip.memory, hip.mapped) == ({}, set())


def test_memory_is_counted(driver: Driver) -> None:
    driver.allocate(2**21)

    assert driver.free_and_total_bytes() == (6 * 2**20, 8 * 2**20)


def test_events_keep_the_devices_time(driver: Driver, hip: Any) -> None:
    start, end = driver.event(), driver.event()
    driver.record(start, 0)
    hip.enqueue(125.0)
    driver.record(end, 0)
    driver.wait(end)

    assert driver.has_happened(end)
    assert driver.elapsed_us(start, end) == pytest.approx(125.0, abs=0.1)
    assert [entry for entry in hip.told if entry[0] == "hipEventCreateWithFlags"] == (
        [("hipEventCreateWithFlags", "&", 0)] * 2
    )


def test_a_word_is_coherent_host_memory_set_to_zero(driver: Driver, hip: Any) -> None:
    word = driver.host_word()

    assert hip.told[1:] == [
        ("hipHostMalloc", "&", 4, 0x40000003),
        ("hipHostGetDevicePointer", "&", word.host_address, 0),
    ]
    assert word.device_address == word.host_address + 4096
    assert word.read() == 0


def test_an_event_behind_a_wait_has_not_happened(driver: Driver, hip: Any) -> None:
    word, event = driver.host_word(), driver.event()
    driver.wait_for_word(word.device_address, 3, 7)
    driver.record(event, 7)

    assert not driver.has_happened(event)
    word.write(3)
    assert driver.has_happened(event)
    assert ("hipStreamWaitValue32", 7, word.device_address, 3, 0, 0xFFFFFFFF) in hip.told


@pytest.mark.parametrize(
    ("function", "use"),
    [
        ("hipSetDevice", lambda driver: driver.make_current()),
        ("hipMemGetInfo", lambda driver: driver.free_and_total_bytes()),
        ("hipMalloc", lambda driver: driver.allocate(1)),
        ("hipFree", lambda driver: driver.free(1)),
        ("hipIpcGetMemHandle", lambda driver: driver.export(1)),
        ("hipIpcOpenMemHandle", lambda driver: driver.map(bytes(64))),
        ("hipIpcCloseMemHandle", lambda driver: driver.unmap(1)),
        ("hipEventCreateWithFlags", lambda driver: driver.event()),
        ("hipEventRecord", lambda driver: driver.record(1, 0)),
        ("hipEventQuery", lambda driver: driver.has_happened(1)),
        ("hipEventSynchronize", lambda driver: driver.wait(1)),
        ("hipEventElapsedTime", lambda driver: driver.elapsed_us(1, 2)),
        ("hipHostMalloc", lambda driver: driver.host_word()),
        ("hipHostRegister", lambda driver: driver.register_host(4096, 4096)),
        ("hipHostGetDevicePointer", lambda driver: driver.register_host(4096, 4096)),
        ("hipStreamWaitValue32", lambda driver: driver.wait_for_word(1, 1, 0)),
        ("hipStreamWriteValue32", lambda driver: driver.write_word(1, 1, 0)),
        ("hipRuntimeGetVersion", lambda driver: driver.version()),
        ("hipDeviceGetUuid", lambda driver: driver.uuid()),
        ("hipDeviceGetPCIBusId", lambda driver: driver.bus_id()),
        ("hipDeviceGetAttribute", lambda driver: driver.can_wait()),
    ],
)
def test_every_status_is_checked(driver: Driver, hip: Any, function: str, use: Any) -> None:
    hip.failing[function] = 700

    with pytest.raises(HipError) as raised:
        use(driver)

    assert str(raised.value) == (
        f"{function} failed: hipErrorIllegalAddress: an illegal memory access was encountered"
    )
    assert raised.value.code == 700
    assert not raised.value.is_out_of_memory


def test_a_lack_of_memory_is_told_from_a_fault(driver: Driver) -> None:
    with pytest.raises(HipError) as raised:
        driver.allocate(2**30)

    assert raised.value.is_out_of_memory


def test_a_device_that_is_gone_is_an_error_with_its_words(hip: Any) -> None:
    hip.failing["hipSetDevice"] = 101

    with pytest.raises(HipError, match="hipErrorInvalidDevice: invalid device ordinal"):
        Driver(hip, 3)
