"""Forerunners are real processes: what they compile is found, what they do wrong is not felt."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from atrex_core import Container, Device, Stage, TensorSpec
from atrex_core.model import DType
from atrex_core.processes import linux
from atrex_core.processes.fork_server import ForkServerBranch, ForkServerProcess
from atrex_core.processes.messages import Call, Done, OpenWorkload
from atrex_core.processes.workers import Worker
from atrex_core.referee.arena import Arena
from atrex_core.referee.docket import Docket, Limits
from atrex_core.referee.forerunner import Forerunners, Lane, Scene

_DEVICE = Device(id="kiln:0", accelerator="kiln", vendor="acme", name="Acme Kiln", arch="sm_90")
_LANES = 2
_WAIT_S = 60.0

_PRELUDE = """
import ctypes, os, signal, time
import torch
from atrex_acme import hammer
from torch._subclasses.fake_tensor import FakeTensor

@hammer.kernel
def twice(row, x, out):
    out[row] = 2 * x[row]

class Model(torch.nn.Module):
    def forward(self, x):
        is_ahead = isinstance(x, FakeTensor)
        out = torch.empty_like(x)
"""
_REST = """
        twice[x.shape[0]](x, out)
        return out
"""


@pytest.fixture(scope="module")
def kiln(acme_here: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the vendor's plugin for the processes that are started here."""
    folder = tmp_path_factory.mktemp("kiln")
    spec = importlib.util.spec_from_file_location(
        "kiln_plugin", Path(__file__).with_name("kiln_plugin.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.install(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}:{folder}")
        yield acme_here


def _server(backend: str) -> ForkServerProcess:
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "TMPDIR")}
    server = ForkServerProcess(backend, "kiln", ("kiln",), environment)
    server.start()
    return server


@pytest.fixture(scope="module")
def server(kiln: Path) -> Iterator[ForkServerProcess]:
    server = _server("glaze")
    yield server
    server.stop()


def _two_lanes(server: ForkServerProcess) -> Forerunners:
    """Start forerunners whose number does not depend on this machine."""
    found = Forerunners.beside(server, {"KILN_HIDDEN": "yes"})
    assert found is not None
    lanes = (Lane(ForkServerBranch(found.trunk)) for _ in range(_LANES))
    return Forerunners(found.trunk, tuple(lanes))


@pytest.fixture(scope="module")
def forerunners(server: ForkServerProcess) -> Iterator[Forerunners]:
    forerunners = _two_lanes(server)
    yield forerunners
    forerunners.close()
    assert linux.children(os.getpid()) == [server.pid]


Begin = Callable[..., Docket]


@pytest.fixture
def begin(kiln: Path, server: ForkServerProcess, forerunners: Forerunners) -> Iterator[Begin]:
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
        whole = _PRELUDE + textwrap.indent(textwrap.dedent(body), " " * 8) + _REST
        limits = Limits(timeout_s=timeout_s, memory_limit_bytes=memory_limit_bytes)
        docket = Docket(
            server=server, device=_DEVICE, limits=limits, source=(source or whole).encode()
        )
        dockets.append(docket)
        wanted = [_scene("0", 8)] if scenes is None else scenes
        docket.look_ahead(forerunners, wanted, torch_device="cpu")
        return docket

    yield begin
    for docket in dockets:
        docket.close()
    assert [path.name for path in kiln.glob("atrex-worker-*")] == []
    assert _workers(forerunners) == []


def _scene(workload: str, rows: int) -> Scene:
    return Scene(workload=workload, init={}, inputs=(_spec("x", rows),))


def _spec(name: str, rows: int) -> TensorSpec:
    return TensorSpec(name=name, dtype=DType.FP32, shape=(rows,))


def _workers(forerunners: Forerunners) -> list[int]:
    branches = [lane.branch.pid for lane in forerunners.lanes if lane.branch.pid]
    return [pid for branch in branches for pid in linux.descendants(branch)]


def _call(docket: Docket, rows: int) -> Done:
    """Have the worker that holds the device answer, and check its answer."""
    from atrex_acme.accelerator import AnvilContext

    arena = Arena.allocate(AnvilContext(), [_spec("x", rows)], [_spec("out", rows)], sets=1)
    import torch

    x = torch.arange(rows, dtype=torch.float32)
    arena.write_inputs(0, {"x": x})
    handles, fds = arena.export()
    worker = docket.ensure_worker()
    assert isinstance(worker, Worker), worker
    opened = worker.ask(
        OpenWorkload,
        timeout_s=30,
        fds=fds,
        init={},
        container=Container.TENSOR,
        buffers=handles,
        input_sets=arena.input_sets,
        output_sets=arena.output_sets,
    )
    assert isinstance(opened, Done), opened
    answer = worker.ask(Call, timeout_s=30, stage=Stage.CORRECTNESS, report=True)
    assert isinstance(answer, Done), answer
    assert torch.equal(arena.snapshot_outputs()["out"], 2 * x)
    worker.stop()
    arena.close()
    return answer


def test_first_call_finds_what_was_compiled_ahead(begin: Begin) -> None:
    docket = begin(scenes=[_scene("0", 8), _scene("1", 16)])

    ahead = [docket.compiled_ahead(workload, _WAIT_S) for workload in ("0", "1")]
    reports = [_call(docket, rows).reports for rows in (8, 16)]

    assert [(a and a.kernels, a and a.reason) for a in ahead] == [(1, None), (1, None)]
    assert [r.cached for found in reports for r in found] == [True, True]
    restated = [docket.restated(found)[0].compile_seconds for found in reports]
    assert [round(s or 0, 3) for s in restated] == [a.details()["seconds"] for a in ahead if a]
    assert min(s or 0 for s in restated) > 0.001


def test_without_scenes_nothing_is_ahead(begin: Begin) -> None:
    docket = begin(scenes=[])

    answer = _call(docket, 8)

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
    begin: Begin, body: str, reason: str
) -> None:
    timeout_s = 5.0 if "within 5 s" in reason else 30.0
    docket = begin(body, timeout_s=timeout_s, memory_limit_bytes=_LANES << 28)

    ahead = docket.compiled_ahead("0", _WAIT_S)
    answer = _call(docket, 8)

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


def test_forerunners_that_die_again_are_given_up(begin: Begin) -> None:
    docket = begin("if is_ahead: os._exit(3)", scenes=[_scene(str(i), 8 + i) for i in range(6)])

    reasons = [str(a.reason) for i in range(6) if (a := docket.compiled_ahead(str(i), _WAIT_S))]

    assert reasons[-1] == "they died again and again"
    assert sum(reason.startswith("it exited with status 3") for reason in reasons) <= 2 + _LANES


def test_stray_of_one_forerunner_ends_with_it_and_leaves_the_other_alone(
    begin: Begin, forerunners: Forerunners
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
    docket = begin(body, scenes=[_scene("short", 8), _scene("long", 16)])

    short, long = (docket.compiled_ahead(name, _WAIT_S) for name in ("short", "long"))

    assert short is not None
    assert str(short.reason).startswith("it exited with status 3")
    assert long is not None
    assert (long.kernels, long.reason) == (1, None)
    assert [pid for pid in _workers(forerunners) if linux.command_of(pid) == "sleep"] == []


def test_what_is_asked_for_is_done_next(begin: Begin) -> None:
    body = "if is_ahead: time.sleep(0.4)"
    docket = begin(body, scenes=[_scene(str(i), 8 + i) for i in range(12)])
    started = time.monotonic()

    last = docket.compiled_ahead("11", _WAIT_S)

    assert last is not None
    assert (last.kernels, last.reason) == (1, None)
    assert time.monotonic() - started < 12 * 0.4 / _LANES


def test_nobody_waits_longer_than_he_wants(begin: Begin) -> None:
    docket = begin("if is_ahead: time.sleep(20)")

    ahead = docket.compiled_ahead("0", 0.5)
    answer = _call(docket, 8)

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


def _wait_for(what: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 30
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def test_nothing_runs_ahead_during_a_pause(begin: Begin, forerunners: Forerunners) -> None:
    docket = begin(_COUNTS, scenes=[_scene("0", 8), _scene("1", 16)])
    _wait_for(lambda: len(_ticks(forerunners)) == _LANES and min(_ticks(forerunners)))

    with docket.pause_ahead() as standstill:
        before = _ticks(forerunners)
        time.sleep(0.3)
        during = _ticks(forerunners)

    assert before == during
    assert standstill.moved == ()
    _wait_for(lambda: sum(_ticks(forerunners)) > sum(during))


def test_pause_does_not_count_for_the_limit(begin: Begin, forerunners: Forerunners) -> None:
    docket = begin("if is_ahead: time.sleep(1.0)", timeout_s=5.0)
    _wait_for(lambda: _workers(forerunners))

    with docket.pause_ahead():
        time.sleep(5.5)
    ahead = docket.compiled_ahead("0", _WAIT_S)

    assert ahead is not None
    assert (ahead.kernels, ahead.reason) == (1, None)


def test_who_is_woken_during_a_pause_is_found_out(begin: Begin, forerunners: Forerunners) -> None:
    docket = begin(_COUNTS)
    (pid,) = _wait_for(lambda: _ticks(forerunners) and _workers(forerunners))

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


def test_server_that_takes_too_long_is_waited_for_once(kiln: Path) -> None:
    server = _server("cold")
    forerunners = _two_lanes(server)
    limits = Limits(timeout_s=30.0, memory_limit_bytes=None)
    docket = Docket(server=server, device=_DEVICE, limits=limits, source=b"")
    docket.look_ahead(forerunners, [_scene("0", 8), _scene("1", 8)], torch_device="cpu")

    ahead = [docket.compiled_ahead(workload, 0.5) for workload in ("0", "1")]
    started = time.monotonic()
    docket.close()
    forerunners.close(grace_s=0.0)
    server.stop()

    assert [a and a.reason for a in ahead] == ["not done within 0.5 s"] * 2
    assert [a.waited_s > 0.4 for a in ahead if a] == [True, False]
    assert time.monotonic() - started < 10
    assert forerunners.trunk.pid == 0


@pytest.fixture
def fired(kiln: Path) -> Iterator[tuple[ForkServerProcess, Forerunners]]:
    """Return servers for triton."""
    server = _server("fired")
    forerunners = _two_lanes(server)
    yield server, forerunners
    forerunners.close()
    server.stop()


_TRITON = """
import torch, triton, triton.language as tl

@triton.autotune([triton.Config({"BLOCK": b}) for b in (16, 32, 64)], key=["n"])
@triton.jit
def twice(x, out, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + o, 2 * tl.load(x + o, mask=o < n), mask=o < n)

class Model(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        twice[lambda meta: (triton.cdiv(len(x), meta["BLOCK"]),)](x, out, len(x))
        return out
"""


@pytest.mark.slow
def test_triton_kernel_is_compiled_ahead_and_found(
    fired: tuple[ForkServerProcess, Forerunners],
) -> None:
    server, forerunners = fired
    limits = Limits(timeout_s=60.0, memory_limit_bytes=4 << 30)
    docket = Docket(server=server, device=_DEVICE, limits=limits, source=_TRITON.encode())
    scenes = [_scene("0", 100), _scene("1", 128)]
    docket.look_ahead(forerunners, scenes, torch_device="cpu")

    ahead = [docket.compiled_ahead(workload, _WAIT_S) for workload in ("0", "1")]
    reports = [*_call(docket, 100).reports, *_call(docket, 128).reports]
    docket.close()

    assert [a and a.reason for a in ahead] == [None, None]
    assert sum(a.kernels for a in ahead if a) == 6
    assert [(report.kernel, report.cached) for report in reports] == [("twice", True)] * 2
    assert min(report.compile_seconds or 0 for report in docket.restated(reports)) >= 0


_CANDIDATE = """
import torch
from atrex_acme import hammer

@hammer.kernel
def scaled_sum(row, x, y, out):
    out[row] = 2 * x[row] + y[row]

class Model(torch.nn.Module):
    def forward(self, x, y):
        out = torch.empty_like(x)
        scaled_sum[x.shape[0]](x, y, out)
        return out
"""


def test_command_compiles_ahead_and_says_so(kiln: Path, cli: Any) -> None:
    candidate = Path(cli.folder) / "acme_scaled_sum.py"
    candidate.write_text(_CANDIDATE)
    with_kiln = cli.with_variables(PYTHONPATH=os.environ["PYTHONPATH"])

    options = ("--backend", "glaze", "--until", "performance", "--format", "json")
    ran = with_kiln.run("run", candidate, *options)

    assert ran.code == 0, ran.err
    (found,) = ran.document["evaluations"]
    assert found["device"] == "kiln:0"
    ahead = found["gates"]["compile"]["details"]["ahead"]
    assert (ahead["kernels"], ahead["reason"]) == (1, None)
    assert round(found["compile_seconds"], 3) == ahead["seconds"] > 0
    assert cli.leftovers() == ({}, [])


_REFEREE = """
import os, sys, threading
from atrex_core.processes import linux
from atrex_core.processes.fork_server import ForkServerProcess
from atrex_core.model import Device, DType, TensorSpec
from atrex_core.referee.docket import Docket, Limits
from atrex_core.referee.forerunner import Forerunners, Scene

linux.adopt_orphans()
environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "TMPDIR")}
server = ForkServerProcess("glaze", "kiln", ("kiln",), environment)
server.start()
device = Device(id="kiln:0", accelerator="kiln", vendor="acme", name="Acme Kiln", arch="sm_90")
limits = Limits(timeout_s=60.0, memory_limit_bytes=None)
docket = Docket(server=server, device=device, limits=limits, source=sys.argv[1].encode())
spec = TensorSpec(name="x", dtype=DType.FP32, shape=(8,))
forerunners = Forerunners.beside(server, {"KILN_HIDDEN": "yes"})
docket.look_ahead(forerunners, [Scene(workload="0", init={}, inputs=(spec,))], torch_device="cpu")
docket.ensure_worker()
docket.compiled_ahead("0", 60.0)
"""


def test_killed_referee_leaves_nothing_behind(kiln: Path, tmp_path: Path) -> None:
    body = f"""
        if is_ahead:
            subprocess.Popen(["sleep", "300"], start_new_session=True)
            open({str(tmp_path / "is here")!r}, "w").close()
            time.sleep(300)
    """
    source = "import subprocess\n" + _PRELUDE + textwrap.indent(textwrap.dedent(body), " " * 8)
    folder = tmp_path / "tmp"
    folder.mkdir()
    variables = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-c", _REFEREE, source + _REST]
    with subprocess.Popen(command, env=variables) as referee:
        _wait_for((tmp_path / "is here").exists)
        family = linux.descendants(referee.pid)
        folders = list(folder.glob("atrex-worker-*"))

        referee.kill()

    assert len(family) >= 5  # two servers, a branch, a forerunner and what it started
    assert len(folders) == 3  # of the worker, of the forerunner, and what they share
    _wait_for(lambda: not [pid for pid in family if Path(f"/proc/{pid}").exists()])
    assert list(folder.glob("atrex-worker-*")) == []
