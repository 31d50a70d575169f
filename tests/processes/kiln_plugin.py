"""A vendor whose cards hide, with a DSL that compiles: `glaze`, and triton executed on the host.

Copied into a folder of its own and installed there, as the vendor's package.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from atrex_acme import hammer
from atrex_acme.accelerator import AnvilAccelerator
from atrex_backend_triton import TritonBackend
from attrs import evolve

from atrex_core import (
    Accelerator,
    Backend,
    BackendRuntime,
    Device,
    DeviceContext,
    KernelReport,
    Launch,
    RuntimeRequest,
    hookimpl,
)

_HIDDEN = "KILN_HIDDEN"


class KilnAccelerator(AnvilAccelerator):
    name: ClassVar[str] = "kiln"

    def devices(self) -> Sequence[Device]:
        return (
            Device(
                id="kiln:0", accelerator=self.name, vendor="acme", name="Acme Kiln", arch="sm_90"
            ),
        )

    def open(self, device: Device) -> DeviceContext:
        assert _HIDDEN not in os.environ, "there is no device here"
        return super().open(device)

    def deviceless_environment(self, device: Device) -> Mapping[str, str]:
        return {_HIDDEN: "yes"}


class GlazeRuntime(BackendRuntime):
    """Compiles a kernel once for each shape of its first tensor, into a file."""

    def __init__(self, request: RuntimeRequest, *, is_ahead: bool) -> None:
        self._request, self._is_ahead = request, is_ahead
        self._launches: list[Launch] = []
        self._reports: list[KernelReport] = []
        hammer.LAUNCHER = self._launch

    def _launch(self, kernel: Any, rows: int, tensors: tuple[Any, ...]) -> None:
        name = kernel.body.__name__
        shape = "x".join(map(str, tensors[0].shape))
        self._reports.append(self._compile(name, f"{name}-{shape}"))
        self._launches.append(Launch(kernel=name, own=True))
        if not self._is_ahead:
            hammer.strike(kernel, rows, tensors)

    def _compile(self, name: str, binary: str) -> KernelReport:
        path = (self._request.cache or self._request.scratch) / binary
        started = time.process_time()
        is_cached = path.exists()
        if not is_cached:
            sum(range(2_000_000))
            path.write_text(str(os.getpid()))
        return KernelReport(
            kernel=name,
            target=self._request.device.arch,
            compile_seconds=time.process_time() - started,
            cached=is_cached,
            binary=binary,
        )

    def launches(self) -> Sequence[Launch]:
        return self._launches

    def clear_launches(self) -> None:
        self._launches, self._reports = [], []

    def reports(self) -> Sequence[KernelReport]:
        return self._reports

    @contextmanager
    def knocked_out(self) -> Iterator[None]:
        yield

    def compile_error(self, error: BaseException) -> str | None:
        return None


class GlazeBackend(Backend):
    name: ClassVar[str] = "glaze"
    accelerators: ClassVar[tuple[str, ...]] = ("kiln",)
    compiles_ahead: ClassVar[bool] = True

    def check_available(self) -> None:
        return

    def preload(self) -> None:
        import torch

        assert torch.__version__

    def start(self, request: RuntimeRequest) -> BackendRuntime:
        return GlazeRuntime(request, is_ahead=False)

    def start_ahead(self, request: RuntimeRequest) -> BackendRuntime:
        return GlazeRuntime(request, is_ahead=True)


class ColdBackend(GlazeBackend):
    """Takes its time to import."""

    name: ClassVar[str] = "cold"

    def preload(self) -> None:
        super().preload()
        if _HIDDEN in os.environ:
            time.sleep(300)


class FiredBackend(TritonBackend):
    """Triton on the Kiln: compiled ahead as ever, and executed as on a virtual device."""

    name = "fired"
    accelerators = ("kiln",)  # type: ignore[assignment]  # one, where triton has two

    def start(self, request: RuntimeRequest) -> BackendRuntime:
        return super().start(evolve(request, device=evolve(request.device, virtual=True)))


@hookimpl
def atrex_accelerators() -> Iterator[Accelerator]:
    yield KilnAccelerator()


@hookimpl
def atrex_backends() -> Iterator[Backend]:
    yield GlazeBackend()
    yield ColdBackend()
    yield FiredBackend()


def install(folder: Path) -> None:
    """Write this file and its metadata to `folder`, as pip would."""
    info = folder / "atrex_kiln-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: atrex-kiln\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[atrex_eval]\nkiln = atrex_kiln\n")
    (folder / "atrex_kiln.py").write_text(Path(__file__).read_text())
