"""How long the copies of outputs take that a held queue makes beside its calls."""

from __future__ import annotations

import mmap
import time
from collections.abc import Mapping, Sequence
from statistics import median

from attrs import define, field

from atrex_core.errors import HarnessError, Unavailable
from atrex_core.interfaces import DeviceContext, QueueGate, Tensor
from atrex_core.processes.gate import GateWords, wait_for

_ROUNDS = 3
_LIMIT_S = 10.0


@define(eq=False)
class CopyClock:
    """Times copies as a worker's calls are timed, in this process: by the slope of held rounds."""

    context: DeviceContext
    _words: GateWords = field(factory=lambda: GateWords(mmap.mmap(-1, mmap.PAGESIZE)))
    _gate: QueueGate | None = field(init=False)
    """None where work is done when it is asked for."""
    _epoch: int = 0

    def __attrs_post_init__(self) -> None:
        try:
            self._gate = self.context.open_gate(*self._words.addresses)
        except Unavailable:
            self._gate = None

    def copy_us(self, sets: Sequence[Mapping[str, Tensor]]) -> float:
        """Return the time of copying one set of tensors, in microseconds.

        Set by set, each from the one before, whose copy has just been written: as a worker copies
        what its kernel has just written.
        """
        if len(sets) == 1:  # from itself, nothing would be copied
            sets = [*sets, {name: tensor.clone() for name, tensor in sets[0].items()}]
        many, few = len(sets), len(sets) // 2
        slopes = [
            (self._round_us(sets, many) - self._round_us(sets, few)) / (many - few)
            for _ in range(_ROUNDS)
        ]
        return max(0.0, median(slopes))

    def _round_us(self, sets: Sequence[Mapping[str, Tensor]], count: int) -> float:
        self.context.overrun_caches()
        self.context.synchronize()
        if self._gate is None:
            started = time.perf_counter()
            _copy(sets, count)
            self.context.synchronize()
            return (time.perf_counter() - started) * 1e6
        self._epoch += 1
        self._gate.hold(self._epoch)
        try:
            _copy(sets, count)
            self._gate.mark(self._epoch)
        finally:
            started = time.perf_counter()
            self._words.release(self._epoch)
        done = wait_for(
            lambda: self._words.is_finished(self._epoch), limit_s=_LIMIT_S, spin_s=_LIMIT_S
        )
        elapsed_us = (time.perf_counter() - started) * 1e6
        if not done:
            raise HarnessError(f"copying {count} outputs took longer than {_LIMIT_S:g} s")
        return elapsed_us


def _copy(sets: Sequence[Mapping[str, Tensor]], count: int) -> None:
    for index in range(count):
        source = sets[index - 1]
        for name, tensor in sets[index].items():
            tensor.copy_(source[name])
