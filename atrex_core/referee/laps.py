"""What a judgement's seconds were spent on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from attrs import define, field


class Lap(StrEnum):
    """Of a judgement. Their seconds do not overlap; what is in none of them is bookkeeping."""

    START = "start"
    """A process for the candidate, and importing it."""
    OPEN = "open"
    """Memory that both processes see, and the model."""
    WAIT = "wait"
    """Until what is compiled ahead, by processes without the device, is ready."""
    COMPILE = "compile"
    """The first call, in which kernels are loaded, or compiled; other architectures."""
    DRAW = "draw"
    """Inputs."""
    CALL = "call"
    """Calls whose answers are judged, with the inputs written before them."""
    JUDGE = "judge"
    """What the answer should be, and how far it is from that."""
    REHEARSE = "rehearse"
    """Calls before the timed ones."""
    HOLD = "hold"
    """Queues that the referee holds and clocks."""
    SAMPLE = "sample"
    """The device's times, as the candidate's process reads them."""
    WALL = "wall"
    """Call times."""
    EVIDENCE = "evidence"
    """Calls without the DSL's launches."""
    CLOSE = "close"


@define(eq=False)
class Laps:
    """A watch with one hand: each second goes to the innermost stage."""

    seconds: dict[str, float] = field(factory=dict)
    _stages: list[Lap] = field(factory=list, init=False)
    _since: float = field(factory=time.perf_counter, init=False)

    @contextmanager
    def within(self, stage: Lap) -> Iterator[None]:
        """Charge the block to `stage`, less what stages inside it take."""
        self._charge()
        self._stages.append(stage)
        try:
            yield
        finally:
            self._charge()
            self._stages.pop()

    def _charge(self) -> None:
        now = time.perf_counter()
        if self._stages:
            stage = self._stages[-1]
            self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now
