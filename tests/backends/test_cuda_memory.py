"""Buffers that cross processes: their size, their views, and what is refused."""

from __future__ import annotations

from typing import Any, cast

import pytest
from atrex_accelerator_cuda.driver import CudaError, Driver
from atrex_accelerator_cuda.memory import MappedBuffer, OwnedBuffer, allocate, open_mapped

from atrex_core import BufferHandle, DType, HarnessError

MIB = 2**20
HANDLE = bytes(range(64))
HANDLE_TEXT = (
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
    "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
)


class FakeDriver:
    """A device of 8 MiB."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.released: list[tuple[str, int]] = []
        self.refusal: CudaError | None = None

    def make_current(self) -> None:
        pass

    def free_and_total_bytes(self) -> tuple[int, int]:
        return 8 * MIB - sum(self.sizes.values()), 8 * MIB

    def allocate(self, nbytes: int) -> int:
        if self.refusal:
            raise self.refusal
        address = 0x7F00_0000_0000 + len(self.sizes) * 64 * MIB
        self.sizes[address] = nbytes
        return address

    def free(self, address: int) -> None:
        self.released.append(("free", address))

    def export(self, address: int) -> bytes:
        if self.refusal:
            raise self.refusal
        return HANDLE

    def map(self, handle: bytes) -> int:
        if self.refusal:
            raise self.refusal
        assert handle == HANDLE
        return 0x7E00_0000_0000

    def unmap(self, address: int) -> None:
        self.released.append(("unmap", address))


class FakeTorch:
    def empty(self, shape: tuple[int, ...], *, dtype: Any, device: str) -> tuple[Any, ...]:
        return ("empty", shape, str(dtype), device)

    def as_tensor(self, source: Any, *, device: str) -> FakeTensor:
        return FakeTensor(source, device)


class FakeTensor:
    def __init__(self, source: Any, device: str) -> None:
        self.source = source
        self.device = device
        self.views: list[str] = []

    def view(self, what: Any) -> FakeTensor:
        self.views.append(str(what))
        return self


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


def own(driver: Any, nbytes: int) -> OwnedBuffer:
    return allocate(
        driver,
        nbytes,
        torch=FakeTorch(),
        torch_device="cuda:1",
        give_back_cached=lambda: driver.released.append(("cache", 0)),
    )


def mapped(driver: Any, handle: BufferHandle) -> MappedBuffer:
    return open_mapped(driver, handle, torch=FakeTorch(), torch_device="cuda:1")


def test_a_buffer_never_shares_a_block_with_another(driver: FakeDriver) -> None:
    buffers = [own(driver, nbytes) for nbytes in (10, 0, 2 * MIB + 1)]

    assert [buffer.nbytes for buffer in buffers] == [10, 0, 2_097_153]
    assert list(driver.sizes.values()) == [2_097_152, 2_097_152, 4_194_304]


def test_a_handle_carries_the_export_in_hexadecimal(driver: FakeDriver) -> None:
    handle = own(driver, 10).handle()

    assert handle == BufferHandle(kind="cuda-ipc", nbytes=10, token=HANDLE_TEXT)


def test_a_view_covers_the_bytes_asked_for(driver: FakeDriver) -> None:
    buffer = mapped(driver, BufferHandle(kind="cuda-ipc", nbytes=24, token=HANDLE_TEXT))

    view = buffer.tensor(DType.BF16, (2, 3), offset_bytes=12)

    assert view.source.__cuda_array_interface__ == {
        "data": (0x7E00_0000_000C, False),
        "shape": (12,),
        "typestr": "|u1",
        "version": 3,
    }
    assert view.views == ["torch.bfloat16", "(2, 3)"]
    assert view.device == "cuda:1"


def test_a_view_keeps_its_buffer_alive(driver: FakeDriver) -> None:
    buffer = own(driver, 8)

    view = buffer.tensor(DType.FP32, (2,))

    assert view.source._buffer is buffer


def test_an_empty_view_has_its_shape(driver: FakeDriver) -> None:
    view = own(driver, 8).tensor(DType.FP32, (0, 4))

    assert view == ("empty", (0, 4), "torch.float32", "cuda:1")


@pytest.mark.parametrize(
    ("dtype", "shape", "offset_bytes"),
    [
        pytest.param(DType.FP32, (3,), 0, id="too long"),
        pytest.param(DType.FP32, (1,), 8, id="past the end"),
        pytest.param(DType.FP32, (1,), 2, id="misaligned"),
        pytest.param(DType.FP32, (1,), -4, id="before the start"),
        pytest.param(DType.FP32, (-1,), 0, id="negative extent"),
    ],
)
def test_a_view_outside_the_buffer_is_refused(
    dtype: DType, shape: tuple[int, ...], offset_bytes: int, driver: FakeDriver
) -> None:
    buffer = own(driver, 8)

    with pytest.raises(ValueError):
        buffer.tensor(dtype, shape, offset_bytes)


def test_closing_twice_releases_once(driver: FakeDriver) -> None:
    owned = own(driver, 8)
    theirs = mapped(driver, BufferHandle(kind="cuda-ipc", nbytes=8, token=HANDLE_TEXT))

    for buffer in (owned, owned, theirs, theirs):
        buffer.close()

    assert driver.released == [("free", 0x7F00_0000_0000), ("unmap", 0x7E00_0000_0000)]


def test_a_closed_buffer_has_no_views_and_no_handle(driver: FakeDriver) -> None:
    buffer = own(driver, 8)
    buffer.close()

    with pytest.raises(HarnessError, match="closed"):
        buffer.tensor(DType.UINT8, (1,))
    with pytest.raises(HarnessError, match="closed"):
        buffer.handle()


def test_a_mapping_is_not_exported_again(driver: FakeDriver) -> None:
    theirs = mapped(driver, BufferHandle(kind="cuda-ipc", nbytes=8, token=HANDLE_TEXT))

    with pytest.raises(HarnessError, match="cannot be exported again"):
        theirs.handle()


def test_memory_that_is_only_cached_is_taken_back(driver: FakeDriver) -> None:
    driver.sizes[0] = 7 * MIB

    buffer = allocate(
        cast(Driver, driver),
        3 * MIB,
        torch=FakeTorch(),
        torch_device="cuda:1",
        give_back_cached=driver.sizes.clear,
    )

    assert buffer.nbytes == 3_145_728
    assert list(driver.sizes.values()) == [4_194_304]


def test_memory_that_is_not_there_is_a_memory_error_with_sizes(driver: FakeDriver) -> None:
    with pytest.raises(MemoryError) as raised:
        own(driver, 9 * MIB)

    assert str(raised.value) == (
        "cuda:1 cannot hold 10485760 more bytes: 8388608 of 8388608 are free"
    )
    assert driver.released == [("cache", 0)]


def test_memory_that_the_driver_denies_is_a_memory_error(driver: FakeDriver) -> None:
    driver.refusal = CudaError("cuMemAlloc", 2, "out of memory")

    with pytest.raises(MemoryError, match="cuda:1 cannot hold 2097152 more bytes"):
        own(driver, 10)


def test_a_fault_during_allocation_is_not_taken_for_a_lack_of_memory(driver: FakeDriver) -> None:
    driver.refusal = CudaError("cuMemAlloc", 700, "illegal address")

    with pytest.raises(CudaError, match="cuMemAlloc failed: illegal address"):
        own(driver, 10)


@pytest.mark.parametrize(
    "handle",
    [
        pytest.param(BufferHandle(kind="memfd", nbytes=8, token=HANDLE_TEXT), id="kind"),
        pytest.param(BufferHandle(kind="cuda-ipc", nbytes=8, token="00"), id="short"),
        pytest.param(BufferHandle(kind="cuda-ipc", nbytes=8, token="zz"), id="not hexadecimal"),
    ],
)
def test_a_foreign_handle_is_refused(handle: BufferHandle, driver: FakeDriver) -> None:
    with pytest.raises(HarnessError):
        mapped(driver, handle)


def test_a_refused_mapping_says_what_helps(driver: FakeDriver) -> None:
    driver.refusal = CudaError("cuIpcOpenMemHandle", 201, "invalid device context")

    with pytest.raises(HarnessError, match="cannot be mapped: cuIpcOpenMemHandle failed") as raised:
        mapped(driver, BufferHandle(kind="cuda-ipc", nbytes=8, token=HANDLE_TEXT))

    assert raised.value.hint.startswith("referee and worker must run as the same user")


def test_a_refused_export_says_what_helps(driver: FakeDriver) -> None:
    buffer = own(driver, 8)
    driver.refusal = CudaError("cuIpcGetMemHandle", 801, "not supported")

    with pytest.raises(HarnessError, match="cannot be shared with workers") as raised:
        buffer.handle()

    assert raised.value.hint.startswith("CUDA IPC needs Linux")
