"""One side of a shared cache: compiles ahead without a device, or as a worker with one would.

Run as `python triton_ahead_child.py ahead|device`, with jobs on stdin as JSON: a list of
{"candidate", "cache", "torch_device", "arch", "scenes"}; a scene is {"init", "targets",
"inputs": [[name, dtype, shape], ...]}. Each job is done in a fork of its own, as by a worker.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from atrex_backend_triton import TritonBackend
from attrs import evolve
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.driver import driver

from atrex_core import Device, RuntimeRequest, TensorSpec, torch_dtype
from atrex_core.model import DType
from atrex_core.processes import stand_ins
from atrex_core.processes.candidate import LoadedCandidate
from atrex_core.processes.stand_ins import AbsentContext, StandIns

GPU = Device(
    id="cuda:1",
    accelerator="cuda",
    vendor="nvidia",
    name="NVIDIA H200",
    arch="sm_90",
    index=1,
    compute_units=132,
    memory_bytes=150_000_000_000,
)


TARGETS = {"sm_90": GPUTarget("cuda", 90, 32), "gfx942": GPUTarget("hip", "gfx942", 64)}
"""As the vendors' own drivers give them."""


class Recorder(DriverBase):
    """Stands where the vendor's driver would, and is none of ours."""

    def __init__(self, arch: str) -> None:
        self.target = TARGETS[arch]
        self.utils = self
        self.launched: list[str] = []
        recorder = self

        class Launcher:
            def __init__(self, source: Any, metadata: Any) -> None:
                self.name = metadata.name

            def __call__(self, *args: Any) -> None:
                recorder.launched.append(self.name)

        self.launcher_cls: Any = Launcher

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 1

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        return torch.device("cpu")

    def get_benchmarker(self) -> Callable[..., Any]:
        def bench(call: Callable[[], Any], *, quantiles: Any = None, **_: Any) -> Any:
            call()
            return [1.0, 1.0, 1.0]

        return bench

    def get_device_properties(self, device: int) -> Mapping[str, Any]:
        return {"max_shared_mem": 227 * 1024, "multiprocessor_count": 132}

    def load_binary(self, name: str, *_: Any) -> tuple[Any, ...]:
        return "module", name, 32, 0, 1024


def main(role: str) -> None:
    TritonBackend().preload()
    stand_ins.preload()
    found = [_in_a_fork(partial(_go_through, role == "ahead", **job)) for job in _jobs()]
    json.dump(found, sys.stdout)


def _jobs() -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = json.load(sys.stdin)
    return jobs


def _in_a_fork(work: Callable[[], Any]) -> Any:
    with tempfile.NamedTemporaryFile("r") as file:
        if (pid := os.fork()) == 0:
            try:
                Path(file.name).write_text(json.dumps(work()))
            finally:
                sys.stderr.flush()
                os._exit(0)
        os.waitpid(pid, 0)
        return json.loads(file.read() or "null")


def _go_through(
    is_ahead: bool,
    candidate: str,
    cache: str,
    torch_device: str,
    arch: str,
    scenes: list[dict[str, Any]],
) -> dict[str, Any]:
    recorder = Recorder(arch)
    tensors = StandIns.prepare(torch_device) if is_ahead else None
    if not is_ahead:
        driver.set_active(recorder)
    start = TritonBackend().start_ahead if is_ahead else TritonBackend().start
    runtime = start(
        RuntimeRequest(
            device=evolve(GPU, arch=arch),
            context=AbsentContext(torch_device) if is_ahead else cast(Any, None),
            candidate=Path(candidate),
            scratch=Path(candidate).parent,
            enter=lambda _: nullcontext(),
            cache=Path(cache),
        )
    )
    found = []
    world = tensors.mode if tensors else nullcontext()
    with world:
        module = LoadedCandidate.load(Path(candidate))
    for scene in scenes:
        specs = [
            TensorSpec(name=name, dtype=DType(dtype), shape=tuple(shape))
            for name, dtype, shape in scene["inputs"]
        ]
        runtime.clear_launches()
        error = None
        with world, torch.no_grad():
            try:
                inputs = tensors.inputs(specs) if tensors else _real(specs)
                module.construct(scene["init"], tuple(inputs))(**inputs)
            except Exception as caught:
                error = f"{type(caught).__name__}: {caught}"
        built = [r for target in scene["targets"] for r in runtime.compile_for(target)]
        reports = [*runtime.reports(), *(() if is_ahead else built)]
        found.append({"error": error, "reports": [_plain(report) for report in reports]})
    said = vars(module.module).get("SAID")
    return {"scenes": found, "launched": recorder.launched, "said": said}


def _real(specs: list[TensorSpec]) -> dict[str, Any]:
    return {s.name: torch.empty(s.shape, dtype=torch_dtype(s.dtype)) for s in specs}


def _plain(report: Any) -> dict[str, Any]:
    return {
        "kernel": report.kernel,
        "target": report.target,
        "binary": report.binary,
        "cached": report.cached,
        "seconds": report.compile_seconds,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
