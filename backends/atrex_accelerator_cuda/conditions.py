"""The state of one GPU at one moment, from NVML through NVIDIA's `nvidia-ml-py`.

It is only ever read.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from typing import Any, ClassVar

from atrex_accelerator_common.watching import Told, Watch
from attrs import define, field

from atrex_accelerator_cuda.sharing import count_others
from atrex_core import Conditions, ThrottleReason

Nvml = Any
"""The module `pynvml`, or something that answers like it."""

_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_GPU_SENSOR = 0
_UNKNOWN_STATE = 32
_FUNCTION_NOT_FOUND = 13
_UNTOLD = frozenset({2, 3, 4, 6, _FUNCTION_NOT_FOUND, 21, 25, 26})
"""Invalid argument, not supported, no permission, not found, no such function, no data, other
version, deprecated: this driver does not tell this of this GPU. Anything else is a failure."""

_REASONS = {
    0x001: ThrottleReason.IDLE,
    0x002: ThrottleReason.CLOCK_SETTING,
    0x004: ThrottleReason.POWER_CAP,
    0x008: ThrottleReason.HARDWARE,
    0x010: ThrottleReason.SYNCHRONISED,
    0x020: ThrottleReason.THERMAL,
    0x040: ThrottleReason.HARDWARE_THERMAL,
    0x080: ThrottleReason.POWER_BRAKE,
    0x100: ThrottleReason.CLOCK_SETTING,
}
_KNOWN = sum(_REASONS)


def throttle_reasons(mask: int) -> tuple[ThrottleReason, ...]:
    """Return NVML's bits in words."""
    found = [reason for bit, reason in _REASONS.items() if mask & bit]
    if mask & ~_KNOWN:
        found.append(ThrottleReason.OTHER)
    return tuple(dict.fromkeys(found))


def load_nvml() -> Nvml:
    """Import NVML's bindings."""
    return importlib.import_module("pynvml")


@define(eq=False)
class Reader(Watch):
    """Reads one GPU's conditions, until a first failure."""

    driver: ClassVar[str] = "the NVIDIA driver"
    library: ClassVar[str] = "NVML"
    wanted: ClassVar[str] = "nvidia-ml-py"
    extra: ClassVar[str] = "cuda"

    uuid: str
    """As NVML takes it: `GPU-...`."""
    load: Callable[[], Nvml] = load_nvml
    others: Callable[[Collection[int]], tuple[int | None, str | None]] = count_others
    """From the pids that NVML lists to how many are not ours, or why that is not known."""
    _nvml: Nvml = field(default=None, init=False)
    _gpu: Any = field(default=None, init=False)

    def _attach(self) -> None:
        nvml = self.load()
        nvml.nvmlInit()
        self._gpu, self._nvml = nvml.nvmlDeviceGetHandleByUUID(self.uuid), nvml

    def _read(self) -> Conditions:
        told = Told(self._refusal)
        get = self._get
        watts = told("power_w", get("PowerUsage"))
        limit = told("power_limit_w", get("EnforcedPowerLimit"))
        state = told("performance_state", get("PerformanceState"))
        usage = told("utilization_percent", get("UtilizationRates"))
        mask = told("throttle_reasons", self._throttle_reasons)
        listed = told("other_processes", get("ComputeRunningProcesses"))
        others, unseen = None, None
        if listed is not None:
            others, unseen = self.others({int(process.pid) for process in listed})
        return Conditions(
            clock_mhz=_float(told("clock_mhz", get("ClockInfo", _SM_CLOCK))),
            memory_clock_mhz=_float(told("memory_clock_mhz", get("ClockInfo", _MEMORY_CLOCK))),
            performance_state=None if state in (None, _UNKNOWN_STATE) else f"P{state}",
            throttle_reasons=None if mask is None else throttle_reasons(int(mask)),
            power_w=None if watts is None else watts / 1e3,
            power_limit_w=None if limit is None else limit / 1e3,
            temperature_c=_float(told("temperature_c", get("Temperature", _GPU_SENSOR))),
            utilization_percent=None if usage is None else float(usage.gpu),
            other_processes=others,
            reason="; ".join(filter(None, [told.gaps(), unseen])) or None,
        )

    def _get(self, function: str, *arguments: int) -> Callable[[], Any]:
        return lambda: getattr(self._nvml, f"nvmlDeviceGet{function}")(self._gpu, *arguments)

    def _throttle_reasons(self) -> Any:
        try:
            return self._get("CurrentClocksEventReasons")()
        except self._nvml.NVMLError as error:
            if int(error.value) != _FUNCTION_NOT_FOUND:
                raise
        return self._get("CurrentClocksThrottleReasons")()  # what older drivers call the same

    def _refusal(self, error: Any) -> str | None:
        is_untold = isinstance(error, self._nvml.NVMLError) and int(error.value) in _UNTOLD
        return str(error) if is_untold else None


def _float(value: Any) -> float | None:
    return None if value is None else float(value)
