"""Calibration of a device whose every time is known: the figures are exact."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from atrex_core import (
    ArithmeticPath,
    Buffer,
    BufferHandle,
    Ceiling,
    DeviceContext,
    DeviceMatch,
    DeviceSamples,
    Figure,
    HardwareProfile,
    QueueGate,
    Unavailable,
)
from atrex_core.calibration import measure
from atrex_core.model.calibration import NO_TIME, FloorMethod, Load, Regime

MEMORY = 1e9
CACHE = 4e9
FLOPS = 1e12
FLOOR_S = 500e-6
CACHE_BYTES = 2**21


class KnownDevice(DeviceContext, TorchDispatchMode):
    """Runs nothing while it is timed: each operation takes what it should on a clock of ours."""

    torch_device = "cpu"
    has_queue: ClassVar[bool] = True
    now_s: float
    pending_s: float

    def __init__(self, *, free: int = 2**27, reason: str | None = None) -> None:
        TorchDispatchMode.__init__(self)
        self.free, self.reason = free, reason
        self.now_s, self.pending_s = 0.0, 0.0
        self.is_sampling = False
        self.warm: set[int] = set()
        self.gate: KnownGate | None = None

    def now(self) -> float:
        if self.gate is not None and self.gate.is_open:
            self.now_s += self.pending_s
            self.pending_s, self.gate.held = 0.0, None
        return self.now_s

    def sample(self, call: Callable[[int], None], *, budget_s: float) -> DeviceSamples:
        if self.reason:
            return DeviceSamples(method="none", reason=self.reason)
        samples = []
        self.is_sampling = True
        for index in range(6):
            self.warm.clear()
            began_s = self.now_s
            call(index)
            samples.append((self.now_s - began_s) * 1e6)
        self.is_sampling = False
        return DeviceSamples(samples_us=tuple(samples), method="known times")

    def open_gate(self, released_address: int, finished_address: int) -> QueueGate:
        if not self.has_queue:
            raise Unavailable("no queue here")
        self.gate = KnownGate(released_address, finished_address)
        return self.gate

    def free_bytes(self) -> int:
        return self.free

    def synchronize(self) -> None:
        return

    def allocate(self, nbytes: int) -> Buffer:
        raise NotImplementedError

    def open_buffer(self, handle: BufferHandle) -> Buffer:
        raise NotImplementedError

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        tensors = [a for a in (*args, kwargs.get("out")) if isinstance(a, torch.Tensor)]
        if name in ("mm", "_int_mm"):
            rows, inner = args[0].shape
            self._pass(2.0 * rows * inner * args[1].shape[1] / FLOPS)
        elif name == "add_":
            self._pass(FLOOR_S)
        elif name in ("sum", "fill_", "copy_", "add"):
            self._pass(sum(map(self._seconds, tensors)))
        elif self.is_sampling:
            raise AssertionError(f"{name} is no part of a load")
        return tensors[-1] if self.is_sampling else func(*args, **kwargs)

    def _seconds(self, tensor: torch.Tensor) -> float:
        nbytes = tensor.numel() * tensor.element_size()
        is_warm = tensor.data_ptr() in self.warm
        self.warm.add(tensor.data_ptr())
        return float(nbytes / (CACHE if is_warm and nbytes <= CACHE_BYTES else MEMORY))

    def _pass(self, seconds: float) -> None:
        if self.gate is not None and self.gate.held is not None:
            self.pending_s += seconds
        else:
            self.now_s += seconds


class KnownGate(QueueGate):
    def __init__(self, released_address: int, finished_address: int) -> None:
        self.released = ctypes.c_uint32.from_address(released_address)
        self.finished = ctypes.c_uint32.from_address(finished_address)
        self.held: int | None = None

    @property
    def is_open(self) -> bool:
        return self.held is not None and self.released.value >= self.held

    def hold(self, epoch: int) -> None:
        self.held = epoch

    def mark(self, epoch: int) -> None:
        self.finished.value = epoch


def profile(
    *paths: ArithmeticPath, ceiling: Ceiling = Ceiling.SPEC, peak: float = 2e12
) -> HardwareProfile:
    return HardwareProfile(
        name="known",
        match=DeviceMatch(vendor="acme", names=("Known",)),
        peak_flops={path: Figure(value=peak, source="a sheet") for path in paths},
        bandwidth_bytes_per_s=Figure(value=2 * MEMORY, source="a sheet"),
        ceiling=ceiling,
    )


def take(device: KnownDevice, **changes: Any) -> measure.Readings:
    given: dict[str, Any] = {
        "profile": None,
        "torch": torch,
        "cache_bytes": CACHE_BYTES,
        "is_synchronous": True,
        "minutes": 60.0,
        "announce": lambda *_: None,
        "now": device.now,
    }
    with device:
        return measure.take(device, **given | changes)


@pytest.fixture(scope="module")
def found() -> measure.Readings:
    return take(KnownDevice())


@pytest.mark.parametrize("load", Load)
@pytest.mark.parametrize(("regime", "rate"), [(Regime.MEMORY, MEMORY), (Regime.CACHED, CACHE)])
def test_each_load_gets_the_rate_of_where_its_arrays_lie(
    found: measure.Readings, load: Load, regime: Regime, rate: float
) -> None:
    (reading,) = (r for r in found.streams if (r.load, r.regime) == (load, regime))

    assert reading.reason is None
    assert reading.measured is not None
    figures = (reading.measured.value, reading.measured.low, reading.measured.high)
    assert figures == pytest.approx((rate, rate, rate))
    assert reading.measured.spread == pytest.approx(0.0, abs=1e-9)
    assert [len(samples) for samples in reading.measured.samples_us] == [6, 6, 6]


def test_arrays_are_a_quarter_of_the_cache_or_at_least_four_times_as_large(
    found: measure.Readings,
) -> None:
    sizes = {(r.load, r.regime): r.moved_bytes for r in found.streams}

    assert all(
        CACHE_BYTES // 4 - 24576 < (sizes[load, Regime.CACHED] or 0) <= CACHE_BYTES // 4
        for load in Load
    )
    assert all((sizes[load, Regime.MEMORY] or 0) >= 4 * CACHE_BYTES for load in Load)


@pytest.mark.parametrize("method", FloorMethod)
def test_the_floor_is_what_the_smallest_operation_takes(
    found: measure.Readings, method: FloorMethod
) -> None:
    (reading,) = (r for r in found.floors if r.method is method)

    assert reading.measured is not None
    assert reading.measured.value == pytest.approx(FLOOR_S * 1e6)


def test_a_device_without_a_queue_says_so() -> None:
    class NoQueue(KnownDevice):
        has_queue = False

    readings = {r.method: r for r in take(NoQueue()).floors}

    assert readings[FloorMethod.HELD].reason == "no queue here"
    assert readings[FloorMethod.CALL].measured is not None


def test_products_are_measured_for_the_paths_that_the_profile_names() -> None:
    paths = (ArithmeticPath.FP32_VECTOR, ArithmeticPath.BF16_MATRIX, ArithmeticPath.FP64_MATRIX)

    found = take(KnownDevice(), profile=profile(*paths)).products

    assert [(r.path, r.edge) for r in found] == [(p, e) for p in paths for e in (512, 1024)]
    rates = [r.measured.value for r in found if r.measured]
    assert rates == pytest.approx([FLOPS] * 6)


def test_an_integer_product_is_exact() -> None:
    found = take(KnownDevice(), profile=profile(ArithmeticPath.INT8_MATRIX)).products

    assert [r.reason for r in found] == [None, None]
    assert found[0].measured is not None
    assert found[0].measured.method == "_int_mm of int8; known times"


def test_what_computes_in_another_type_is_no_figure() -> None:
    found = take(KnownDevice(), profile=profile(ArithmeticPath.TF32_MATRIX)).products

    assert all(r.measured is None for r in found)
    assert "something else was computed" in (found[0].reason or "")


@pytest.mark.parametrize(
    ("path", "missing", "reason"),
    [
        (
            ArithmeticPath.FP8_MATRIX,
            ("float8_e4m3fn", "float8_e4m3fnuz"),
            "this torch has no float8_e4m3fn; this torch has no float8_e4m3fnuz",
        ),
        (ArithmeticPath.INT8_MATRIX, ("_int_mm",), "int8: no _int_mm"),
        (ArithmeticPath.FP4_MATRIX, (), "torch has no product of fp4 matrices"),
    ],
    ids=["dtype", "operation", "path"],
)
def test_a_path_that_torch_lacks_has_a_reason_in_place_of_a_figure(
    path: ArithmeticPath, missing: tuple[str, ...], reason: str
) -> None:
    class OldTorch:
        def __getattr__(self, name: str) -> Any:
            if name in missing:
                raise AttributeError(f"no {name}")
            return getattr(torch, name)

    found = take(KnownDevice(), profile=profile(path), torch=OldTorch()).products

    assert [(r.measured, r.reason) for r in found] == [(None, reason)] * 2


def test_fp64_products_do_not_stand_for_the_vector_pipe_beside_a_matrix_one() -> None:
    both = (ArithmeticPath.FP64_VECTOR, ArithmeticPath.FP64_MATRIX)

    found = take(KnownDevice(), profile=profile(*both)).products
    alone = take(KnownDevice(), profile=profile(ArithmeticPath.FP64_VECTOR)).products

    reasons = {r.path: r.reason for r in found}
    assert reasons == {
        both[0]: "products in fp64 use the matrix pipe of this device",
        both[1]: None,
    }
    assert [r.reason for r in alone] == [None, None]


def test_a_measured_profile_gives_its_figures_and_nothing_is_multiplied() -> None:
    given = profile(ArithmeticPath.FP32_VECTOR, ceiling=Ceiling.MEASURED, peak=3e11)

    (reading,) = take(KnownDevice(), profile=given).products

    assert reading.edge is None
    assert reading.measured is not None
    assert (reading.measured.value, reading.measured.method) == (3e11, "a sheet")


def test_a_device_whose_clock_gives_no_samples_says_why() -> None:
    found = take(KnownDevice(reason="the counters are taken"))

    assert {r.reason for r in found.streams} == {"the counters are taken"}


def test_without_room_past_the_cache_there_is_no_figure_of_memory() -> None:
    found = take(KnownDevice(free=8 * CACHE_BYTES))

    reasons = {r.reason for r in found.streams if r.regime is Regime.MEMORY}
    beside = "4194304 bytes, is not past the cache of 2097152 bytes by 4 times"
    assert reasons == {f"a quarter of the free memory, {beside}"}


def test_a_cache_of_unknown_size_has_no_figure() -> None:
    found = take(KnownDevice(), cache_bytes=None)

    cached = {r.reason for r in found.streams if r.regime is Regime.CACHED}
    assert cached == {"the size of the last-level cache is not known"}
    past = {r.moved_bytes for r in found.streams if r.regime is Regime.MEMORY}
    assert past == {2**25 // 24576 * 24576}


def test_once_the_time_is_spent_no_figure_is_begun() -> None:
    found = take(KnownDevice(), minutes=1e-9)

    first, *others = found.streams
    assert (first.load, first.regime, first.reason) == (Load.READ, Regime.MEMORY, None)
    assert {r.reason for r in others} | {r.reason for r in found.floors} == {NO_TIME}


def test_every_figure_is_announced() -> None:
    told: list[tuple[str, int, int]] = []

    take(
        KnownDevice(),
        profile=profile(ArithmeticPath.FP32_VECTOR),
        announce=lambda *step: told.append(step),
    )

    assert [done for _, done, _ in told] == list(range(13))
    assert {total for _, _, total in told} == {13}
