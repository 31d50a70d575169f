"""Which devices a run works on: those that the user named, or the first that is right.

No torch and no device context: accelerators are only asked what there is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

from atrex_core.errors import AtrexError, Unavailable, UnknownName, UsageError
from atrex_core.interfaces import Accelerator, Backend
from atrex_core.model import Device
from atrex_core.plugins import PluginHost
from atrex_core.plugins.blame import blaming
from atrex_core.printable import one_line
from atrex_core.suggest import did_you_mean

log = logging.getLogger(__name__)

T = TypeVar("T")


def choose_devices(
    host: PluginHost, backend: Backend, selection: str | None
) -> tuple[Accelerator, tuple[Device, ...]]:
    """Return the devices to run on, all of one kind and each of them once.

    Args:
        host: Where accelerators are looked up.
        backend: What is to run on them.
        selection: Ids, accelerators' names, and globs over the ids of devices that are present
            and that the backend runs on, with commas between. None: see `choose_device`.

    Raises:
        UnknownName, Unavailable, PluginError: see `choose_device`; or nothing matches a glob.
        UsageError: the devices are not alike.
    """
    chosen: dict[tuple[str, str], Device] = {}
    accelerators = []
    for word in [None] if selection is None else map(str.strip, selection.split(",")):
        found = _matching(host, backend, word) if word is not None and _is_glob(word) else ()
        for accelerator, device in found or [choose_device(host, backend, word)]:
            accelerators.append(accelerator)
            chosen.setdefault((accelerator.name, device.id), device)
    first, *others = chosen.values()
    for other in others:
        _check_alike(first, other)
    return accelerators[0], (first, *others)


def choose_device(
    host: PluginHost, backend: Backend, name: str | None
) -> tuple[Accelerator, Device]:
    """Return the device to run on: the one asked for, else the first real, else a virtual one.

    Raises:
        UnknownName: no accelerator knows the name.
        Unavailable: it is not here, or this backend cannot use it.
        PluginError: an accelerator that may have it is broken.
    """
    if name is not None:
        accelerator, device = find_device(host, name)
        _check_supported(backend, accelerator, device)
        return accelerator, device
    usable = [host.accelerators[k] for k in backend.accelerators if k in host.accelerators]
    faults: dict[str, AtrexError] = {}
    for accelerator in usable:
        for device in _asked(devices_of, host, accelerator, faults) or ():
            return accelerator, device
    for arch in backend.virtual_targets:
        return find_device(host, f"virtual:{arch}")
    if faults:
        raise next(iter(faults.values()))
    reasons = [absence_of(host, accelerator) for accelerator in usable]
    raise Unavailable(
        f"backend {backend.name!r} has no device here: {'; '.join(reasons) or 'no accelerator'}",
        hint="`atrex-eval doctor` shows what works on this machine",
    )


def find_device(host: PluginHost, device_id: str) -> tuple[Accelerator, Device]:
    """Return the device that any accelerator knows as `device_id`.

    The accelerator that the id begins with is asked first; one that breaks is passed over.

    Raises:
        Unavailable: the accelerator exists, the device does not.
        UnknownName: no accelerator knows such a name.
        UsageError: it is what selects several devices.
        PluginError: nor does any, but one that might have is broken.
    """
    kind = device_id.partition(":")[0]
    faults: dict[str, AtrexError] = {}

    def named(host: PluginHost, accelerator: Accelerator) -> Device | None:
        return device_of(host, accelerator, device_id)

    for accelerator in sorted(host.accelerators, key=lambda a: a.name != kind):
        device = _asked(named, host, accelerator, faults)
        if device is not None:
            return accelerator, device
    if "," in device_id or _is_glob(device_id):
        raise UsageError(
            f"{device_id!r} may stand for several devices, and here only one can be used",
            hint="name it with --device; see `atrex-eval list devices`",
        )
    known = {a.name: _asked(devices_of, host, a, faults) or () for a in host.accelerators}
    if kind in known and kind not in faults:
        present = ", ".join(device.id for device in known[kind])
        why = f"there is only {present}" if present else absence_of(host, host.accelerators[kind])
        raise Unavailable(
            f"device {device_id!r} is not available here: {why}",
            hint="see `atrex-eval list devices`",
        )
    if faults:
        raise next(iter(faults.values()))
    ids = [device.id for devices in known.values() for device in devices]
    raise UnknownName(f"no device is named {device_id!r}", hint=did_you_mean(device_id, ids))


def devices_of(host: PluginHost, accelerator: Accelerator) -> Sequence[Device]:
    """Return the devices that an accelerator says are present.

    Raises:
        PluginError: it cannot say.
    """
    with blaming(host.accelerators, accelerator.name):
        return [_a_device(device) for device in accelerator.devices()]


def device_of(host: PluginHost, accelerator: Accelerator, device_id: str) -> Device | None:
    """Return what an accelerator knows as `device_id`.

    Raises:
        PluginError: it cannot say.
    """
    with blaming(host.accelerators, accelerator.name):
        device = accelerator.device(device_id)
        return None if device is None else _a_device(device)


def absence_of(host: PluginHost, accelerator: Accelerator) -> str:
    """Return why an accelerator has no device here.

    Raises:
        PluginError: it cannot say.
    """
    with blaming(host.accelerators, accelerator.name):
        return str(accelerator.absence())


def _a_device(device: object) -> Device:
    if not isinstance(device, Device):
        raise TypeError(f"{type(device).__name__!r} is no Device")
    return device


def _asked(
    question: Callable[[PluginHost, Accelerator], T],
    host: PluginHost,
    accelerator: Accelerator,
    faults: dict[str, AtrexError],
) -> T | None:
    """Ask an accelerator; where it breaks, note the fault and go on without an answer."""
    try:
        return question(host, accelerator)
    except AtrexError as error:
        if accelerator.name not in faults:
            log.warning("%s", one_line(str(error)))
            faults[accelerator.name] = error
        return None


def _check_supported(backend: Backend, accelerator: Accelerator, device: Device) -> None:
    if device.virtual:
        if device.arch in backend.virtual_targets:
            return
        offers = ", ".join(f"virtual:{arch}" for arch in backend.virtual_targets) or "none"
        raise Unavailable(
            f"backend {backend.name!r} cannot stand in for {device.arch!r}",
            hint=f"virtual devices it offers: {offers}",
        )
    if accelerator.name not in backend.accelerators:
        raise Unavailable(
            f"backend {backend.name!r} does not run on {device.id!r}",
            hint=f"it runs on: {', '.join(backend.accelerators)}",
        )


def _is_glob(word: str) -> bool:
    return any(character in word for character in "*?[")


def _matching(
    host: PluginHost, backend: Backend, glob: str
) -> Sequence[tuple[Accelerator, Device]]:
    """Return the devices present that a glob selects, of those that the backend runs on.

    Raises:
        Unavailable: there is none.
        PluginError: an accelerator that may have one is broken.
    """
    usable = [host.accelerators[k] for k in backend.accelerators if k in host.accelerators]
    faults: dict[str, AtrexError] = {}
    present = [(a, d) for a in usable for d in _asked(devices_of, host, a, faults) or ()]
    found = [(a, d) for a, d in present if fnmatchcase(d.id, glob) or d.id == glob]
    if found:
        return found
    if faults:
        raise next(iter(faults.values()))
    ids = ", ".join(device.id for _, device in present)
    absent = "; ".join(absence_of(host, accelerator) for accelerator in usable)
    raise Unavailable(
        f"no device that backend {backend.name!r} runs on matches {glob!r} here: "
        + (f"there is only {ids}" if present else absent or "no accelerator"),
        hint="see `atrex-eval list devices`; a virtual device is named in full",
    )


def _check_alike(one: Device, other: Device) -> None:
    """Refuse to add up what unlike devices measure.

    A part of a device, as a partition is, goes by the whole one's name and has fewer units.
    """
    for name in ("accelerator", "name", "arch", "virtual", "compute_units"):
        ours, theirs = getattr(one, name), getattr(other, name)
        if ours != theirs:
            what = name.replace("_", " ")
            raise UsageError(
                f"devices {one.id!r} and {other.id!r} are not alike: "
                f"{what} {ours!r} against {theirs!r}",
                hint="run each by itself with a --journal, then set the results side by side",
            )
