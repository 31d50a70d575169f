"""What the tests of the Triton backend share: small kernels, and how a worker starts them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from atrex_backend_triton import TritonBackend

from atrex_core import Device, RuntimeRequest, Stage

_HEADER = "import torch\nimport triton\nimport triton.language as tl\n"

_ADD = """
@triton.jit
def add_one(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)
"""

_INLINE_ASSEMBLY = """
@triton.jit
def kernel(x, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    v = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x + o)], tl.int32, True, 1)
    tl.store(x + o, v)
"""

_TILED_MATMUL = """
@triton.jit
def matmul(
    a, b, c, M, N, K, PRECISION: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a + m * K + start + k[None, :], (m < M) & (start + k < K)[None, :], 0.0)
        right = tl.load(b + (start + k[:, None]) * N + n, (start + k < K)[:, None] & (n < N), 0.0)
        acc = tl.dot(left, right, acc, input_precision=PRECISION)
    tl.store(c + m * N + n, acc.to(c.dtype.element_ty), mask=(m < M) & (n < N))
"""


@pytest.fixture
def header() -> str:
    """Return the lines that `load` puts before a source."""
    return _HEADER


@pytest.fixture
def add_one() -> str:
    """Return a kernel without its imports: `add_one[grid](x, y, n, BLOCK)`."""
    return _ADD


@pytest.fixture
def inline_assembly() -> str:
    """Return a kernel with an instruction of one vendor's: `kernel[grid](x, BLOCK)`."""
    return _INLINE_ASSEMBLY


@pytest.fixture
def tiled_matmul() -> str:
    """Return a kernel without its imports: `matmul[grid](a, b, c, M, N, K, PRECISION, ...)`."""
    return _TILED_MATMUL


@pytest.fixture
def import_file() -> Callable[[Path], Any]:
    """Return what imports a file under its own name, as a worker imports a candidate."""
    return _import_file


@pytest.fixture
def virtual() -> Callable[[str], Device]:
    """Return what makes the virtual device of a target."""
    return _virtual


@pytest.fixture
def load_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Device], Any]:
    """Return what starts the backend on a device and imports a file there.

    The module it returns has two names more: `runtime`, and the `stages` that were entered.
    """

    def load_file(path: Path, device: Device) -> Any:
        stages: list[Stage] = []

        @contextmanager
        def enter(stage: Stage) -> Iterator[None]:
            stages.append(stage)
            yield

        # Set and deleted here, so that what the runtime sets is undone when the test ends.
        for name in ("TRITON_CACHE_DIR", "TRITON_DEFAULT_FP_FUSION"):
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        runtime = TritonBackend().start(
            RuntimeRequest(
                device=device,
                context=cast(Any, None),
                candidate=path,
                scratch=tmp_path,
                enter=enter,
            )
        )
        module = _import_file(path)
        module.runtime, module.stages = runtime, stages
        return module

    return load_file


@pytest.fixture
def load(
    tmp_path: Path, load_file: Callable[[Path, Device], Any], header: str
) -> Callable[..., Any]:
    """Return what loads a source as `load_file` does a file: `load(source, target)`."""

    def load(source: str, target: str = "sm_90", device: Device | None = None) -> Any:
        path = tmp_path / "candidate.py"
        path.write_text(header + source)
        return load_file(path, device or _virtual(target))

    return load


def _virtual(target: str) -> Device:
    return Device(
        id=f"virtual:{target}",
        accelerator="virtual",
        vendor="any",
        name=target,
        arch=target,
        virtual=True,
    )


def _import_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
