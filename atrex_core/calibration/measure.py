"""Take all figures of one device, one after the other. Runs where the device is open."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from attrs import define, field, frozen

from atrex_core.calibration import products, streams
from atrex_core.calibration.clock import REPETITIONS, Clock, Times, Unmeasured
from atrex_core.interfaces import DeviceContext
from atrex_core.model import ArithmeticPath, Ceiling, HardwareProfile
from atrex_core.model.calibration import (
    FloorMethod,
    FloorReading,
    Measured,
    ProductReading,
    Regime,
    StreamReading,
)
from atrex_core.printable import one_line

_MOST_BUDGET_S: Final = 0.5
_LEAST_BUDGET_S: Final = 0.02
_SAMPLING_SHARE: Final = 0.6
"""Of the time given; the rest goes into drawing, warming up and calls that run over."""
_ROUNDS_WARM: Final = 2
_MOST_REASON: Final = 300

Torch = Any
T = TypeVar("T")
Announce = Callable[[str, int, int], None]
"""Told what is measured next, how many figures are done, and how many there will be."""


@frozen(kw_only=True)
class Readings:
    """All figures."""

    streams: tuple[StreamReading, ...]
    products: tuple[ProductReading, ...]
    floors: tuple[FloorReading, ...]


def take(
    context: DeviceContext,
    profile: HardwareProfile | None,
    *,
    torch: Torch,
    cache_bytes: int | None,
    is_synchronous: bool,
    minutes: float,
    announce: Announce,
    now: Callable[[], float] = time.perf_counter,
) -> Readings:
    """Measure for at most about `minutes`. What cannot be measured is a reason in its place.

    Args:
        profile: Names the paths to measure; a profile that is itself measured gives its figures.
        cache_bytes: Size of the last-level cache, where it is known.
        is_synchronous: Whether the host is the device.
        announce: Told of each figure before it is taken.
        now: The host's clock, in seconds.
    """
    is_measured = profile is not None and profile.ceiling is Ceiling.MEASURED
    sizes = () if is_measured else products.edges(is_synchronous=is_synchronous)
    paths = tuple(profile.peak_flops) if profile else ()
    figures = len(streams.ORDER) * len(Regime) + len(FloorMethod) + len(paths) * max(1, len(sizes))
    rounds = len(streams.ORDER) * (_ROUNDS_WARM + 1) + len(FloorMethod) + len(paths) * len(sizes)
    budget_s = _SAMPLING_SHARE * 60 * minutes / (rounds * REPETITIONS)
    survey = _Survey(
        torch=torch,
        clock=Clock(
            context=context,
            budget_s=min(_MOST_BUDGET_S, max(_LEAST_BUDGET_S, budget_s)),
            ends_s=now() + 60 * minutes,
            now=now,
        ),
        profile=profile,
        cache_bytes=cache_bytes,
        is_synchronous=is_synchronous,
        announce=announce,
        total=figures,
    )
    memory = survey.streams(Regime.MEMORY)  # first: without it, nothing else is of use
    floors = survey.floors()
    cached = survey.streams(Regime.CACHED)
    found = survey.given() if is_measured else survey.products(paths, sizes)
    return Readings(streams=(*memory, *cached), products=found, floors=floors)


@define(eq=False)
class _Survey:
    torch: Torch
    clock: Clock
    profile: HardwareProfile | None
    cache_bytes: int | None
    is_synchronous: bool
    announce: Announce
    total: int
    done: int = field(default=0, init=False)

    def floors(self) -> tuple[FloorReading, ...]:
        device = self.clock.context.torch_device
        item = self.torch.zeros(1, dtype=self.torch.float32, device=device)

        def smallest() -> object:
            return item.add_(1.0)

        methods: dict[FloorMethod, Callable[[], Times]] = {
            FloorMethod.DEVICE: lambda: self.clock.times(smallest),
            FloorMethod.HELD: lambda: self.clock.held_times(smallest),
            FloorMethod.CALL: lambda: self.clock.call_times(smallest),
        }
        readings = []
        for method, times in methods.items():
            self._next(f"launch floor, {method}")
            found, why = self._attempt(partial(_time, times))
            readings.append(FloorReading(method=method, measured=found, reason=why))
        return tuple(readings)

    def streams(self, regime: Regime) -> tuple[StreamReading, ...]:
        arena = streams.Arena(
            torch=self.torch,
            clock=self.clock,
            regime=regime,
            cache_bytes=self.cache_bytes,
            is_synchronous=self.is_synchronous,
        )
        readings = []
        for load in streams.ORDER:
            self._next(f"{load}, {regime}")
            found, why = self._attempt(partial(arena.measure, load))
            moved, measured = found or (None, None)
            readings.append(
                StreamReading(
                    load=load, regime=regime, moved_bytes=moved, measured=measured, reason=why
                )
            )
        del arena
        self._tidy()
        return tuple(readings)

    def products(
        self, paths: tuple[ArithmeticPath, ...], sizes: tuple[int, ...]
    ) -> tuple[ProductReading, ...]:
        readings = []
        for path in paths:
            refusal = products.why_not(path, paths)
            for edge in sizes:
                self._next(f"{path}, {edge}")
                found: Measured | None = None
                why = refusal
                if refusal is None:
                    take = partial(products.measure, self.torch, self.clock, path, edge)
                    found, why = self._attempt(take)
                readings.append(ProductReading(path=path, edge=edge, measured=found, reason=why))
                self._tidy()
        return tuple(readings)

    def given(self) -> tuple[ProductReading, ...]:
        """Return the peaks of a profile that was measured on this machine: nothing is new."""
        assert self.profile is not None, "only a profile gives peaks"
        readings = []
        for path, figure in self.profile.peak_flops.items():
            self._next(f"{path}, from the profile")
            measured = Measured(value=figure.value, method=figure.source)
            readings.append(ProductReading(path=path, measured=measured))
        return tuple(readings)

    def _next(self, what: str) -> None:
        self.announce(what, self.done, self.total)
        self.done += 1

    def _attempt(self, take: Callable[[], T]) -> tuple[T | None, str | None]:
        """Return what `take` returns, or why it cannot."""
        try:
            self.clock.check_time()
            return take(), None
        except Unmeasured as refusal:
            return None, one_line(str(refusal), _MOST_REASON)
        # Torch says in all of these ways that there is no room, no kernel, or no such type.
        except (RuntimeError, MemoryError, AttributeError, TypeError, ValueError) as error:
            return None, one_line(f"{type(error).__name__}: {error}", _MOST_REASON)

    def _tidy(self) -> None:
        """Let go of tensors that only a cycle still holds, so that the next ones find room."""
        gc.collect()


def _time(times: Callable[[], Times]) -> Measured:
    return times().as_time()
