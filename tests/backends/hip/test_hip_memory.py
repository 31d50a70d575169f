"""Buffers that a referee shares, and queues that it holds."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Iterator
from typing import Any

import pytest
from atrex_accelerator_hip.context import HipContext
from atrex_accelerator_hip.driver import Driver, HipError
from atrex_accelerator_hip.hold import Hold

from atrex_core import BufferHandle, DType, HarnessError, Unavailable

MIB = 2**20
NOT_MAPPED = "hipIpcOpenMemHandle failed: hipErrorInvalidValue: invalid argument"


# -- memory ----------------------------------------------------------------------------------------


def test_a_buffer_travels_as_hips_handle(context: HipContext, hip: Any) -> None:
    owned = context.allocate(10)
    exported = owned.handle()
    mapped = context.open_buffer(exported)
    view: Any = mapped.tensor(DType.UINT8, (4,), offset_bytes=6)
    (address,), (there,) = hip.memory, hip.mapped

    assert (exported.kind, exported.nbytes) == ("hip-ipc", 10)
    assert exported.token == address.to_bytes(64, "little").hex()
    assert view.interface == {
        "data": (there + 6, False),
        "shape": (4,),
        "typestr": "|u1",
        "version": 3,
    }
    assert view.device == "cuda:1"

    mapped.close()
    owned.close()

    assert (hip.memory, hip.mapped) == ({}, set())


def test_a_buffer_has_blocks_of_its_own(context: HipContext, hip: Any) -> None:
    buffers = [context.allocate(nbytes) for nbytes in (10, 2 * MIB + 1)]

    assert [buffer.nbytes for buffer in buffers] == [10, 2_097_153]
    assert list(hip.memory.values()) == [2_097_152, 4_194_304]


def test_torchs_cache_is_given_back_before_giving_up(context: HipContext, torch: Any) -> None:
    with pytest.raises(MemoryError, match="cuda:1 cannot hold 10485760 more bytes: 8388608 of"):
        context.allocate(9 * MIB)

    assert torch.told.count("empty_cache") == 1


def test_a_fault_is_not_taken_for_a_lack_of_memory(context: HipContext, hip: Any) -> None:
    hip.failing["hipMalloc"] = 700

    with pytest.raises(HipError, match="hipMalloc failed: hipErrorIllegalAddress"):
        context.allocate(10)


def test_free_bytes_count_torchs_cache(context: HipContext) -> None:
    context.allocate(2 * MIB)

    assert context.free_bytes() == (8 - 2 + 5 - 2) * MIB


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "cuda-ipc"}, 'a buffer of kind "cuda-ipc" is not device memory'),
        ({"token": "00" * 63}, "a device memory handle has 64 bytes, in hexadecimal"),
        ({"token": "00" * 65}, "a device memory handle has 64 bytes, in hexadecimal"),
        ({"token": "zz" * 64}, "a device memory handle has 64 bytes, in hexadecimal"),
        (
            {"token": "ff" * 64},
            "the referee's device memory cannot be mapped: " + NOT_MAPPED,
        ),
    ],
    ids=["another driver's", "short", "long", "not hexadecimal", "nobody's"],
)
def test_a_handle_that_is_not_ours_is_refused(
    context: HipContext, hip: Any, changes: dict[str, str], words: str
) -> None:
    good = {"kind": "hip-ipc", "token": context.allocate(8).handle().token}

    with pytest.raises(HarnessError) as raised:
        context.open_buffer(BufferHandle(nbytes=8, **{**good, **changes}))

    assert str(raised.value) == words
    assert hip.mapped == set()


def test_a_refused_export_says_what_may_help(context: HipContext, hip: Any) -> None:
    hip.failing["hipIpcGetMemHandle"] = 1

    with pytest.raises(HarnessError, match="cannot be shared with workers: hipIpcGetMem") as raised:
        context.allocate(8).handle()

    assert "HSA_ENABLE_IPC_MODE_LEGACY" in raised.value.hint


# -- the referee's gate ----------------------------------------------------------------------------


@pytest.fixture
def page() -> Iterator[int]:
    """Return the address of a page that could be shared."""
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    word = ctypes.c_uint32.from_buffer(shared)
    yield ctypes.addressof(word)
    del word
    shared.close()


def value_at(address: int) -> int:
    return ctypes.c_uint32.from_address(address).value


def release(address: int, epoch: int) -> None:
    ctypes.c_uint32.from_address(address).value = epoch


def test_rounds_run_in_order_and_only_when_they_are_released(
    context: HipContext, hip: Any, page: int
) -> None:
    released, finished = page + 64, page + 128
    gate = context.open_gate(released, finished)
    for epoch, name in ((1, "first"), (2, "second")):
        gate.hold(epoch)
        hip.enqueue(5.0, name)
        gate.mark(epoch)
    seen = []
    for epoch in (0, 1, 2):
        release(released, epoch)
        hip.run()
        seen.append(
            (value_at(finished), [entry.name for entry in hip.ran if "_" not in entry.name])
        )

    assert seen == [(0, []), (1, ["first"]), (2, ["first", "second"])]


def test_a_gate_pins_one_page_and_waits_by_the_devices_address(
    context: HipContext, hip: Any, page: int
) -> None:
    gate = context.open_gate(page + 64, page + 128)
    gate.hold(5)
    gate.mark(6)

    assert hip.told[-4:] == [
        ("hipHostRegister", page, 4096, 3),
        ("hipHostGetDevicePointer", "&", page, 0),
        ("hipStreamWaitValue32", 0, page + 64 + 4096, 5, 0, 0xFFFFFFFF),
        ("hipStreamWriteValue32", 0, page + 128 + 4096, 6, 0),
    ]


def test_memory_that_hip_does_not_pin_is_a_reason(context: HipContext, hip: Any, page: int) -> None:
    hip.failing["hipHostRegister"] = 801

    with pytest.raises(Unavailable, match="cannot hold a queue of this device: hipHostRegister"):
        context.open_gate(page, page + 64)


def test_a_device_that_cannot_wait_is_a_reason(context: HipContext, hip: Any, page: int) -> None:
    hip.can_wait = 0

    with pytest.raises(Unavailable, match="this device cannot let a stream wait for memory"):
        context.open_gate(page, page + 64)

    assert "hipHostRegister" not in hip.names()


# -- our own hold ----------------------------------------------------------------------------------


@pytest.fixture
def hold(hip: Any) -> Hold:
    return Hold(Driver(hip, 0))


def is_running(hip: Any) -> bool:
    hip.run()
    return any(entry.name == "kernel" for entry in hip.ran)


def test_a_stream_goes_on_at_the_release(hold: Hold, hip: Any) -> None:
    hold.start(0, limit_s=60.0)
    hip.enqueue(1.0)
    before = is_running(hip)
    hold.release()

    assert (before, is_running(hip)) == (False, True)


def test_a_stream_goes_on_by_itself_when_nobody_releases_it(hold: Hold, hip: Any) -> None:
    hold.start(0, limit_s=0.01)
    hip.enqueue(1.0)
    hip.wait_until_idle()

    assert is_running(hip)


def test_the_limit_of_one_hold_does_not_end_the_next(hold: Hold, hip: Any) -> None:
    hold.start(0, limit_s=0.005)
    hold.release()
    hold.start(0, limit_s=60.0)
    hip.enqueue(1.0)
    until = time.perf_counter() + 0.03
    while time.perf_counter() < until:
        assert not is_running(hip)
    hold.release()
    hold._let_go(1)  # as a timer that came late would

    assert is_running(hip)
    assert hold._word.read() == 2


def test_no_thread_is_left_after_a_release(hold: Hold) -> None:
    hold.start(0, limit_s=60.0)
    timer = hold._timer
    hold.release()

    assert timer is not None
    timer.join(5.0)
    assert not timer.is_alive()
