"""One CPU for each thread while calls are timed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from atrex_accelerator_cpu import CpuAccelerator, threads

needs_two_cpus = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="there is one CPU to place threads on"
)


@pytest.fixture
def allowed() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0)))


@pytest.fixture
def helper() -> Iterator[int]:
    """Start a thread that waits, and return its id."""
    leave = threading.Event()
    thread = threading.Thread(target=leave.wait)
    thread.start()
    assert thread.native_id is not None
    yield thread.native_id
    leave.set()
    thread.join()


def test_threads_stay_where_they_ran_last() -> None:
    last = {10: 3, 11: 0, 12: 2, 13: 1}

    assert threads.places(last, range(4)) == last


def test_threads_on_one_cpu_are_taken_apart() -> None:
    found = threads.places({10: 2, 11: 2, 12: 2, 13: 2}, range(4))

    assert found[10] == 2
    assert sorted(found.values()) == [0, 1, 2, 3]


def test_a_thread_that_has_a_place_of_its_own_keeps_it() -> None:
    assert threads.places({10: 0, 11: 0, 12: 1}, range(3)) == {10: 0, 11: 2, 12: 1}


def test_each_pool_has_all_cpus_but_the_main_threads() -> None:
    found = threads.places(dict.fromkeys(range(10, 17), 1), range(4))

    assert found[10] == 1
    assert {found[11], found[12], found[13]} == {0, 2, 3}
    assert {found[14], found[15], found[16]} == {0, 2, 3}


def test_a_cpu_that_is_not_allowed_or_not_known_is_no_place() -> None:
    found = threads.places({10: 9, 11: None, 12: 9}, (4, 5, 6))

    assert found[10] == 4
    assert {found[11], found[12]} == {5, 6}


@needs_two_cpus
def test_every_thread_has_a_cpu_of_its_own_and_gets_all_back(
    allowed: tuple[int, ...], helper: int
) -> None:
    with threads.placed(allowed):
        main, other = os.sched_getaffinity(os.getpid()), os.sched_getaffinity(helper)

    assert len(main) == len(other) == 1
    assert main != other
    assert os.sched_getaffinity(os.getpid()) == os.sched_getaffinity(helper) == set(allowed)


@needs_two_cpus
def test_threads_are_given_back_when_a_call_fails(allowed: tuple[int, ...], helper: int) -> None:
    with pytest.raises(RuntimeError, match="no such kernel"), threads.placed(allowed):
        raise RuntimeError("no such kernel")

    assert os.sched_getaffinity(os.getpid()) == os.sched_getaffinity(helper) == set(allowed)


@needs_two_cpus
def test_a_thread_that_starts_meanwhile_is_set_free_too(allowed: tuple[int, ...]) -> None:
    leave = threading.Event()
    with threads.placed((allowed[0], allowed[1])):
        pass
    first = threading.Thread(target=leave.wait)
    first.start()
    with threads.placed(allowed):
        late = threading.Thread(target=leave.wait)
        late.start()
        assert late.native_id is not None
        meanwhile = os.sched_getaffinity(late.native_id)
    afterwards = os.sched_getaffinity(late.native_id)
    leave.set()
    for thread in (first, late):
        thread.join()

    assert len(meanwhile) == 1
    assert afterwards == set(allowed)


def test_one_cpu_leaves_nothing_to_place(helper: int) -> None:
    before = os.sched_getaffinity(helper)

    with threads.placed((0,)):
        assert os.sched_getaffinity(helper) == before


@pytest.mark.usefixtures("helper")
def test_a_kernel_that_refuses_leaves_threads_as_they_were(
    allowed: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: int, cpus: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)

    with threads.placed((0, 1)):
        assert os.sched_getaffinity(0) == set(allowed)


@needs_two_cpus
@pytest.mark.usefixtures("helper")
def test_the_context_places_the_threads_of_its_process() -> None:
    (device,) = CpuAccelerator().devices()
    context = CpuAccelerator().open(device)
    before = os.sched_getaffinity(0)

    with context.placed_threads():
        assert len(os.sched_getaffinity(0)) == 1

    assert os.sched_getaffinity(0) == before
