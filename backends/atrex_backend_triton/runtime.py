"""Triton inside one worker, on a real device or a virtual one.

Imports triton when imported.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from triton.runtime.driver import driver

from atrex_backend_triton.compilation import Compilation
from atrex_backend_triton.diagnosis import describe
from atrex_backend_triton.launches import LaunchLog
from atrex_backend_triton.targets import Target, find_target
from atrex_core import BackendRuntime, KernelReport, Launch, RuntimeRequest, Stage


class TritonRuntime(BackendRuntime):
    """What the worker asks of triton."""

    def __init__(self, log: LaunchLog, compilation: Compilation) -> None:
        self._log = log
        self._compilation = compilation

    def launches(self) -> Sequence[Launch]:
        """Return what was launched since the last `clear_launches`."""
        return self._log.seen()

    def clear_launches(self) -> None:
        """Forget the launches seen so far."""
        self._log.clear()

    def knocked_out(self) -> AbstractContextManager[None]:
        """Suppress every launch inside the block, also of kernels compiled before."""
        return self._log.suppressing()

    def compile_error(self, error: BaseException) -> str | None:
        """Return the compiler's message, or the limit that the device would enforce."""
        return describe(error)

    def reports(self) -> Sequence[KernelReport]:
        """Return a report on each specialisation launched since the last `clear_launches`."""
        return self._compilation.reports(self._log.binaries())

    def compile_for(self, target: str) -> Sequence[KernelReport]:
        """Compile every specialisation launched since the last `clear_launches` for `target`.

        Raises:
            TargetFailure: the compiler refused, or a limit of the target is exceeded.
        """
        return self._compilation.compile_for(target, self._log.binaries())


def start(request: RuntimeRequest) -> TritonRuntime:
    """Set triton up in a fresh worker, before the candidate is imported."""
    cache = request.scratch / "triton"
    cache.mkdir(parents=True, exist_ok=True)
    os.environ["TRITON_CACHE_DIR"] = str(cache)
    # Said aloud because the default is about to change, and with it what a kernel computes.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    compilation = Compilation(request.device.arch, request.enter, request.scratch)
    compilation.install()
    log = LaunchLog(request.candidate)
    if request.device.virtual:
        _install_virtual(find_target(request.device.arch), compilation, log)
    else:
        log.watch(driver.active)
    return TritonRuntime(log, compilation)


def install_virtual(target_name: str) -> None:
    """Make plain scripts run on a virtual device."""
    target = find_target(target_name)
    folder = Path(tempfile.gettempdir())
    compilation = Compilation(target.name, _no_stage, folder)
    compilation.install()
    _install_virtual(target, compilation, LaunchLog(folder))


def _install_virtual(target: Target, compilation: Compilation, log: LaunchLog) -> None:
    from atrex_backend_triton.virtual.driver import VirtualDriver

    virtual: Any = VirtualDriver(target, compilation.registers, compilation.lock)
    virtual.benchmark.loading = log.suppressing
    log.watch(virtual)
    driver.set_active(virtual)


def _no_stage(_: Stage) -> AbstractContextManager[None]:
    return nullcontext()
