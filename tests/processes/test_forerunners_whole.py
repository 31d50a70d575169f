"""Forerunners as part of the whole: their servers, triton, the command line, a referee's death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atrex_core.processes import linux
from atrex_core.processes.fork_server import ForkServerBranch, ForkServerProcess
from atrex_core.referee.docket import Docket, Limits
from atrex_core.referee.forerunner import Forerunners

_WAIT_S = 60.0


def test_server_that_takes_too_long_is_waited_for_once(kit: Any, kiln: Path) -> None:
    server = kit.server("cold")
    forerunners = kit.two_lanes(server)
    limits = Limits(timeout_s=30.0, memory_limit_bytes=None)
    docket = Docket(server=server, device=kit.device, limits=limits, source=b"")
    docket.look_ahead(forerunners, [kit.scene("0", 8), kit.scene("1", 8)], torch_device="cpu")

    ahead = [docket.compiled_ahead(workload, 0.5) for workload in ("0", "1")]
    started = time.monotonic()
    docket.close()
    forerunners.close(grace_s=0.0)
    server.stop()

    assert [a and a.reason for a in ahead] == ["not done within 0.5 s"] * 2
    assert [a.waited_s > 0.4 for a in ahead if a] == [True, False]
    assert time.monotonic() - started < 10
    assert forerunners.trunk.pid == 0


def test_server_that_was_stopped_ends_when_told(kit: Any, kiln: Path) -> None:
    server = kit.server("glaze")
    branch = ForkServerBranch(server)
    assert branch.channel
    for pid in (server.pid, branch.pid):
        os.kill(pid, signal.SIGSTOP)
    started = time.monotonic()

    branch.stop()
    server.stop()

    assert time.monotonic() - started < 10


@pytest.fixture
def fired(kit: Any, kiln: Path) -> Iterator[tuple[ForkServerProcess, Forerunners]]:
    """Return servers for triton."""
    server = kit.server("fired")
    forerunners = kit.two_lanes(server)
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
    kit: Any,
    fired: tuple[ForkServerProcess, Forerunners],
) -> None:
    server, forerunners = fired
    limits = Limits(timeout_s=60.0, memory_limit_bytes=4 << 30)
    docket = Docket(server=server, device=kit.device, limits=limits, source=_TRITON.encode())
    scenes = [kit.scene("0", 100), kit.scene("1", 128)]
    docket.look_ahead(forerunners, scenes, torch_device="cpu")

    ahead = [docket.compiled_ahead(workload, _WAIT_S) for workload in ("0", "1")]
    reports = [*kit.call(docket, 100).reports, *kit.call(docket, 128).reports]
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


def test_killed_referee_leaves_nothing_behind(kit: Any, kiln: Path, tmp_path: Path) -> None:
    body = f"""
        if is_ahead:
            subprocess.Popen(["sleep", "300"], start_new_session=True)
            open({str(tmp_path / "is here")!r}, "w").close()
            time.sleep(300)
    """
    source = "import subprocess\n" + kit.source(body)
    folder = tmp_path / "tmp"
    folder.mkdir()
    variables = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-c", _REFEREE, source]
    with subprocess.Popen(command, env=variables) as referee:
        kit.wait_for((tmp_path / "is here").exists)
        family = linux.descendants(referee.pid)
        folders = list(folder.glob("atrex-worker-*"))

        referee.kill()

    assert len(family) >= 5  # two servers, a branch, a forerunner and what it started
    assert len(folders) == 3  # of the worker, of the forerunner, and what they share
    kit.wait_for(lambda: not [pid for pid in family if Path(f"/proc/{pid}").exists()])
    assert list(folder.glob("atrex-worker-*")) == []
