"""A process like a worker's: forked after the import, with the Numba runtime started.

Prints what it found as JSON: which calls were seen, what a knock-out does, how compiling is
reported. `test_numba_runtime.py` says what should be found.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CANDIDATE = """
import helpers
from numba import guvectorize, njit, prange, stencil, vectorize

@njit
def double(x):
    return x * 2

@njit(parallel=True)
def loop(x, y):
    for i in prange(x.shape[0]):
        y[i] = double(x[i])

@njit("void(float32[::1], float32[::1])")
def eager(x, y):
    for i in range(x.shape[0]):
        y[i] = x[i] + 1

@njit(cache=True)
def cached(x):
    return x.sum()

@vectorize
def lazy_ufunc(a, b):
    return a + b

@vectorize(["float32(float32, float32)"])
def eager_ufunc(a, b):
    return a + b

@vectorize(["float32(float32, float32)"], target="parallel")
def parallel_ufunc(a, b):
    return a + b

@guvectorize("(n)->(n)")
def lazy_gufunc(a, out):
    for i in range(a.shape[0]):
        out[i] = a[i] + 1

@guvectorize(["void(float32[:], float32[:])"], "(n)->(n)")
def eager_gufunc(a, out):
    for i in range(a.shape[0]):
        out[i] = a[i] + 1

@guvectorize(["void(float32[:], float32[:])"], "(n)->(n)", target="parallel")
def parallel_gufunc(a, out):
    for i in range(a.shape[0]):
        out[i] = a[i] + 1

@stencil
def neighbours(a):
    return a[-1] + a[1]

@njit
def no_such_attribute(x):
    return x.nosuch

@njit
def no_such_sum(x):
    return x + "a"
"""
HELPERS = """
from numba import njit

@njit
def foreign(x, y):
    y[0] = x[0]
"""
Findings = dict[str, Any]


def start(folder: Path, stages: list[str]) -> Any:
    from atrex_accelerator_cpu import CpuAccelerator
    from atrex_backend_numba import NumbaBackend

    from atrex_core import RuntimeRequest, Stage

    @contextmanager
    def enter(stage: Stage) -> Iterator[None]:
        stages.append(f"+{stage}")
        yield
        stages.append(f"-{stage}")

    accelerator = CpuAccelerator()
    (device,) = accelerator.devices()
    link = folder.with_name("link")
    if not link.exists():
        link.symlink_to(folder)  # the candidate's path need not be the one it is imported by
    return NumbaBackend().start(
        RuntimeRequest(
            device=device,
            context=accelerator.open(device),
            candidate=link / "candidate.py",
            scratch=folder,
            enter=enter,
        )
    )


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def observe(folder: Path) -> Findings:
    import llvmlite.binding
    import numba
    import numpy as np

    def earlier(x: Any) -> Any:
        return x

    made_before = numba.njit(earlier)
    stages: list[str] = []
    runtime = start(folder, stages)
    sys.path.insert(0, str(folder))
    c = load(folder / "candidate.py")
    found: Findings = {"host": llvmlite.binding.get_host_cpu_name(), "launches": {}, "values": {}}
    found["stages at import"] = list(stages)
    x, out = np.array([1, 2, 3], np.float32), np.zeros(3, np.float32)

    def filling(kernel: Any) -> Any:
        kernel(x, out)
        return out

    calls: Mapping[str, Any] = {
        "a parallel loop": lambda: filling(c.loop),
        "an eager function": lambda: filling(c.eager),
        "a cached function": lambda: c.cached(x),
        "a lazy ufunc": lambda: c.lazy_ufunc(x, x),
        "an eager ufunc": lambda: c.eager_ufunc(x, x),
        "a parallel ufunc": lambda: c.parallel_ufunc(x, x),
        "a lazy gufunc": lambda: filling(c.lazy_gufunc),
        "an eager gufunc": lambda: c.eager_gufunc(x),
        "a parallel gufunc": lambda: c.parallel_gufunc(x),
        "a stencil": lambda: c.neighbours(x),
        "a ufunc's reduction": lambda: c.eager_ufunc.reduce(x),
        "a parallel ufunc's reduction": lambda: c.parallel_ufunc.reduce(x),
    }
    binaries: dict[str, Any] = {}
    for name, call in calls.items():
        runtime.clear_launches()
        found["values"][name] = np.asarray(call()).tolist()
        seen = runtime.launches()
        found["launches"][name] = [[launch.kernel, launch.own] for launch in seen]
        binaries |= {launch.kernel: launch.binary for launch in seen if launch.binary}
    found["binaries"] = binaries
    again = [*calls.values(), lambda: c.loop(x.astype(np.float64), out)]
    rest = observe_rest(runtime, c, made_before, stages, x, out, again)
    found["launches"] |= rest.pop("launches")
    return found | rest | observe_cache(folder)


def observe_rest(
    runtime: Any, c: Any, earlier: Any, stages: list[str], x: Any, out: Any, again: list[Any]
) -> Findings:
    import numpy as np

    found: Findings = {"messages": {}}
    launches: Findings = {}
    for name, call in {
        "another file": lambda: c.helpers.foreign(x, out),
        "made before": lambda: earlier(1),
        "refused": lambda: refused(c.no_such_attribute, x),
        "after clearing": runtime.clear_launches,
    }.items():
        runtime.clear_launches()
        call()
        launches[name] = [[launch.kernel, launch.own] for launch in runtime.launches()]

    staged: Mapping[str, Any] = {
        "stages of a first call": lambda: c.loop(x.astype(np.float64), out),
        "stages of a second call": lambda: c.loop(x.astype(np.float64), out),
        "stages of a refused call": lambda: refused(c.no_such_attribute, x),
    }
    for name, call in staged.items():
        stages.clear()
        call()
        found[name] = list(stages)

    found["messages"]["attribute"] = runtime.compile_error(refused(c.no_such_attribute, x))
    found["messages"]["sum"] = runtime.compile_error(refused(c.no_such_sum, 1.0))
    found["messages"]["of a ValueError"] = runtime.compile_error(ValueError("no"))
    runtime.clear_launches()
    for call in again:
        call()
    found["reports"] = [
        {
            "kernel": report.kernel,
            "target": report.target,
            "binary_bytes": report.binary_bytes,
            "compile_seconds": report.compile_seconds,
            "cached": report.cached,
        }
        for report in runtime.reports()
    ]
    found["reports for sm_90"] = list(runtime.compile_for("sm_90"))
    found |= observe_knock_out(runtime, c, x, out, launches)
    found |= observe_many(runtime, earlier)
    return found | {"launches": launches}


def observe_knock_out(runtime: Any, c: Any, x: Any, out: Any, launches: Findings) -> Findings:
    runtime.clear_launches()
    out[:] = 7
    with runtime.knocked_out():
        results = {
            "a parallel loop": c.loop(x, out),
            "an eager function": c.eager(x, out),
            "a cached function": c.cached(x),
            "a lazy ufunc": c.lazy_ufunc(x, x),
            "a stencil": c.neighbours(x),
            "a call that would not compile": c.no_such_attribute(x),
            "a parallel ufunc's reduction": c.parallel_ufunc.reduce(x),
            "a ufunc with out": c.eager_ufunc(x, x, out=out),
            "a ufunc with a tuple": c.eager_ufunc(x, x, out=(out,)),
            "a ufunc with a positional output": c.parallel_ufunc(x, x, out),
            "a lazy gufunc": c.lazy_gufunc(x, out),
            "a parallel gufunc with out": c.parallel_gufunc(x, out=out),
        }
    launches["knocked out"] = [launch.kernel for launch in runtime.launches()]
    found: Findings = {
        "knocked out": {name: "out" if r is out else r for name, r in results.items()},
        "output of knocked out calls": out.tolist(),
    }
    try:
        with runtime.knocked_out():
            raise RuntimeError
    except RuntimeError:
        c.eager(x, out)
    return found | {"after a failed knock-out": out.tolist()}


def observe_many(runtime: Any, kernel: Any) -> Findings:
    runtime.clear_launches()
    for _ in range(120_000):
        kernel(1)
    return {"log after many calls": len(runtime.launch_log.kernels)}


def observe_cache(folder: Path) -> Findings:
    files = {path for path in folder.rglob("*") if path.suffix in (".nbi", ".nbc")}
    inside = {path for path in files if (folder / "numba-cache") in path.parents}
    return {
        "cache files inside": len(inside),
        "cache files outside": sorted(map(str, files - inside)),
    }


def observe_second_process(folder: Path) -> Findings:
    import numpy as np

    runtime = start(folder, [])
    sys.path.insert(0, str(folder))
    load(folder / "candidate.py").cached(np.array([1, 2, 3], np.float32))
    lazy = [report for report in runtime.reports() if report.kernel == "cached"]
    return {"reports of a second process": [[r.kernel, r.cached] for r in lazy]}


def refused(kernel: Any, argument: Any) -> Exception:
    try:
        kernel(argument)
    except Exception as error:
        return error
    raise AssertionError("it compiled")


def in_child(work: Any, folder: Path) -> Findings:
    receiving, sending = os.pipe()
    if os.fork() == 0:
        try:
            found = work(folder)
        except BaseException:
            found = {"error": traceback.format_exc()}
        with os.fdopen(sending, "w") as stream:
            json.dump(found, stream)
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving) as stream:
        text = stream.read()
    os.wait()
    result: Findings = json.loads(text)
    return result


def main() -> None:
    from atrex_backend_numba import NumbaBackend

    NumbaBackend().preload()
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "scratch"
        folder.mkdir()
        (folder / "candidate.py").write_text(CANDIDATE)
        (folder / "helpers.py").write_text(HELPERS)
        found = in_child(observe, folder)
        if "error" not in found:
            found |= in_child(observe_second_process, folder)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
