"""Published peaks of Intel GPUs. Data only: nothing here touches a device."""

from __future__ import annotations

from collections.abc import Iterator

from atrex_core import HardwareProfile, hookimpl
from atrex_profile_intel.devices import PROFILES


@hookimpl
def atrex_hardware_profiles() -> Iterator[HardwareProfile]:
    """Yield every profile of the table."""
    yield from PROFILES
