"""`hammer` as a backend: its runtime has one place where launches pass, so that is watched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from atrex_core import Backend, BackendRuntime, Launch, RuntimeRequest


class HammerRuntime(BackendRuntime):
    def __init__(self, request: RuntimeRequest) -> None:
        from atrex_acme import hammer

        self._candidate = request.candidate
        self._launches: list[Launch] = []
        self._off = False
        hammer.LAUNCHER = self._launch

    def _launch(self, kernel: Any, rows: int, tensors: tuple[Any, ...]) -> None:
        from atrex_acme import hammer

        code = kernel.body.__code__
        own = Path(code.co_filename) == self._candidate
        self._launches.append(Launch(kernel=code.co_name, own=own))
        if not self._off:
            hammer.strike(kernel, rows, tensors)

    def launches(self) -> Sequence[Launch]:
        return self._launches

    def clear_launches(self) -> None:
        self._launches = []

    @contextmanager
    def knocked_out(self) -> Iterator[None]:
        self._off = True
        try:
            yield
        finally:
            self._off = False

    def compile_error(self, error: BaseException) -> str | None:
        return None


class HammerBackend(Backend):
    name: ClassVar[str] = "hammer"
    summary: ClassVar[str] = "Acme's row-at-a-time DSL"
    accelerators: ClassVar[tuple[str, ...]] = ("anvil",)

    def check_available(self) -> None:
        return

    @property
    def kernels(self) -> Path:
        return Path(__file__).parent / "kernels"

    def preload(self) -> None:
        import torch

        from atrex_acme import hammer

        assert torch.__version__
        assert hammer.LAUNCHER is hammer.strike

    def start(self, request: RuntimeRequest) -> BackendRuntime:
        return HammerRuntime(request)
