"""Forerunners are real processes: what they compile is found, what they do wrong is not felt."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from atrex_core.processes import linux
from atrex_core.processes.fork_server import ForkServerProcess
from atrex_core.referee.docket import Docket, Limits
from atrex_core.referee.forerunner import Forerunners, Scene

_WAIT_S = 60.0


@pytest.fixture(scope="module")
def server(kit: Any, kiln: Path) -> Iterator[ForkServerProcess]:
    server = kit.server("glaze")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def forerunners(kit: Any, server: ForkServerProcess) -> Iterator[Forerunners]:
    forerunners = kit.two_lanes(server)
    yield forerunners
    forerunners.close()
    assert linux.children(os.getpid()) == [server.pid]


Begin = Callable[..., Docket]


@pytest.fixture
def begin(
    kit: Any, kiln: Path, server: ForkServerProcess, forerunners: Forerunners
) -> Iterator[Begin]:
    """Return what makes a docket of a candidate whose forward begins with a body."""
    dockets: list[Docket] = []

    def begin(
        body: str = "",
        *,
        scenes: Sequence[Scene] | None = None,
        timeout_s: float = 30.0,
        memory_limit_bytes: int | None = None,
        source: str | None = None,
    ) -> Docket:
        limits = Limits(timeout_s=timeout_s, memory_limit_bytes=memory_limit_bytes)
        whole = source or kit.source(body)
        docket = Docket(server=server, device=kit.device, limits=limits, source=whole.encode())
        dockets.append(docket)
        wanted = [kit.scene("0", 8)] if scenes is None else scenes
        docket.look_ahead(forerunners, wanted, torch_device="cpu")
        return docket

    yield begin
    for docket in dockets:
        docket.close()
    assert [path.name for path in kiln.glob("atrex-worker-*")] == []
    assert _workers(forerunners) == []


def _workers(forerunners: Forerunners) -> list[int]:
    branches = [lane.branch.pid for lane in forerunners.lanes if lane.branch.pid]
    return [pid for branch in branches for pid in linux.descendants(branch)]


def test_first_call_finds_what_was_compiled_ahead(kit: Any, begin: Begin) -> None:
    docket = begin(scenes=[kit.scene("0", 8), kit.scene("1", 16)])

    ahead = [docket.compiled_ahead(workload, _WAIT_S) for workload in ("0", "1")]
    reports = [kit.call(docket, rows).reports for rows in (8, 16)]

    assert [(a and a.kernels, a and a.reason) for a in ahead] == [(1, None), (1, None)]
    assert [r.cached for found in reports for r in found] == [True, True]
    restated = [docket.restated(found)[0].compile_seconds for found in reports]
    assert [round(s or 0, 3) for s in restated] == [a.details()["seconds"] for a in ahead if a]
    assert min(s or 0 for s in restated) > 0.001


def test_without_scenes_nothing_is_ahead(kit: Any, begin: Begin) -> None:
    docket = begin(scenes=[])

    answer = kit.call(docket, 8)

    assert docket.compiled_ahead("0", _WAIT_S) is None
    assert docket.restated(answer.reports) == answer.reports
    assert [report.cached for report in answer.reports] == [False]


def test_workload_that_was_not_announced_is_not_waited_for(begin: Begin) -> None:
    docket = begin()

    ahead = docket.compiled_ahead("7", _WAIT_S)

    assert ahead is not None
    assert ahead.reason == "it was not announced"


def test_forerunner_sees_no_device_and_gives_way(begin: Begin) -> None:
    docket = begin("raise ValueError(f\"{os.environ.get('KILN_HIDDEN')} {os.nice(0)}\")")

    ahead = docket.compiled_ahead("0", _WAIT_S)

    assert ahead is not None
    assert str(ahead.reason).startswith("ValueError: yes 10 (line ")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param("if is_ahead: x.sum().item()", "it reads a value of a tensor", id="value"),
        pytest.param(
            "if is_ahead: x[x > 0]", "the shape of a tensor depends on values", id="shape"
        ),
        pytest.param("if is_ahead: raise ValueError('no')", "ValueError: no", id="exception"),
        pytest.param("if is_ahead: os._exit(3)", "it exited with status 3", id="exit"),
        pytest.param(
            "if is_ahead: ctypes.string_at(x.data_ptr())", "it was killed by SIGSEGV", id="address"
        ),
        pytest.param("if is_ahead: time.sleep(60)", "it gave no answer within 5 s", id="hang"),
        pytest.param(
            "if is_ahead:\n    kept = b'x' * (3 << 29); time.sleep(60)",
            "it exceeded the memory limit of 0.25 GiB",
            id="memory",
        ),
        pytest.param(
            "if is_ahead: os.kill(os.getppid(), signal.SIGKILL); time.sleep(60)",
            "it took the worker server down with it",
            id="branch",
        ),
        pytest.param(
            "if is_ahead:\n"
            "    stat = open(f'/proc/{os.getppid()}/stat').read()\n"
            "    os.kill(int(stat.rpartition(')')[2].split()[1]), signal.SIGKILL); time.sleep(60)",
            "it took the worker server down with it",
            id="trunk",
        ),
    ],
)
def test_whatever_a_forerunner_does_the_device_answers(
    kit: Any, begin: Begin, body: str, reason: str
) -> None:
    timeout_s = 5.0 if "within 5 s" in reason else 30.0
    docket = begin(body, timeout_s=timeout_s, memory_limit_bytes=kit.lanes << 28)

    ahead = docket.compiled_ahead("0", _WAIT_S)
    answer = kit.call(docket, 8)

    assert ahead is not None
    assert str(ahead.reason).startswith(reason)
    assert [report.cached for report in answer.reports] == [False]


def test_lost_server_serves_the_next_candidate(begin: Begin, forerunners: Forerunners) -> None:
    first = begin()
    assert first.compiled_ahead("0", _WAIT_S)
    os.kill(forerunners.trunk.pid, signal.SIGKILL)
    first.close()
    second = begin()

    ahead = second.compiled_ahead("0", _WAIT_S)

    assert ahead is not None
    assert (ahead.kernels, ahead.reason) == (1, None)


def test_candidate_that_cannot_be_imported_is_given_up(begin: Begin) -> None:
    docket = begin(source="raise ValueError('no')")

    ahead = docket.compiled_ahead("0", _WAIT_S)

    assert ahead is not None
    assert ahead.reason == "HarnessError: ValueError: no (line 1, in <module>)"


def test_forerunners_that_die_again_are_given_up(kit: Any, begin: Begin) -> None:
    docket = begin("if is_ahead: os._exit(3)", scenes=[kit.scene(str(i), 8 + i) for i in range(6)])

    reasons = [str(a.reason) for i in range(6) if (a := docket.compiled_ahead(str(i), _WAIT_S))]

    assert reasons[-1] == "they died again and again"
    assert sum(reason.startswith("it exited with status 3") for reason in reasons) <= 2 + kit.lanes


def test_stray_of_one_forerunner_ends_with_it_and_leaves_the_other_alone(
    kit: Any, begin: Begin, forerunners: Forerunners
) -> None:
    body = """
        if is_ahead and len(x) == 8:
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    time.sleep(300)
                os._exit(0)
            os._exit(3)
        if is_ahead:
            for _ in range(20):
                time.sleep(0.05)
    """
    docket = begin(body, scenes=[kit.scene("short", 8), kit.scene("long", 16)])

    short, long = (docket.compiled_ahead(name, _WAIT_S) for name in ("short", "long"))

    assert short is not None
    assert str(short.reason).startswith("it exited with status 3")
    assert long is not None
    assert (long.kernels, long.reason) == (1, None)
    assert [pid for pid in _workers(forerunners) if linux.command_of(pid) == "sleep"] == []


def test_what_is_asked_for_is_done_next(kit: Any, begin: Begin) -> None:
    body = "if is_ahead: time.sleep(1.0)"
    docket = begin(body, scenes=[kit.scene(str(i), 8 + i) for i in range(12)])
    started = time.monotonic()

    last = docket.compiled_ahead("11", _WAIT_S)

    assert last is not None
    assert (last.kernels, last.reason) == (1, None)
    assert time.monotonic() - started < 12 * 1.0 / kit.lanes


def test_nobody_waits_longer_than_he_wants(kit: Any, begin: Begin) -> None:
    docket = begin("if is_ahead: time.sleep(20)")

    ahead = docket.compiled_ahead("0", 0.5)
    answer = kit.call(docket, 8)

    assert ahead is not None
    assert ahead.reason == "not done within 0.5 s"
    assert 0.4 < ahead.waited_s < 5
    assert [report.cached for report in answer.reports] == [False]


_COUNTS = """
        if is_ahead:
            ticks = open("ticks", "w")
            while True:
                ticks.write("x"); ticks.flush()
"""


def _ticks(forerunners: Forerunners) -> list[int]:
    places = [Path(f"/proc/{pid}/cwd/ticks") for pid in _workers(forerunners)]
    return [place.stat().st_size for place in places if place.exists()]


def test_nothing_runs_ahead_during_a_pause(
    kit: Any, begin: Begin, forerunners: Forerunners
) -> None:
    docket = begin(_COUNTS, scenes=[kit.scene("0", 8), kit.scene("1", 16)])
    kit.wait_for(lambda: len(_ticks(forerunners)) == kit.lanes and min(_ticks(forerunners)))

    with docket.pause_ahead() as standstill:
        before = _ticks(forerunners)
        time.sleep(0.3)
        during = _ticks(forerunners)

    assert before == during
    assert standstill.moved == ()
    kit.wait_for(lambda: sum(_ticks(forerunners)) > sum(during))


def test_pause_does_not_count_for_the_limit(
    kit: Any, begin: Begin, forerunners: Forerunners
) -> None:
    docket = begin("if is_ahead: time.sleep(1.0)", timeout_s=5.0)
    kit.wait_for(lambda: _workers(forerunners))

    with docket.pause_ahead():
        time.sleep(5.5)
    ahead = docket.compiled_ahead("0", _WAIT_S)

    assert ahead is not None
    assert (ahead.kernels, ahead.reason) == (1, None)


def test_who_is_woken_during_a_pause_is_found_out(
    kit: Any, begin: Begin, forerunners: Forerunners
) -> None:
    docket = begin(_COUNTS)
    (pid,) = kit.wait_for(lambda: _ticks(forerunners) and _workers(forerunners))

    with docket.pause_ahead() as standstill:
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.1)
        os.kill(pid, signal.SIGSTOP)

    assert standstill.moved == (pid,)
    ahead = docket.compiled_ahead("0", _WAIT_S)
    assert ahead is not None
    assert ahead.reason == "one ran while it was to stand still"


def test_no_candidate_finds_what_another_has_left(begin: Begin, kiln: Path) -> None:
    first = begin()
    assert first.compiled_ahead("0", _WAIT_S)
    (cache,) = (path for path in kiln.glob("atrex-worker-*/twice-8"))
    first.close()
    second = begin()

    ahead = second.compiled_ahead("0", _WAIT_S)

    assert not cache.exists()
    assert ahead is not None
    assert ahead.kernels == 1
