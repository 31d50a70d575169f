"""Which profile counts for a device, and whether one that was asked for can be used."""

from __future__ import annotations

import logging
from contextlib import suppress

from atrex_core.errors import PluginError
from atrex_core.interfaces import CalibratedProfile
from atrex_core.model import Device, HardwareProfile
from atrex_core.plugins import PluginHost
from atrex_core.printable import one_line
from atrex_core.profile_files import is_path, twice

log = logging.getLogger(__name__)


def check_profile(host: PluginHost, device: Device, name: str | None) -> None:
    """Look up the profile that was asked for; warn where its peaks look like sparse ones.

    Raises:
        UnknownName: no profile has that name.
        UsageError: it is a file that cannot be used.
    """
    if name is None:
        return
    asked = host.profile_for(device, name)
    if not is_path(name) or not isinstance(asked, HardwareProfile):
        return
    with suppress(PluginError):  # two profiles describe the device: a reason to choose a third
        published = host.profile_for(device)
        if isinstance(published, HardwareProfile) and (paths := twice(asked, published)):
            log.warning(
                "profile %r has twice the peak of %r for %s: peaks are dense, without sparsity",
                *(one_line(asked.name), published.name, ", ".join(paths)),
            )


def resolved_profile(
    host: PluginHost, device: Device, name: str | None = None
) -> HardwareProfile | None:
    """Return the profile that counts for `device`, measured now where that is what it takes.

    None for a virtual device, and where no profile describes it.

    Raises:
        AtrexError: as for `PluginHost.profile_for`, or it cannot be measured.
    """
    if device.virtual:
        return None
    profile = host.profile_for(device, name)
    return profile.measure(device) if isinstance(profile, CalibratedProfile) else profile
