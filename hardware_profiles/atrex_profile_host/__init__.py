"""The roof of the machine itself, measured: a host CPU has no data sheet to trust.

Importing this package imports no torch; measuring does, in the process that asks.
"""

from __future__ import annotations

from collections.abc import Iterator

from atrex_core import CalibratedProfile, Device, HardwareProfile, hookimpl


@hookimpl
def atrex_hardware_profiles() -> Iterator[CalibratedProfile]:
    """Yield the profile that measures a device of the `cpu` accelerator on first use."""
    yield CalibratedProfile(name="host", match=None, accelerator="cpu", measure=_measure)


def _measure(device: Device) -> HardwareProfile:
    """Return the machine's measured envelope, from the cache where it holds one."""
    from atrex_profile_host.calibration import calibrate

    return calibrate(device)
