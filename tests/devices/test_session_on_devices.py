"""The Python API on several devices: one thread reads, closing early loses nothing judged."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from atrex_core import Evaluation, Gate, GateResult, PluginHost, Session, hookimpl
from atrex_core.journal import Journal
from atrex_core.planning import Plan
from atrex_core.processes import linux

Kernels = Callable[..., Path]
_COUNT = 8


@pytest.fixture
def folder(tmp_path: Path, kernels: Kernels) -> Path:
    return kernels(tmp_path, count=2, seconds=0.02)


@pytest.fixture
def session(forge_here: None, tmp_path: Path) -> Iterator[Session]:
    with Session(
        backend="tongs",
        device=["forge:0", "forge:1"],
        until="correctness",
        journal=tmp_path / "j.jsonl",
    ) as session:
        yield session


def _plan(session: Session, folder: Path) -> Plan:
    return session.plan([folder])


def _kept(session: Session) -> list[str]:
    assert session.settings.journal is not None
    return [evaluation.id for evaluation in Journal(session.settings.journal)]


def test_plugins_hear_in_one_thread_of_gates_and_then_of_the_evaluation(
    forge_here: None, folder: Path
) -> None:
    heard: list[tuple[str, Any]] = []
    threads = set()

    class Observer:
        @hookimpl
        def atrex_gate_finished(self, evaluation_id: str, gate: Gate, result: GateResult) -> None:
            threads.add(threading.current_thread())
            heard.append((evaluation_id, gate))

        @hookimpl
        def atrex_evaluation_finished(self, evaluation: Evaluation) -> None:
            threads.add(threading.current_thread())
            heard.append((evaluation.id, "all"))

    host = PluginHost.discover(extra=[Observer()])

    with Session(
        host=host, backend="tongs", device="forge:0,forge:1", until="correctness"
    ) as session:
        found = list(session.run(_plan(session, folder)))

    assert len(found) == _COUNT
    assert threads == {threading.main_thread()}
    for evaluation in found:
        of_it = [what for id_, what in heard if id_ == evaluation.id]
        assert of_it == [*Gate, "all"]


@pytest.mark.slow
def test_reader_that_stops_early_finds_the_rest_in_the_journal(
    session: Session, folder: Path
) -> None:
    results = session.run(_plan(session, folder))

    read = [next(results).id for _ in range(2)]
    deadline = time.monotonic() + 30
    while session.cost.evaluations < 3:  # the devices go on meanwhile, but not far
        assert time.monotonic() < deadline
        time.sleep(0.05)
    results.close()

    late = [evaluation.id for evaluation in session.late]
    assert _kept(session) == [*read, *late]
    assert 1 <= len(late) <= 4
    assert not any(thread.name.startswith("forge:") for thread in threading.enumerate())
    busy = session.cost
    assert busy.evaluations >= len(read) + len(late)
    assert sum(device.busy_s for device in busy.devices) > 0
    assert busy == session.cost  # its clock stands still

    again = list(session.run(_plan(session, folder)))  # with fresh referees

    assert len(again) == _COUNT
    assert session.late == ()


def test_reader_that_fails_leaves_nothing_running(session: Session, folder: Path) -> None:
    before = set(linux.descendants(os.getpid()))

    def read() -> None:
        with session:
            for _ in session.run(_plan(session, folder)):
                assert set(linux.descendants(os.getpid())) != before
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read()

    assert set(linux.descendants(os.getpid())) == before
    assert len(_kept(session)) == 1 + len(session.late)


def test_session_that_is_closed_under_its_reader_ends_what_is_under_way(
    session: Session, folder: Path
) -> None:
    before = set(linux.descendants(os.getpid()))
    results = session.run(_plan(session, folder))
    first = next(results)

    session.close()

    assert set(linux.descendants(os.getpid())) == before
    assert _kept(session) == [first.id, *(evaluation.id for evaluation in session.late)]
    assert list(results) == []


@pytest.mark.slow
def test_referees_stay_for_the_next_run_and_start_up_is_paid_once(
    session: Session, tmp_path: Path, kernels: Kernels
) -> None:
    folder = kernels(tmp_path, count=2, seconds=0.1)  # so long that both take part
    assert len(list(session.run(_plan(session, folder)))) == _COUNT
    first, referees = session.cost, linux.children(os.getpid())

    assert len(list(session.run(_plan(session, folder)))) == _COUNT

    assert linux.children(os.getpid()) == referees
    assert [device.startup_s > 0 for device in first.devices] == [True, True]
    assert [device.startup_s for device in session.cost.devices] == [0, 0]
    assert session.cost.evaluations == _COUNT
    assert session.cost.wall_s < first.wall_s
