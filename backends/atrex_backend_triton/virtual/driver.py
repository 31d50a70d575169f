"""The driver that triton asks about the device, answering for one that is absent."""

# Triton declares that `is_active` returns None.
# pyright: reportIncompatibleMethodOverride=false

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from triton.backends.driver import DriverBase
from triton.runtime import _allocation

from atrex_backend_triton.targets import Target
from atrex_backend_triton.virtual.machine import Machine

_BENCHMARK_MS = 1000.0
"""What a timer on this device reads: long enough that one repetition satisfies anyone."""

Resources = Callable[[bytes], tuple[int, int]]
"""Registers and spills of a binary."""


class VirtualDriver(DriverBase):
    """Stands where a vendor's driver would: see the package for what is and is not emulated."""

    def __init__(
        self, target: Target, resources: Resources, lock: AbstractContextManager[Any]
    ) -> None:
        super().__init__()
        self.target = target
        self.launcher_cls: Any = _launcher(Machine(target, lock))
        self.utils = DeviceUtils(target, resources)
        self.benchmark: Any = Benchmark()

    @classmethod
    def is_active(cls) -> bool:
        """Return True: nobody asks a driver that was not installed on purpose."""
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Return `ty`: no host code is generated for this device."""
        return ty

    def get_current_target(self) -> Any:
        """Return the target that kernels are compiled for."""
        return self.target.gpu_target()

    def get_current_device(self) -> int:
        """Return the index of the only device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Accept the only device."""

    def get_current_stream(self, device: int | None = None) -> int:
        """Return the default stream; launches complete before they return."""
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """Return what the vendor's runtime would."""
        return self.target.capability

    def get_active_torch_device(self) -> Any:
        """Return the CPU: that is where tensors live."""
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        """Return what `triton.testing.do_bench` needs of `torch.cuda`."""
        return SimpleNamespace(Event=_Event, synchronize=lambda: None, current_device=lambda: 0)

    def get_benchmarker(self) -> Any:
        """Return what the autotuner compares configurations with."""
        return self.benchmark

    def get_empty_cache_for_benchmark(self) -> Any:
        """Return a token buffer: there is no cache to flush."""
        import torch

        return torch.empty(1, dtype=torch.int32)

    def clear_cache(self, cache: Any) -> None:
        """Do nothing, as there is no cache."""


class Benchmark:
    """Makes the autotuner take the first configuration that compiles and fits.

    The time that a body takes here says nothing about the hardware, so none is compared. The
    first configuration is compiled and loaded, which enforces the target's limits, but not
    executed; once one has passed, the rest of that search is not even compiled.
    """

    def __init__(self) -> None:
        self.loading: Callable[[], Any] | None = None
        """Returns a context in which launches load their kernel and stop there."""
        self._settled: Any = None

    def __call__(
        self, kernel_call: Callable[[], Any], *, quantiles: Sequence[float] | None = None, **_: Any
    ) -> Any:
        """Return a time for one configuration: none for the first that works."""
        search = _search(kernel_call)
        if search is not None and search is self._settled:
            return _times(float("inf"), quantiles)
        assert self.loading is not None
        with self.loading():
            kernel_call()
        self._settled = search
        return _times(0.0, quantiles)


def _search(kernel_call: Callable[[], Any]) -> Any:
    """Return what is one object throughout one autotuning search: the tuner's view of the call."""
    tuner = inspect.getclosurevars(kernel_call).nonlocals.get("self")
    return getattr(tuner, "nargs", None)


def _times(milliseconds: float, quantiles: Sequence[float] | None) -> Any:
    return [milliseconds] * len(quantiles) if quantiles else milliseconds


class _Event:
    def __init__(self, **_: Any) -> None:
        pass

    def record(self, *_: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, _: _Event) -> float:
        return _BENCHMARK_MS


class DeviceUtils:
    """What triton asks a driver about a device, and how it has a binary loaded."""

    def __init__(self, target: Target, resources: Resources) -> None:
        self._target = target
        self._resources = resources

    def get_device_properties(self, device: int) -> Mapping[str, Any]:
        """Return limits of the device, under triton's names."""
        target = self._target
        return {
            "max_shared_mem": target.shared_limit_bytes,
            "max_num_regs": target.registers_per_unit,
            "multiprocessor_count": target.compute_units,
            "warpSize": target.warp_threads,
            "sm_clock_rate": 1,
            "mem_clock_rate": 1,
            "mem_bus_width": 1,
            "arch": str(target.arch),
        }

    def load_binary(
        self, name: str, binary: bytes, shared_bytes: int, device: int
    ) -> tuple[Any, Any, int, int, int]:
        """Return handles, registers, spills and the most threads of a program."""
        registers, spills = self._resources(binary)
        return ("module", name), ("function", name), registers, spills, self._target.threads_limit

    def unload_module(self, module: Any) -> None:
        """Do nothing: no module was loaded."""


def _launcher(machine: Machine) -> type:
    class Launcher:
        def __init__(self, source: Any, metadata: Any) -> None:
            self._source = source
            self._metadata = metadata

        def __call__(
            self,
            x: int,
            y: int,
            z: int,
            stream: int,
            function: Any,
            packed_metadata: Any,
            launch_metadata: Any,
            enter: Callable[[Any], Any] | None,
            leave: Callable[[Any], Any] | None,
            *args: Any,
        ) -> None:
            if enter is not None:
                enter(launch_metadata)
            _require_scratch(self._metadata)
            if x * y * z > 0:
                machine.launch(self._source, self._metadata, (x, y, z), args)
            if leave is not None:
                leave(launch_metadata)

    return Launcher


def _require_scratch(metadata: Any) -> None:
    # A device-made descriptor lives in memory that the candidate must provide. The machine does
    # not need it, but the hardware would refuse to launch without.
    size = getattr(metadata, "global_scratch_size", 0)
    allocator = _allocation._allocator.get()
    if size and isinstance(allocator, _allocation.NullAllocator):
        allocator(size, metadata.global_scratch_align, 0)
