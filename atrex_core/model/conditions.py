"""The state of a device while something was timed on it."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen


class ThrottleReason(StrEnum):
    """Why a device's clock is below the highest it has."""

    IDLE = "idle"
    """There is nothing to do: no slowdown."""
    CLOCK_SETTING = "clock_setting"
    """Somebody has asked for this clock."""
    SYNCHRONISED = "synchronised"
    """It keeps to the clock of another device."""
    POWER_CAP = "power_cap"
    POWER_BRAKE = "power_brake"
    """The supply, not the device, asked for it."""
    THERMAL = "thermal"
    HARDWARE_THERMAL = "hardware_thermal"
    HARDWARE = "hardware"
    """The device protects itself, from heat or from current."""
    OTHER = "other"
    """One that its driver names and we do not know."""

    @property
    def is_slowdown(self) -> bool:
        """Whether power, heat or hardware keeps the device from its clock."""
        return self in _SLOWDOWNS


_SLOWDOWNS = frozenset(
    {
        ThrottleReason.POWER_CAP,
        ThrottleReason.POWER_BRAKE,
        ThrottleReason.THERMAL,
        ThrottleReason.HARDWARE_THERMAL,
        ThrottleReason.HARDWARE,
    }
)


@frozen(kw_only=True)
class Conditions:
    """What a driver or kernel says of a device at one moment. None is not told, never a guess."""

    clock_mhz: float | None = None
    """Of the cores that compute."""
    memory_clock_mhz: float | None = None
    performance_state: str | None = None
    """In the driver's own words."""
    throttle_reasons: tuple[ThrottleReason, ...] | None = None
    """Empty where the device runs as fast as it can."""
    power_w: float | None = None
    """Averaged as the driver does it, often over a second."""
    power_limit_w: float | None = None
    temperature_c: float | None = None
    utilization_percent: float | None = None
    """Of the driver's last sampling period, our own work included."""
    other_processes: int | None = None
    """That hold the device and are not the evaluator's own."""
    load_1min: float | None = None
    """Runnable threads of the whole machine, averaged over a minute, our own included."""
    threads: int | None = None
    """How many the libraries in a worker are told to use."""
    cpus: int | None = None
    """How many the affinity of a worker allows."""
    reason: str | None = None
    """Why something is None that devices of this kind can tell."""


@frozen(kw_only=True)
class TimingConditions:
    """Conditions right before and right after something was timed, read outside the worker."""

    before: Conditions
    after: Conditions
