"""The state of one GPU at one moment, from NVML through NVIDIA's `nvidia-ml-py`.

It is only ever read. A broken driver may keep whoever asks it, so each reading has a thread of its
own and a time limit; after one failure there is a reason and no second try.
"""

from __future__ import annotations

import importlib
import queue
import threading
from collections.abc import Callable, Collection
from typing import Any, Final, TypeVar

from attrs import define, field

from atrex_accelerator_cuda.sharing import count_others
from atrex_core import Conditions, ThrottleReason

Nvml = Any
"""The module `pynvml`, or something that answers like it."""
T = TypeVar("T")

_FIRST_LIMIT_S: Final = 5.0
"""Importing and attaching to a large machine's GPUs comes with the first reading."""
_LIMIT_S: Final = 1.0

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
class Reader:
    """Reads one GPU's conditions, until a first failure."""

    uuid: str
    """As NVML takes it: `GPU-...`."""
    load: Callable[[], Nvml] = load_nvml
    others: Callable[[Collection[int]], tuple[int | None, str | None]] = count_others
    """From the pids that NVML lists to how many are not ours, or why that is not known."""
    first_limit_s: float = _FIRST_LIMIT_S
    limit_s: float = _LIMIT_S
    _nvml: Nvml = field(default=None, init=False)
    _gpu: Any = field(default=None, init=False)
    _trouble: str | None = field(default=None, init=False)

    def read(self) -> Conditions:
        """Return what NVML tells now; whatever it does not is None, and `reason` says why."""
        if self._trouble is None:
            limit_s = self.first_limit_s if self._gpu is None else self.limit_s
            try:
                return _within(limit_s, self._read)
            except TimeoutError:
                self._trouble = f"the NVIDIA driver did not answer within {limit_s:g} s"
            except ImportError as error:
                self._trouble = (
                    f"clocks and power need nvidia-ml-py: {error}; pip install 'atrex-eval[cuda]'"
                )
            except Exception as error:  # noqa: BLE001  (whatever the bindings raise: it is no time)
                self._trouble = f"NVML fails: {error}"
        return Conditions(reason=self._trouble)

    def _read(self) -> Conditions:
        if self._gpu is None:
            nvml = self.load()
            nvml.nvmlInit()
            self._gpu, self._nvml = nvml.nvmlDeviceGetHandleByUUID(self.uuid), nvml
        told = _Told(self._nvml, self._gpu)
        watts, limit = told("power_w", "PowerUsage"), told("power_limit_w", "EnforcedPowerLimit")
        state = told("performance_state", "PerformanceState")
        usage = told("utilization_percent", "UtilizationRates")
        mask = told(
            "throttle_reasons", "CurrentClocksEventReasons", formerly="CurrentClocksThrottleReasons"
        )
        listed = told("other_processes", "ComputeRunningProcesses")
        others, unseen = None, None
        if listed is not None:
            others, unseen = self.others({int(process.pid) for process in listed})
        return Conditions(
            clock_mhz=_float(told("clock_mhz", "ClockInfo", _SM_CLOCK)),
            memory_clock_mhz=_float(told("memory_clock_mhz", "ClockInfo", _MEMORY_CLOCK)),
            performance_state=None if state in (None, _UNKNOWN_STATE) else f"P{state}",
            throttle_reasons=None if mask is None else throttle_reasons(int(mask)),
            power_w=None if watts is None else watts / 1e3,
            power_limit_w=None if limit is None else limit / 1e3,
            temperature_c=_float(told("temperature_c", "Temperature", _GPU_SENSOR)),
            utilization_percent=None if usage is None else float(usage.gpu),
            other_processes=others,
            reason="; ".join(filter(None, [told.gaps(), unseen])) or None,
        )


class _Told:
    """Asks for one thing after another, and keeps what was refused."""

    def __init__(self, nvml: Nvml, gpu: Any) -> None:
        self._nvml, self._gpu = nvml, gpu
        self._refused: dict[str, list[str]] = {}

    def __call__(
        self, name: str, function: str, *arguments: int, formerly: str | None = None
    ) -> Any:
        """Return what `nvmlDeviceGet<function>` says, None where it says that it does not.

        Older drivers have the same under the name `formerly`.
        """
        try:
            return getattr(self._nvml, f"nvmlDeviceGet{function}")(self._gpu, *arguments)
        except self._nvml.NVMLError as error:
            code = int(error.value)
            if code not in _UNTOLD:
                raise
            if code == _FUNCTION_NOT_FOUND and formerly is not None:
                return self(name, formerly, *arguments)
            self._refused.setdefault(str(error), []).append(name)
            return None

    def gaps(self) -> str:
        """Return what was not told, by the driver's words for why."""
        return "; ".join(f"{', '.join(names)}: {why}" for why, names in self._refused.items())


def _within(limit_s: float, work: Callable[[], T]) -> T:
    """Do `work` in a thread that nobody waits for longer.

    Raises:
        TimeoutError: it is not done by then. What `work` raises passes through.
    """
    answers: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put((work(), None))
        except Exception as error:  # noqa: BLE001  (raised again by whoever waits)
            answers.put((None, error))

    threading.Thread(target=answer, name="nvml", daemon=True).start()
    try:
        found, error = answers.get(timeout=limit_s)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return found  # type: ignore[return-value]  # there is one where there is no error


def _float(value: Any) -> float | None:
    return None if value is None else float(value)
