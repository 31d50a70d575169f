"""A device that is compiled for and never launched on, because this process cannot see it.

What a candidate may ask of it, through triton or through torch, is answered as the device would,
so that the same kernels are compiled under the same keys. Imports torch and triton when imported.
"""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner

from atrex_backend_triton.targets import Target
from atrex_backend_triton.virtual.driver import DeviceUtils, Resources, VirtualDriver
from atrex_core import Device

_autotuner: Any = Autotuner
_run = _autotuner.run
_prune_configs = _autotuner.prune_configs


class AbsentDriver(VirtualDriver):
    """Loads nothing and launches nothing, but refuses what exceeds a limit of the device."""

    def __init__(
        self,
        device: Device,
        torch_device: str,
        target: Target,
        resources: Resources,
        lock: AbstractContextManager[Any],
    ) -> None:
        super().__init__(target, resources, lock)
        self.launcher_cls = _Launcher
        self.utils = _Utils(device, target, resources)
        self.benchmark = _once
        self._torch_device = torch.device(torch_device)

    def get_current_device(self) -> int:
        """Return the index that the device has where it can be seen."""
        return self._torch_device.index or 0

    def get_active_torch_device(self) -> Any:
        """Return the device on which the candidate's tensors pretend to be."""
        return self._torch_device

    def get_device_interface(self) -> Any:
        """Return torch's module for devices of this kind."""
        return torch.get_device_module(self._torch_device)


class _Launcher:
    def __init__(self, source: Any, metadata: Any) -> None:
        pass

    def __call__(self, *args: Any) -> None:
        pass


class _Utils(DeviceUtils):
    def __init__(self, device: Device, target: Target, resources: Resources) -> None:
        super().__init__(target, resources)
        self._units = device.compute_units

    def get_device_properties(self, device: int) -> Mapping[str, Any]:
        listed = super().get_device_properties(device)
        return {**listed, "multiprocessor_count": self._units or listed["multiprocessor_count"]}


def compile_every_configuration() -> None:
    """Make a search compile each of its configurations, and find nothing.

    Several processes may be at the same search. Each goes through it in an order of its own, and
    finds what another has compiled by then.
    """

    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        tuner.cache_results = False  # or the device's worker would take them for its own
        tuner.do_bench = _once
        return _run(tuner, *args, **kwargs)

    def prune_configs(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        configs = list(_prune_configs(tuner, *args, **kwargs))
        random.Random(os.getpid()).shuffle(configs)  # noqa: S311  (an order, no secret)
        return configs

    _autotuner.run = run
    _autotuner.prune_configs = prune_configs


def _once(
    kernel_call: Callable[[], Any], *, quantiles: Sequence[float] | None = None, **_: Any
) -> Any:
    kernel_call()
    return [0.0] * len(quantiles) if quantiles else 0.0


def cpu_seconds() -> float:
    """Return what this process and the compilers it has called have had of the processor.

    Not the time that has passed: this process may be made to stand still for minutes.
    """
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def pretend(device: Device, torch_device: str, target: Target) -> None:
    """Let torch say that the device is there, to whoever asks what it is."""
    here = torch.device(torch_device)
    if here.type == "cpu":
        return
    module: Any = torch.get_device_module(here)
    index = here.index or 0
    properties = _properties(device, target)
    stream = SimpleNamespace(
        cuda_stream=0,
        device=here,
        synchronize=_nothing,
        wait_stream=_nothing,
        wait_event=_nothing,
        record_event=_nothing,
    )
    answers: Mapping[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": _nothing,
        "device_count": lambda: index + 1,
        "current_device": lambda: index,
        "set_device": _nothing,
        "device": _Selected,
        "device_of": _Selected,
        "synchronize": _nothing,
        "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
        "is_current_stream_capturing": lambda: False,
        "get_device_name": lambda *_: device.name,
        "get_device_capability": lambda *_: target.capability,
        "get_device_properties": lambda *_: properties,
        "is_bf16_supported": lambda *_, **__: True,
    }
    for name, answer in answers.items():
        setattr(module, name, answer)


def _properties(device: Device, target: Target) -> SimpleNamespace:
    """Return what is known of a device under torch's names; the rest is no attribute at all."""
    major, minor = target.capability
    known = {
        "name": device.name,
        "major": major,
        "minor": minor,
        "total_memory": device.memory_bytes,
        "multi_processor_count": device.compute_units or target.compute_units,
        "L2_cache_size": device.last_level_cache_bytes,
        "warp_size": target.warp_threads,
        "regs_per_multiprocessor": target.registers_per_unit,
        "shared_memory_per_block_optin": target.shared_limit_bytes,
        "gcnArchName": target.name,
    }
    return SimpleNamespace(**{name: value for name, value in known.items() if value is not None})


class _Selected:
    """A context in which a device is the current one: there is only one."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _nothing(*_: Any, **__: Any) -> None:
    pass
