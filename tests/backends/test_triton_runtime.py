"""What the worker sees of launches, and how it suppresses them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
import torch
import triton
from atrex_backend_triton import TritonBackend
from attrs import define, field

from atrex_core import (
    BackendRuntime,
    Device,
    Launch,
    RuntimeRequest,
    Stage,
)

_HEADER = "import torch\nimport triton\nimport triton.language as tl\n"

_ADD = """
@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)
"""


@define
class Worker:
    """A runtime, the candidate it loaded, and the stages that were entered."""

    runtime: BackendRuntime
    candidate: Any
    stages: list[Stage] = field(factory=list)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Worker]:
    def start(source: str, target: str = "sm_90", *, virtual: bool = True) -> Worker:
        path = tmp_path / "candidate.py"
        path.write_text(_HEADER + source)
        stages: list[Stage] = []

        @contextmanager
        def enter(stage: Stage) -> Iterator[None]:
            stages.append(stage)
            yield

        for name in ("TRITON_CACHE_DIR", "TRITON_DEFAULT_FP_FUSION"):
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        runtime = TritonBackend().start(
            RuntimeRequest(
                device=Device(
                    id=f"virtual:{target}" if virtual else "cuda",
                    accelerator="virtual" if virtual else "cuda",
                    vendor="any",
                    name=target,
                    arch=target,
                    virtual=virtual,
                ),
                context=cast(Any, None),
                candidate=path,
                scratch=tmp_path,
                enter=enter,
            )
        )
        return Worker(runtime, _load(path), stages)

    return start


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_launches_are_recorded_in_order_with_the_binary_they_ran(start: Any) -> None:
    worker = start(_ADD + _ADD.replace("add_one", "add_again"))
    x, y = torch.zeros(10), torch.zeros(10)

    worker.candidate.add_one[(1,)](x, y, 10, BLOCK=16)
    worker.candidate.add_again[(1,)](y, x, 10, BLOCK=16)

    first, second = worker.runtime.launches()
    assert (first.kernel, second.kernel) == ("add_one", "add_again")
    assert first.own
    assert first.binary is not None
    assert len(first.binary) == 64
    assert first.binary != second.binary
    assert x.tolist() == [2.0] * 10


def test_launches_can_be_forgotten(start: Any) -> None:
    worker = start(_ADD)
    x = torch.zeros(10)
    worker.candidate.add_one[(1,)](x, x, 10, BLOCK=16)

    worker.runtime.clear_launches()

    assert worker.runtime.launches() == ()


def test_a_kernel_from_another_file_is_not_the_candidates_own(start: Any, tmp_path: Path) -> None:
    worker = start("")
    helper = tmp_path / "library.py"
    helper.write_text(_HEADER + _ADD)
    x = torch.zeros(10)

    _load(helper).add_one[(1,)](x, x, 10, BLOCK=16)

    assert [(launch.kernel, launch.own) for launch in worker.runtime.launches()] == [
        ("add_one", False)
    ]


def test_knocked_out_launches_change_nothing_and_are_not_recorded(start: Any) -> None:
    worker = start(_ADD)
    x, y = torch.zeros(10), torch.full((10,), -7.0)

    with worker.runtime.knocked_out():
        worker.candidate.add_one[(1,)](x, y, 10, BLOCK=16)

    assert y.tolist() == [-7.0] * 10
    assert worker.runtime.launches() == ()


def test_a_kernel_compiled_before_is_knocked_out_too_however_it_is_launched(start: Any) -> None:
    worker = start(_ADD)
    x, y = torch.zeros(10), torch.full((10,), -7.0)
    compiled = worker.candidate.add_one[(1,)](x, torch.zeros(10), 10, BLOCK=16)

    with worker.runtime.knocked_out():
        worker.candidate.add_one[(1,)](x, y, 10, BLOCK=16)
        compiled[(1, 1, 1)](x, y, 10, 16)

    assert y.tolist() == [-7.0] * 10
    compiled[(1, 1, 1)](x, y, 10, 16)
    assert y.tolist() == [1.0] * 10


def test_an_autotuned_kernel_is_knocked_out(start: Any) -> None:
    tuned = _ADD.replace(
        "@triton.jit",
        "@triton.autotune([triton.Config({'BLOCK': b}) for b in (16, 32)], key=['n'])\n@triton.jit",
    )
    worker = start(tuned)
    x, y = torch.zeros(10), torch.full((10,), -7.0)

    with worker.runtime.knocked_out():
        worker.candidate.add_one[(1,)](x, y, 10)

    assert y.tolist() == [-7.0] * 10


def test_a_real_devices_driver_is_kept_and_watched(start: Any) -> None:
    start("")
    installed = triton.runtime.driver.active
    worker = start(_ADD, "sm_75", virtual=False)
    x, y = torch.zeros(10), torch.full((10,), -7.0)

    worker.candidate.add_one[(1,)](x, x, 10, BLOCK=16)
    with worker.runtime.knocked_out():
        worker.candidate.add_one[(1,)](x, y, 10, BLOCK=16)

    assert triton.runtime.driver.active is installed
    assert [(launch.kernel, launch.own) for launch in worker.runtime.launches()] == [
        ("add_one", True)
    ]
    assert y.tolist() == [-7.0] * 10
    assert [report.target for report in worker.runtime.reports()] == ["sm_75"]


def test_compiling_happens_in_the_compile_stage_and_once(start: Any) -> None:
    worker = start(_ADD)
    x = torch.zeros(10)

    worker.candidate.add_one[(1,)](x, x, 10, BLOCK=16)
    worker.candidate.add_one[(1,)](x, x, 10, BLOCK=16)

    assert worker.stages == [Stage.COMPILE]


def test_the_compilers_cache_lies_in_scratch(start: Any, tmp_path: Path) -> None:
    worker = start(_ADD)
    x = torch.zeros(10)

    worker.candidate.add_one[(1,)](x, x, 10, BLOCK=16)

    assert len(list((tmp_path / "triton").glob("*/add_one.cubin"))) == 1


def test_launches_are_values(start: Any) -> None:
    worker = start(_ADD)
    x = torch.zeros(10)
    worker.candidate.add_one[(1,)](x, x, 10, BLOCK=16)
    worker.candidate.add_one[(1,)](x, x, 10, BLOCK=16)

    first, second = worker.runtime.launches()

    assert first == second
    assert isinstance(first, Launch)
