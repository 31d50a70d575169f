"""Shared buffers: the same bytes on both sides, a size nobody can change, and clean refusals."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from atrex_accelerator_cpu import CpuAccelerator, memory
from attrs import evolve

from atrex_core import Buffer, BufferHandle, Device, DeviceContext, DType, HarnessError

MIB = 2**20


@pytest.fixture
def context() -> DeviceContext:
    accelerator = CpuAccelerator()
    device = accelerator.device("cpu")
    assert isinstance(device, Device)
    return accelerator.open(device)


def test_both_sides_see_the_same_bytes(context: DeviceContext) -> None:
    ours = context.allocate(64)
    theirs = context.open_buffer(ours.handle())

    theirs.tensor(DType.FP32, (2, 3), 16).copy_(torch.arange(6.0).view(2, 3))

    assert ours.tensor(DType.FP32, (6,), 16).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert ours.tensor(DType.UINT8, (16,)).tolist() == [0] * 16


def test_a_view_is_contiguous_and_shares_memory_at_its_offset(context: DeviceContext) -> None:
    buffer = context.allocate(4096)

    whole, part = buffer.tensor(DType.UINT8, (4096,)), buffer.tensor(DType.BF16, (3, 5), 512)

    assert part.shape == (3, 5)
    assert part.is_contiguous()
    assert part.dtype is torch.bfloat16
    assert part.data_ptr() - whole.data_ptr() == 512


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_every_dtype_has_views(context: DeviceContext, dtype: DType) -> None:
    buffer = context.allocate(8 * dtype.item_bytes)

    view = buffer.tensor(dtype, (2, 3), 2 * dtype.item_bytes)

    assert view.nbytes == 6 * dtype.item_bytes
    assert view.view(torch.uint8).count_nonzero() == 0


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)], ids=str)
def test_an_empty_view_fits_anywhere(context: DeviceContext, shape: tuple[int, ...]) -> None:
    buffer = context.allocate(0)
    other = context.open_buffer(buffer.handle())

    view = other.tensor(DType.FP32, shape)

    assert buffer.nbytes == other.nbytes == 0
    assert view.shape == shape
    assert view.dtype is torch.float32


def test_a_scalar_view_has_no_dimensions(context: DeviceContext) -> None:
    buffer = context.allocate(8)

    buffer.tensor(DType.INT64, ()).fill_(-7)

    assert buffer.tensor(DType.INT64, (1,)).tolist() == [-7]


@pytest.mark.parametrize(
    ("shape", "offset"),
    [((17,), 0), ((16,), 4), ((1,), -4), ((1,), 2)],
    ids=["too long", "past the end", "before the start", "misaligned"],
)
def test_a_view_that_does_not_fit_is_refused(
    context: DeviceContext, shape: tuple[int, ...], offset: int
) -> None:
    buffer = context.allocate(64)

    with pytest.raises(ValueError, match="fp32"):
        buffer.tensor(DType.FP32, shape, offset)


def test_nobody_can_resize_the_file(context: DeviceContext) -> None:
    fd = descriptor(context.allocate(4096))

    for size in (0, 8192):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_every_page_is_there_from_the_start(context: DeviceContext) -> None:
    fd = descriptor(context.allocate(8 * MIB))

    assert os.fstat(fd).st_blocks * 512 >= 8 * MIB


def test_another_process_can_write_into_it(context: DeviceContext) -> None:
    buffer = context.allocate(32)
    fd = descriptor(buffer)
    code = f"""
from atrex_accelerator_cpu import memory
from atrex_core import BufferHandle, DType
buffer = memory.open_buffer(BufferHandle(kind="memfd", nbytes=32, fd={fd}))
buffer.tensor(DType.INT32, (2,), 8).fill_(41)
"""
    subprocess.run([sys.executable, "-c", code], pass_fds=[fd], check=True)

    assert buffer.tensor(DType.INT32, (4,)).tolist() == [0, 0, 41, 41]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"nbytes": 128}, "128 bytes came as a file of 64"),
        ({"nbytes": 32}, "32 bytes came as a file of 64"),
        ({"kind": "cuda-ipc"}, "'cuda-ipc' is not shared memory"),
        ({"fd": None}, "is not shared memory"),
    ],
    ids=["too large", "too small", "another kind", "no descriptor"],
)
def test_a_handle_that_does_not_match_is_refused(
    context: DeviceContext, change: dict[str, Any], complaint: str
) -> None:
    buffer = context.allocate(64)

    with pytest.raises(HarnessError, match=complaint):
        context.open_buffer(evolve(buffer.handle(), **change))


def test_what_the_machine_cannot_hold_is_refused_before_it_is_tried(
    context: DeviceContext,
) -> None:
    with pytest.raises(MemoryError, match="available"):
        context.allocate(2**50)


def test_a_limit_of_this_process_is_a_memory_error(
    context: DeviceContext,
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        with pytest.raises(MemoryError, match="2097152 bytes of shared memory: File too large"):
            context.allocate(2 * MIB)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_refused_allocation_leaves_no_descriptor(context: DeviceContext) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = open_descriptors()
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, hard))
    try:
        with pytest.raises(MemoryError):
            context.allocate(2 * MIB)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert open_descriptors() == before


def test_closing_under_a_live_view_keeps_the_view(context: DeviceContext) -> None:
    buffer = context.allocate(16)
    view = buffer.tensor(DType.FP32, (4,))
    view.fill_(2.0)

    buffer.close()

    assert view.tolist() == [2.0, 2.0, 2.0, 2.0]
    del view
    assert "atrex-buffer" not in Path("/proc/self/maps").read_text()


def test_closing_gives_every_descriptor_and_mapping_back(context: DeviceContext) -> None:
    before = open_descriptors()
    buffer = context.allocate(MIB)
    other = context.open_buffer(buffer.handle())
    view = other.tensor(DType.UINT8, (MIB,))

    for closing in (buffer, other, buffer):  # closing twice is fine
        closing.close()
    del view

    assert open_descriptors() == before
    assert "atrex-buffer" not in Path("/proc/self/maps").read_text()


def test_a_closed_buffer_has_no_views_and_no_handle(context: DeviceContext) -> None:
    buffer = context.allocate(16)
    buffer.close()

    with pytest.raises(HarnessError, match="closed"):
        buffer.tensor(DType.UINT8, (1,))
    with pytest.raises(HarnessError, match="owner"):
        buffer.handle()


def test_the_receiver_cannot_export(context: DeviceContext) -> None:
    buffer = context.allocate(16)

    with pytest.raises(HarnessError, match="owner"):
        context.open_buffer(buffer.handle()).handle()


def test_a_handle_says_what_it_is(context: DeviceContext) -> None:
    handle = context.allocate(48).handle()

    assert handle == BufferHandle(kind=memory.KIND, nbytes=48, fd=handle.fd)
    assert handle.kind == "memfd"


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def descriptor(buffer: Buffer) -> int:
    fd = buffer.handle().fd
    assert fd is not None
    return fd
