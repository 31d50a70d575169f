"""A vendor whose cards hide, and what tests of workers without a device have in common."""

from __future__ import annotations

import importlib.util
import os
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from atrex_core import Container, Device, Stage, TensorSpec
from atrex_core.model import DType
from atrex_core.processes.fork_server import ForkServerBranch, ForkServerProcess
from atrex_core.processes.messages import Call, Done, OpenWorkload
from atrex_core.processes.workers import Worker
from atrex_core.referee.arena import Arena
from atrex_core.referee.docket import Docket
from atrex_core.referee.forerunner import Forerunners, Lane, Scene

_LANES = 2

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


class Kit:
    """What is done again and again."""

    lanes = _LANES
    device = Device(id="kiln:0", accelerator="kiln", vendor="acme", name="Acme Kiln", arch="sm_90")

    @staticmethod
    def source(body: str) -> str:
        """Return a candidate whose forward begins with `body`."""
        return _PRELUDE + textwrap.indent(textwrap.dedent(body), " " * 8) + _REST

    @staticmethod
    def server(backend: str) -> ForkServerProcess:
        environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "TMPDIR")}
        server = ForkServerProcess(backend, "kiln", ("kiln",), environment)
        server.start()
        return server

    @staticmethod
    def two_lanes(server: ForkServerProcess) -> Forerunners:
        """Start forerunners whose number does not depend on this machine."""
        found = Forerunners.beside(server, {"KILN_HIDDEN": "yes"})
        assert found is not None
        lanes = (Lane(ForkServerBranch(found.trunk)) for _ in range(_LANES))
        return Forerunners(found.trunk, tuple(lanes))

    @staticmethod
    def scene(workload: str, rows: int) -> Scene:
        return Scene(workload=workload, init={}, inputs=(Kit.spec("x", rows),))

    @staticmethod
    def spec(name: str, rows: int) -> TensorSpec:
        return TensorSpec(name=name, dtype=DType.FP32, shape=(rows,))

    @staticmethod
    def call(docket: Docket, rows: int) -> Done:
        """Have the worker that holds the device answer, and check its answer."""
        from atrex_acme.accelerator import AnvilContext

        arena = Arena.allocate(
            AnvilContext(), [Kit.spec("x", rows)], [Kit.spec("out", rows)], sets=1
        )
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

    @staticmethod
    def wait_for(what: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + 30
        while not (found := what()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return found


@pytest.fixture(scope="session")
def kit() -> Kit:
    """Return what tests of forerunners have in common."""
    return Kit()


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
