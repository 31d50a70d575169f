"""What is compiled ahead is what a worker with the device looks for, key for key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from atrex_backend_triton import TritonBackend
from triton.runtime import cache as triton_cache

from atrex_core.model import Scale
from atrex_core.plugins import PluginHost

Scene = Mapping[str, Any]
Cases = Mapping[str, Any]
"""What was found ahead, by a worker with the device, and in their cache, by a case's name."""

_CHILD = Path(__file__).with_name("triton_ahead_child.py")
_HEADER = "import torch\nimport triton\nimport triton.language as tl\n"
_MODEL = """
class Model(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
"""
_COPY = """
@triton.jit
def copy(x, y, n, scale, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) * scale, mask=o < n)
"""
_TUNED = """
CONFIGS = [triton.Config({"BLOCK": block}, num_warps=2) for block in (64, 128, 256, 512)]

def without_the_largest(configs, named, **_):
    return [config for config in configs if config.kwargs["BLOCK"] < 512]

def never(*_, **__):
    raise AssertionError("nothing is timed ahead")

@triton.autotune(
    CONFIGS, key=["n"], prune_configs_by={"early_config_prune": without_the_largest}, MORE
)
"""
_MOVE = """
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def move(x, y, BLOCK: tl.constexpr):
    y.store([0], x.load([0]))
"""
_PRODUCT = """
@triton.autotune([triton.Config({'B': b}, num_stages=s) for b, s in ((256, 4), (32, 1))], key=[])
@triton.jit
def product(x, y, B: tl.constexpr):
    o = tl.arange(0, B)[:, None] * B + tl.arange(0, B)
    total = tl.zeros((B, B), tl.float32)
    for i in range(9):
        a = tl.load(x + o + i * B * B)
        total = tl.dot(a, a, total)
    tl.store(y + o, total)
"""
_ASKS = """
SAID = {}
DEVICE = triton.runtime.driver.active.get_active_torch_device()

def ask(x):
    driver = triton.runtime.driver.active
    with torch.cuda.device(x.device):
        found = torch.cuda.get_device_properties(x.device)
        SAID["stream"] = torch.cuda.current_stream().cuda_stream
    units = driver.utils.get_device_properties(1)["multiprocessor_count"]
    SAID["units"] = [found.multi_processor_count, units]
    SAID["name"] = found.name
    SAID["capability"] = torch.cuda.get_device_capability()
    SAID["current"] = [torch.cuda.current_device(), driver.get_current_device()]
    SAID["here"] = [str(x.device), str(torch.empty(1, device="cuda").device), str(DEVICE)]
    SAID["is_available"] = torch.cuda.is_available()
"""

_LAUNCHES = {
    "aligned": "copy[(1,)](x, out, 1024, 2.0, BLOCK=64)",
    "odd address": "copy[(1,)](x[1:], out, 1023, 2.0, BLOCK=64)",
    "even addresses, ones": "copy[(1,)](x[4:], out[8:], 1, 1, BLOCK=64)",
    "empty": "copy[(1,)](x[:0], out, 0, -2, BLOCK=64)",
    "large": "copy[(1,)](x.view(2, 512)[1], out, 2**40, 3, BLOCK=64)",
    "dtypes": "copy[(1,)](x.half(), out.bfloat16(), 7, 3, BLOCK=64)",
    "grid": "copy[lambda meta: (meta['BLOCK'],)](x, out, 1, 2, BLOCK=64)",
    "options": "copy[(1,)](x, out, 5, 2, BLOCK=64, num_warps=8, num_stages=1)",
    "warmup": "copy.warmup(x, out, 9, 2, BLOCK=32, grid=(1,))\ncopy[(1,)](x, out, 9, 2, BLOCK=32)",
    "several": "for n in (1, 16, 17, 33): copy[(1,)](x, out, n, 2, BLOCK=32)",
}
_SEARCHES = ("cache_results=True", "do_bench=never", "reset_to_zero=['y']", "restore_value=['y']")
_KERNELS = sorted(p.stem for p in TritonBackend().kernels.glob("*.py") if p.stem != "probe")


def _scene(count: int = 1024, *, targets: Sequence[str] = ()) -> Scene:
    return {"init": {}, "inputs": [["x", "fp32", [count]]], "targets": list(targets)}


def _source(kernel: str, body: str, model: str = _MODEL) -> str:
    whole = textwrap.indent(body + "\nreturn out\n", " " * 8)
    return _HEADER + kernel + model + whole


def _job(
    source: str,
    scenes: Sequence[Scene] | None = None,
    *,
    torch_device: str = "cpu",
    arch: str = "sm_90",
) -> dict[str, Any]:
    about = {"torch_device": torch_device, "arch": arch}
    return {"source": source, "scenes": scenes or [_scene()], "about": about}


def _jobs() -> dict[str, dict[str, Any]]:
    launch = "copy[(1,)](x, out, 16, 2.0, BLOCK=64)"
    described = "both = [TensorDescriptor.from_tensor(t, [64]) for t in (x, out)]"
    reading = f"{launch}\ncopy[(1,)](x, out, int(x.isfinite().sum()), 2.0, BLOCK=128)"
    tuned = _TUNED + _COPY.lstrip()
    tuned_launch = "copy[(1,)](x, out, 1024, 2.0)"
    jobs = {
        **{name: _job(_source(_COPY, launch)) for name, launch in _LAUNCHES.items()},
        **{m: _job(_source(tuned.replace("MORE", m), tuned_launch)) for m in _SEARCHES},
        "descriptor": _job(_source(_MOVE, f"{described}\nmove[(1,)](*both, BLOCK=64)")),
        "too large": _job(_source(_PRODUCT, "product[(1,)](x, out)"), [_scene(10 * 2**16)]),
        "reads": _job(_source(_COPY, reading)),
        "targets": _job(_source(_COPY, launch), [_scene(targets=["gfx942"])]),
        "amd": _job(_source(_COPY, launch), [_scene(), _scene(2**30)], arch="gfx942"),
        "again": _job(_source(_COPY, launch), [_scene(), _scene(), _scene(1023)]),
        "asks": _job(_source(_COPY + _ASKS, f"ask(x)\n{launch}"), torch_device="cuda:1"),
    }
    problems = PluginHost.discover().problems
    for kernel in _KERNELS:
        problem = problems[kernel]
        full = [w for w in problem.workloads if w.scale is Scale.FULL]
        scenes = [
            {
                "init": dict(workload.init),
                "inputs": [[s.name, s.dtype, list(s.shape)] for s in problem.inputs(workload)],
                "targets": [],
            }
            for workload in (full[0], full[-1])
        ]
        text = (TritonBackend().kernels / f"{kernel}.py").read_text()
        jobs[kernel] = _job(text, scenes, torch_device="cuda:1")
    return jobs


def _found(role: str, jobs: Mapping[str, dict[str, Any]], folder: Path) -> list[Any]:
    told = []
    for number, job in enumerate(jobs.values()):
        place = folder / str(number) / role  # each worker has a copy of its own
        place.mkdir(parents=True)
        text = str(job["source"])
        if role == "device":
            text = text.replace("raise AssertionError", "return (_[0](), [1.0] * 3)[1] #")
        (place / "candidate.py").write_text(text)
        cache = str(folder / str(number) / "cache")
        where = {"candidate": str(place / "candidate.py"), "cache": cache}
        told.append({**where, **job["about"], "scenes": job["scenes"]})
    done = subprocess.run(
        [sys.executable, "-W", "error", _CHILD, role],
        input=json.dumps(told),
        capture_output=True,
        text=True,
        timeout=280,
        env={k: v for k, v in os.environ.items() if not k.startswith("TRITON_")},
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout)
    assert None not in found, done.stderr
    return found


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """Do every job ahead, then with the device; each has a cache of its own."""
    folder, jobs = tmp_path_factory.mktemp("ahead"), _jobs()
    ahead = _found("ahead", jobs, folder)
    left = [sorted(p.name for p in (folder / str(i)).rglob("*.*")) for i in range(len(jobs))]
    device = _found("device", jobs, folder)
    return {n: (a, d, files) for n, a, d, files in zip(jobs, ahead, device, left, strict=True)}


def _reports(found: Any) -> list[dict[str, Any]]:
    return [report for scene in found["scenes"] for report in scene["reports"]]


def _errors(found: Any) -> set[str | None]:
    return {scene["error"] for scene in found["scenes"]}


def _binaries(found: Any) -> list[set[str]]:
    return [{report["binary"] for report in scene["reports"]} for scene in found["scenes"]]


@pytest.mark.parametrize("name", [*_LAUNCHES, "descriptor", "targets", "amd", "again", *_KERNELS])
def test_worker_with_the_device_finds_everything(cases: Cases, name: str) -> None:
    ahead, device, _ = cases[name]

    assert _errors(ahead) == _errors(device) == {None}
    assert _binaries(ahead) == _binaries(device)
    assert set() not in _binaries(device)
    assert {report["cached"] for report in _reports(device)} == {True}


def test_what_differs_for_the_compiler_has_reports_of_its_own(cases: Cases) -> None:
    assert len(_reports(cases["several"][0])) == 3
    assert len({min(binaries) for binaries in _binaries(cases["amd"][0])}) == 2  # 4 KiB, 4 GiB
    assert [len(binaries) for binaries in _binaries(cases["again"][0])] == [1, 1, 1]
    assert {r["target"] for r in _reports(cases["targets"][1])} == {"sm_90", "gfx942"}
    first = {name: min(_binaries(cases[name][0])[0]) for name in _LAUNCHES}
    assert first["aligned"] != first["odd address"] != first["empty"]


def test_report_says_what_compiling_took(cases: Cases) -> None:
    (report,) = _reports(cases["aligned"][0])

    assert report["kernel"] == "copy"
    assert report["cached"] is False
    assert 0.02 < report["seconds"] < 20


@pytest.mark.parametrize("name", _SEARCHES)
def test_search_compiles_every_configuration_and_keeps_no_result(cases: Cases, name: str) -> None:
    ahead, device, left = cases[name]

    assert _errors(ahead) == _errors(device) == {None}
    assert len({report["binary"] for report in _reports(ahead)}) == 3
    assert [file for file in left if "autotune" in file] == []
    assert left.count("copy.cubin") == 3
    assert {report["cached"] for report in _reports(device)} == {True}
    assert len(device["launched"]) >= 4


def test_configuration_that_does_not_fit_is_passed_over(cases: Cases) -> None:
    ahead, device, _ = cases["too large"]

    assert _errors(ahead) == _errors(device) == {None}
    assert len({report["binary"] for report in _reports(ahead)}) == 2


def test_what_was_compiled_before_a_value_is_read_stays(cases: Cases) -> None:
    ahead, device, _ = cases["reads"]

    assert str(ahead["scenes"][0]["error"]).startswith("DataDependentOutputException")
    assert [report["cached"] for report in _reports(device)] == [True, False]


def test_absent_device_answers_as_if_it_were_there(cases: Cases) -> None:
    ahead, _, _ = cases["asks"]

    assert _errors(ahead) == {None}
    assert ahead["said"] == {
        "stream": 0,
        "units": [132, 132],
        "name": "NVIDIA H200",
        "capability": [9, 0],
        "current": [1, 1],
        "here": ["cuda:1", "cuda:1", "cuda:1"],
        "is_available": True,
    }
    assert len(_reports(ahead)) == 1


def test_server_hashes_the_compiler_before_it_forks() -> None:
    triton_cache.triton_key.cache_clear()

    TritonBackend().preload()

    assert triton_cache.triton_key.cache_info().currsize == 1
