"""The state of one GPU at one moment, from AMD SMI through AMD's own package `amdsmi`.

It is only ever read. Functions, keys and units: "AMD SMI Python API reference" in the ROCm
documentation, and `amdsmi_interface.py` of 6.4 and 7.0. What a part does not tell is "N/A" there.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Collection, Mapping
from contextlib import redirect_stdout
from typing import Any, ClassVar, Final

from atrex_accelerator_common.sharing import count_others
from atrex_accelerator_common.watching import Told, Watch
from attrs import define, field

from atrex_accelerator_hip.kfd import DEVICE
from atrex_core import Conditions, ThrottleReason

Amdsmi = Any
"""The module `amdsmi`, or something that answers like it."""

_UNTOLD: Final = frozenset({1, 2, 3, 5, 10, 14, 20, 31, 40, 43, 52, 55})
"""Invalid argument, not supported, not implemented, no such symbol, no permission, a file, folder
or device that is not there, no data, odd data, a setting that is not available: this driver does
not tell this of this GPU. Anything else is a failure."""
_LEVEL: Final = "AMDSMI_DEV_PERF_LEVEL_"
_FIRST: Final = "throttle_reasons: counted from one reading to the next, and this is the first"

_ACCUMULATED = {
    "ppt_residency_acc": ThrottleReason.POWER_CAP,
    "socket_thm_residency_acc": ThrottleReason.THERMAL,
    "hbm_thm_residency_acc": ThrottleReason.THERMAL,
    "vr_thm_residency_acc": ThrottleReason.HARDWARE_THERMAL,
    "prochot_residency_acc": ThrottleReason.HARDWARE_THERMAL,
}
"""Counters that go up while an Instinct is kept from its clock."""
_GROUPS = (
    (0, 16, ThrottleReason.POWER_CAP),
    (16, 32, ThrottleReason.HARDWARE),
    (32, 38, ThrottleReason.THERMAL),
    (38, 48, ThrottleReason.HARDWARE_THERMAL),
    (48, 64, ThrottleReason.OTHER),
)
"""Bits of `indep_throttle_status`: power, current, sensors of the chip, then of regulators, coolant
and host (`SMU_THROTTLER_*` in Linux, drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h)."""


def throttle_reasons(status: int) -> tuple[ThrottleReason, ...]:
    """Return the driver's bits in words; `True` stands for bits that its library keeps back."""
    if isinstance(status, bool):
        return (ThrottleReason.OTHER,) if status else ()
    return tuple(why for low, high, why in _GROUPS if status >> low & (1 << high - low) - 1)


def load_amdsmi() -> Amdsmi:
    """Import AMD SMI's bindings, which print where they find no library.

    Raises:
        ImportError: they, or the library, are not installed.
    """
    try:
        with redirect_stdout(io.StringIO()):
            return importlib.import_module("amdsmi")
    except (KeyError, OSError) as error:  # a KeyError is how 7.0 says so
        raise ImportError(f"AMD SMI's library is not installed ({error})") from error


def count_company(listed: Collection[int]) -> tuple[int | None, str | None]:
    """Return how many processes that AMD SMI lists are not ours, or why it is unknown."""
    return count_others(listed, opened=DEVICE)


@define(eq=False)
class Reader(Watch):
    """Reads one GPU's conditions, until a first failure."""

    driver: ClassVar[str] = "the AMD driver"
    library: ClassVar[str] = "AMD SMI"
    wanted: ClassVar[str] = "amdsmi, in the version of the installed ROCm"
    extra: ClassVar[str] = "hip"

    bus_id: str
    """Its PCI address, as HIP prints it."""
    load: Callable[[], Amdsmi] = load_amdsmi
    others: Callable[[Collection[int]], tuple[int | None, str | None]] = count_company
    """From the pids that AMD SMI lists to how many are not ours, or why that is not known."""
    _smi: Amdsmi = field(default=None, init=False)
    _gpu: Any = field(default=None, init=False)
    _counted: Mapping[str, int] | None = field(default=None, init=False)

    def _attach(self) -> None:
        smi = self.load()
        smi.amdsmi_init()
        self._gpu, self._smi = smi.amdsmi_get_processor_handle_from_bdf(self.bus_id), smi

    def _read(self) -> Conditions:
        told, smi = Told(self._refusal), self._smi
        clocks, get = smi.AmdSmiClkType, self._get
        core = told("clock_mhz", get("clock_info", clocks.GFX))
        memory = told("memory_clock_mhz", get("clock_info", clocks.MEM))
        level = told("performance_state", get("gpu_perf_level"))
        power = told("power_w", get("power_info"))
        cap = told("power_limit_w", get("power_cap_info"))
        sensor = (smi.AmdSmiTemperatureType.JUNCTION, smi.AmdSmiTemperatureMetric.CURRENT)
        heat = told("temperature_c", get("temp_metric", *sensor))
        usage = told("utilization_percent", get("gpu_activity"))
        metrics = told("throttle_reasons", get("gpu_metrics_info"))
        listed = told("other_processes", get("gpu_process_list"))
        reasons, uncounted = (None, None) if metrics is None else self._throttling(metrics)
        others, unseen = None, None
        if listed is not None:
            others, unseen = self.others({int(process["pid"]) for process in listed})
        return Conditions(
            clock_mhz=_number(core, "clk", "cur_clk"),
            memory_clock_mhz=_number(memory, "clk", "cur_clk"),
            performance_state=None if level is None else str(level).removeprefix(_LEVEL),
            throttle_reasons=reasons,
            power_w=_number(power, "current_socket_power", "average_socket_power"),
            power_limit_w=_number(cap, "power_cap", scale=1e-6),
            temperature_c=None if heat is None else float(heat),
            utilization_percent=_number(usage, "gfx_activity"),
            other_processes=others,
            reason="; ".join(filter(None, [told.gaps(), uncounted, unseen])) or None,
        )

    def _throttling(
        self, metrics: Mapping[str, Any]
    ) -> tuple[tuple[ThrottleReason, ...] | None, str | None]:
        status = metrics.get("indep_throttle_status")
        if isinstance(status, int):
            return throttle_reasons(status), None
        counts = {name: metrics.get(name) for name in _ACCUMULATED}
        now = {name: count for name, count in counts.items() if isinstance(count, int)}
        before, self._counted = self._counted, now
        if not now:
            return None, "throttle_reasons: this GPU does not tell"
        if before is None:
            return None, _FIRST
        grown = [
            why for name, why in _ACCUMULATED.items() if now.get(name, 0) > before.get(name, 0)
        ]
        return tuple(dict.fromkeys(grown)), None

    def _get(self, function: str, *arguments: Any) -> Callable[[], Any]:
        return lambda: getattr(self._smi, f"amdsmi_get_{function}")(self._gpu, *arguments)

    def _refusal(self, error: Any) -> str | None:
        if isinstance(error, AttributeError):
            return "this amdsmi does not ask for it"
        is_its_own = isinstance(error, self._smi.AmdSmiLibraryException)
        if is_its_own and int(error.get_error_code()) in _UNTOLD:
            return str(error.get_error_info())
        return None


def _number(answer: Mapping[str, Any] | None, *keys: str, scale: float = 1.0) -> float | None:
    """Return the first of `keys` that the answer has a number for."""
    if answer is None:
        return None
    for key in keys:
        value = answer.get(key)
        if isinstance(value, (int, float)):
            return float(value) * scale
    return None
