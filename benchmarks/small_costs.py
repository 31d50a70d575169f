"""What small things cost: calibrating a CPU, scoring a pack, a virtual kernel, watching Numba.

Run: python benchmarks/small_costs.py     Exits 1 when a target is missed on an idle machine.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from atrex_core import Device, PluginHost, RuntimeRequest, Stage


def best_s(call: Callable[[], Any], runs: int = 5) -> float:
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


@contextmanager
def no_stage(_: Stage) -> Iterator[None]:
    yield


def request(host: PluginHost, device: Device, source: str, folder: Path) -> RuntimeRequest:
    path = folder / "candidate.py"
    path.write_text(source)
    return RuntimeRequest(
        device=device,
        context=host.accelerators[device.accelerator].open(device),
        candidate=path,
        scratch=folder,
        enter=no_stage,
    )


def calibration(host: PluginHost) -> float:
    import os

    import torch  # the referee has it by then

    assert torch.__version__
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ATREX_CACHE_DIR"] = folder
        profile: Any = host.profiles["host"]
        device = host.accelerators["cpu"].devices()[0]
        return best_s(lambda: profile.measure(device), runs=1)


def virtual_norm(host: PluginHost, folder: Path) -> float:
    import torch

    device = host.accelerators["virtual"].device("virtual:sm_90")
    assert device is not None, "the virtual accelerator takes any name"
    backend = host.backends["triton"]
    assert backend.kernels is not None, "the backend ships kernels"
    source = (backend.kernels / "rms_norm.py").read_text()
    backend.start(request(host, device, source, folder))
    module: dict[str, Any] = {}
    sys.path.insert(0, str(folder))
    exec("from candidate import Model", module)
    model, x = module["Model"](eps=1e-6), torch.randn(8, 1024).bfloat16()
    weight = torch.ones(1024).bfloat16()
    model(x=x, weight=weight)
    return best_s(lambda: model(x=x, weight=weight))


def watched_call(host: PluginHost, folder: Path) -> float:
    import numba

    calls = 20_000

    def empty() -> None:
        return None

    kernel = numba.njit(empty)
    kernel()
    bare = best_s(lambda: [kernel() for _ in range(calls)])
    device = host.accelerators["cpu"].devices()[0]
    host.backends["numba"].start(request(host, device, "", folder))
    watched = best_s(lambda: [kernel() for _ in range(calls)])
    return (watched - bare) / calls


def main() -> int:
    host = PluginHost.discover()
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        rows = {
            "calibrating the host CPU, s": (calibration(host), 2.0),
            "virtual rms_norm 8x1024, s": (virtual_norm(host, Path(one)), 0.05),
            "watching one Numba call, us": (1e6 * watched_call(host, Path(two)), 2.0),
        }
    for name, (value, target) in rows.items():
        print(f"{name:32} {value:8.3f}   target {target}")
    return int(any(value > target for value, target in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
