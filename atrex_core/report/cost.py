"""What a run cost, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from atrex_core import codec
from atrex_core.model import DeviceCost, RunCost
from atrex_core.printable import one_line

_MOST_DEVICES = 8
_MOST_STAGES = 4
_LEAST_OTHER = 0.01
"""Of the seconds in which evaluations were at work."""


def document(cost: RunCost) -> Mapping[str, Any]:
    """Return plain JSON values."""
    plain = codec.unstructure(cost)
    for entry, device in zip(plain["devices"], cost.devices, strict=True):
        entry["utilisation"] = cost.utilisation(device)
    return dict(plain)


def lines(cost: RunCost) -> Iterator[str]:
    """Yield two lines: how long it took and which device was how busy, and with what.

    None where nothing was evaluated.
    """
    if not cost.evaluations:
        return
    shown = [_busy(cost, device) for device in cost.devices[:_MOST_DEVICES]]
    if len(cost.devices) > len(shown):
        shown.append(f"{len(cost.devices) - len(shown)} more")
    yield one_line(f"{_seconds(cost.wall_s)}: {', '.join(shown)}")
    yield one_line(f"spent on: {', '.join(_parts(cost))}")


def _busy(cost: RunCost, device: DeviceCost) -> str:
    return f"{device.device} {cost.utilisation(device):.0%} busy"


def _parts(cost: RunCost) -> Iterator[str]:
    """Yield the stages that took most, then whatever else did."""
    ordered = sorted(cost.stage_seconds.items(), key=lambda item: -item[1])[:_MOST_STAGES]
    for name, seconds in ordered:
        yield f"{name} {_seconds(seconds)}"
    busy_s = sum(device.busy_s for device in cost.devices)
    other_s = busy_s - sum(seconds for _, seconds in ordered)
    if not ordered or other_s > _LEAST_OTHER * busy_s:
        yield f"{'other' if ordered else 'evaluations'} {_seconds(other_s)}"
    if startup_s := sum(device.startup_s for device in cost.devices):
        yield f"start-up {_seconds(startup_s)}"


def _seconds(seconds: float) -> str:
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.2g} s"
