"""Small kernels and how a worker starts them; a driver and a torch that record what is asked."""

from __future__ import annotations

import ctypes
import enum
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from atrex_accelerator_cuda.context import CudaContext
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


MIB = 2**20
HANDLE = bytes(range(64))
GPU = Device(
    id="cuda:1",
    accelerator="cuda",
    vendor="nvidia",
    name="NVIDIA H200",
    arch="sm_90",
    index=1,
    driver="580.159.04",
)


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


# -- CUDA without a GPU ----------------------------------------------------------------------------


class Result(enum.IntEnum):
    SUCCESS = 0
    OUT_OF_MEMORY = 2
    INVALID_CONTEXT = 201
    INVALID_PTX = 218
    NOT_READY = 600
    NOT_SUPPORTED = 801
    ILLEGAL_ADDRESS = 700


class FakeBindings:
    """The functions of `cuda.bindings.driver` that are used, on a device of 8 MiB.

    Commands run as soon as nothing holds the stream; a hold ends when its host word is set.
    """

    class CUipcMemHandle:
        reserved = HANDLE

    Result = Result

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.failing: dict[str, Result] = {}
        self.free_bytes = 8 * MIB
        self._word = ctypes.c_uint32(77)
        self._epoch = 0
        self.work_us = 0.0
        """Device time of everything enqueued so far."""
        self._reached_us: dict[int, float] = {}
        self._happened: set[int] = set()
        self._queued: list[int] = []

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            self.told.append((name, *arguments))
            if name in self.failing:
                return (self.failing[name], None)
            values = getattr(self, f"_{name}", lambda *_: ())(*arguments)
            return values if values and isinstance(values[0], Result) else (Result(0), *values)

        return call

    def names(self) -> list[str]:
        return [entry[0] for entry in self.told]

    def _cuDeviceGet(self, ordinal: int) -> tuple[Any, ...]:
        return (f"device {ordinal}",)

    def _cuDevicePrimaryCtxRetain(self, device: str) -> tuple[Any, ...]:
        return (f"context of {device}",)

    def _cuDriverGetVersion(self) -> tuple[Any, ...]:
        return (13010,)

    def _cuMemGetInfo(self) -> tuple[Any, ...]:
        return (self.free_bytes, 8 * MIB)

    def _cuMemAlloc(self, nbytes: int) -> tuple[Any, ...]:
        if nbytes > self.free_bytes:
            return (Result.OUT_OF_MEMORY, None)
        address = 0x7F00_0000_0000 + len(self.told) * 64 * MIB
        self.free_bytes -= nbytes
        return (address,)

    def _cuIpcGetMemHandle(self, _address: int) -> tuple[Any, ...]:
        return (SimpleNamespace(reserved=HANDLE),)

    def _cuIpcOpenMemHandle(self, _handle: Any, _flags: int) -> tuple[Any, ...]:
        return (0x7E00_0000_0000,)

    def _cuMemHostAlloc(self, _nbytes: int, _flags: int) -> tuple[Any, ...]:
        return (ctypes.addressof(self._word),)

    def _cuMemHostGetDevicePointer(self, address: int, _flags: int) -> tuple[Any, ...]:
        return (address + 1,)

    def _cuModuleLoadData(self, _image: bytes) -> tuple[Any, ...]:
        return ("module",)

    def _cuModuleGetFunction(self, _module: str, _name: bytes) -> tuple[Any, ...]:
        return ("kernel",)

    def _cuLaunchKernel(self, *arguments: Any) -> tuple[Any, ...]:
        self._epoch = arguments[9][0][3]
        return ()

    def _cuEventCreate(self, _flags: int) -> tuple[Any, ...]:
        return (len(self.told),)

    def _cuEventRecord(self, event: int, _stream: int) -> tuple[Any, ...]:
        self._happened.discard(event)
        self._reached_us[event] = self.work_us
        self._queued.append(event)
        return ()

    def _cuEventQuery(self, event: int) -> tuple[Any, ...]:
        return () if self._is_past(event) else (Result.NOT_READY,)

    def _cuEventSynchronize(self, event: int) -> tuple[Any, ...]:
        assert self._is_past(event), "this would wait for ever"
        return ()

    def _cuEventElapsedTime(self, start: int, end: int) -> tuple[Any, ...]:
        return ((self._reached_us[end] - self._reached_us[start]) / 1000,)

    def _cuGetErrorName(self, status: Result) -> tuple[Any, ...]:
        return (f"CUDA_ERROR_{status.name}".encode(),)

    def _cuGetErrorString(self, _status: Result) -> tuple[Any, ...]:
        return (b"it went wrong",)

    def _is_past(self, event: int) -> bool:
        if self._word.value >= self._epoch:
            self._happened.update(self._queued)
            self._queued.clear()
        return event in self._happened


class FakeTorch:
    """The corner of torch that is used."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.version = SimpleNamespace(cuda="13.0")
        self.int32 = "int32"
        self.properties = SimpleNamespace(
            name="NVIDIA H200",
            major=9,
            minor=0,
            multi_processor_count=132,
            max_threads_per_multi_processor=2048,
            L2_cache_size=62_914_560,
            uuid="8f6b0000-aaaa",
        )
        self.cuda = SimpleNamespace(
            init=lambda: self.told.append("init"),
            set_device=lambda index: self.told.append(f"set_device {index}"),
            synchronize=lambda index: self.told.append(f"synchronize {index}"),
            get_device_properties=lambda _index: self.properties,
            current_stream=lambda _index: SimpleNamespace(cuda_stream=0),
            empty_cache=lambda: self.told.append("empty_cache"),
            max_memory_allocated=lambda _index: 4096,
            reset_peak_memory_stats=lambda index: self.told.append(f"reset {index}"),
        )

    def zeros(self, *shape: int, device: str, dtype: Any = None) -> Any:
        self.told.append(f"zeros {shape} {device}")
        return SimpleNamespace(amax=lambda: self.told.append("read"))

    def as_tensor(self, source: Any, *, device: str) -> Any:
        return FakeTensor(source, device)


class FakeTensor:
    def __init__(self, source: Any, device: str) -> None:
        self.interface = source.__cuda_array_interface__
        self.device = device

    def view(self, _what: Any) -> FakeTensor:
        return self


@pytest.fixture
def bindings() -> FakeBindings:
    """Return a driver that records what it is told."""
    return FakeBindings()


@pytest.fixture
def torch() -> FakeTorch:
    """Return the corner of torch that a context uses."""
    return FakeTorch()


@pytest.fixture
def device_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back the variable that a context sets."""
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")  # and back, whatever a test does


@pytest.fixture
def context(bindings: FakeBindings, torch: FakeTorch, device_order: None) -> CudaContext:
    """Return a context on the recording driver."""
    return CudaContext(GPU, torch=torch, bindings=bindings)
