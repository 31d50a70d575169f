"""A hardware profile that is measured on the machine instead of published."""

from __future__ import annotations

from collections.abc import Callable

from attrs import field, frozen
from attrs.validators import min_len

from atrex_core.model import Device, DeviceMatch, HardwareProfile


@frozen(kw_only=True)
class CalibratedProfile:
    """Yielded by `atrex_hardware_profiles` beside published ones.

    `measure` runs in the referee, with torch imported, the first time a device needs it. It
    caches by the machine's identity and takes at most two seconds.
    """

    name: str = field(validator=min_len(1))
    match: DeviceMatch | None
    """None when `accelerator` alone decides."""
    accelerator: str
    measure: Callable[[Device], HardwareProfile]

    def accepts(self, device: Device) -> bool:
        """Return whether this profile describes `device`."""
        if device.virtual or device.accelerator != self.accelerator:
            return False
        return self.match is None or self.match.accepts(device)
