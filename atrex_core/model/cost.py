"""What a run cost, and where."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen


@frozen(kw_only=True)
class DeviceCost:
    """One device's part in a run."""

    device: str
    """Its id."""
    startup_s: float = 0.0
    """Wall seconds that its referees took to start; 0 where one was left from an earlier run."""
    startup_seconds: Mapping[str, float] = field(factory=dict)
    """The same as the referees tell it, by what it was spent on: parts may go on side by side."""
    busy_s: float = 0.0
    """Wall seconds in which an evaluation was at work on it."""
    evaluations: int = 0
    """Those that were lost with their referee included."""


@frozen(kw_only=True)
class RunCost:
    """What one run cost. What an earlier run had left in the journal cost nothing."""

    wall_s: float = 0.0
    devices: tuple[DeviceCost, ...] = ()
    stage_seconds: Mapping[str, float] = field(factory=dict)
    """Of all evaluations together, by what they were spent on."""

    @property
    def evaluations(self) -> int:
        """How many were made, on all devices."""
        return sum(device.evaluations for device in self.devices)

    def utilisation(self, device: DeviceCost) -> float:
        """Return the share of the run in which an evaluation was at work on `device`."""
        return device.busy_s / self.wall_s if self.wall_s > 0 else 0.0
