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


class AheadRuntime(TritonRuntime):
    """The same where there is no device: launches compile, and come to nothing."""

    def __init__(self, log: LaunchLog, compilation: Compilation) -> None:
        super().__init__(log, compilation)
        self._built: list[KernelReport] = []

    def clear_launches(self) -> None:
        """Forget the launches, and what was compiled so far."""
        super().clear_launches()
        self._compilation.fresh.clear()
        self._built.clear()

    def reports(self) -> Sequence[KernelReport]:
        """Return a brief report on whatever was launched, tried or compiled for a target."""
        digests = dict.fromkeys([*self._log.binaries(), *self._compilation.fresh])
        return (*self._compilation.brief_reports(tuple(digests)), *self._built)

    def compile_for(self, target: str) -> Sequence[KernelReport]:
        """Compile for `target`, as a worker with the device does."""
        reports = super().compile_for(target)
        self._built += reports
        return reports


def start(request: RuntimeRequest) -> TritonRuntime:
    """Set triton up in a fresh worker, before the candidate is imported."""
    _cache_in(request.scratch / "triton")
    _say_defaults()
    compilation = Compilation(request.device.arch, request.enter, request.scratch)
    compilation.install()
    log = LaunchLog(request.candidate)
    if request.device.virtual:
        _install_virtual(find_target(request.device.arch), compilation, log)
    else:
        log.watch(driver.active)  # it has a library built, which nobody else may put in its place
    if request.cache is not None:
        _cache_in(request.cache)
    return TritonRuntime(log, compilation)


def start_ahead(request: RuntimeRequest) -> AheadRuntime:
    """Set triton up where the device cannot be seen, before the candidate is imported."""
    from atrex_backend_triton import absent

    target = find_target(request.device.arch)
    _cache_in(request.cache or request.scratch / "triton")
    _say_defaults()
    compilation = Compilation(
        request.device.arch, request.enter, request.scratch, clock=absent.cpu_seconds
    )
    compilation.install()
    log = LaunchLog(request.candidate)
    torch_device = request.context.torch_device
    stand_in: Any = absent.AbsentDriver(
        request.device, torch_device, target, compilation.registers, compilation.lock
    )
    log.watch(stand_in)
    absent.compile_every_configuration()
    absent.pretend(request.device, torch_device, target)
    driver.set_active(stand_in)
    return AheadRuntime(log, compilation)


def _cache_in(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TRITON_CACHE_DIR"] = str(folder)


def _say_defaults() -> None:
    # Said aloud because the default is about to change, and with it what a kernel computes.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")


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
