"""The words of a gate, seen from two processes."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator

import pytest

from atrex_core.interfaces import Stage
from atrex_core.processes.gate import GateWords, HostGate, wait_for
from atrex_core.processes.stage import StageCell


@pytest.fixture
def cell() -> Iterator[StageCell]:
    cell = StageCell.create()
    yield cell
    cell.close()


def in_another_process(work: Callable[[], None]) -> int:
    """Run `work` in a fork, which then ends, and return its pid."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def test_an_epoch_goes_there_and_back(cell: StageCell) -> None:
    def worker() -> None:
        words = StageCell.open(cell.fd).gate
        gate = HostGate(*words.addresses)
        for epoch in (1, 2):
            words.arm(epoch)
            gate.hold(epoch)
            gate.mark(epoch)

    pid = in_another_process(worker)
    for epoch in (1, 2):
        assert wait_for(lambda epoch=epoch: cell.gate.is_armed(epoch), limit_s=5)  # type: ignore[misc]
        assert not cell.gate.is_finished(epoch)
        cell.gate.release(epoch)
        assert wait_for(lambda epoch=epoch: cell.gate.is_finished(epoch), limit_s=5)  # type: ignore[misc]
    os.waitpid(pid, 0)


def test_an_older_epoch_opens_nothing(cell: StageCell) -> None:
    def worker() -> None:
        mapped = StageCell.open(cell.fd)
        gate = HostGate(*mapped.gate.addresses)
        gate.hold(3)
        gate.mark(3)

    cell.gate.release(2)
    pid = in_another_process(worker)
    assert not wait_for(lambda: cell.gate.is_finished(3), limit_s=0.1)
    cell.gate.release(3)
    assert wait_for(lambda: cell.gate.is_finished(3), limit_s=5)
    os.waitpid(pid, 0)


def test_words_keep_apart_from_each_other_and_from_the_stage(cell: StageCell) -> None:
    for stage in Stage:
        cell.set(stage)
        cell.gate.arm(0x01020304)
        cell.gate.release(0x05060708)
        assert cell.stage is stage
        assert cell.gate.is_armed(0x01020304)
        assert not cell.gate.is_finished(0x05060708)

    released, finished = cell.gate.addresses
    assert finished - released >= 64  # no two on one cache line
    assert released // mmap.PAGESIZE == finished // mmap.PAGESIZE


def test_a_word_is_what_was_written_last() -> None:
    words = GateWords(mmap.mmap(-1, mmap.PAGESIZE))
    words.arm(7)
    words.arm(8)

    assert not words.is_armed(7)
    assert words.is_armed(8)


def test_waiting_ends_at_the_limit_and_looks_once_more() -> None:
    looked: list[float] = []

    def never() -> bool:
        looked.append(time.perf_counter())
        return False

    began = time.perf_counter()
    found = wait_for(never, limit_s=0.02, spin_s=0.001)

    assert not found
    assert 0.02 <= time.perf_counter() - began < 0.5
    assert looked[-1] - began >= 0.02


def test_what_has_happened_is_not_waited_for() -> None:
    assert wait_for(lambda: True, limit_s=0.0)
