"""A shared page that says what a linter is trying, readable after it has died."""

from __future__ import annotations

import mmap
import os
import struct
from typing import Self

from attrs import define, frozen

from atrex_core.model.lint import Fate, Finding, Kind, Task

_COUNTERS = struct.Struct("=QQH")
_BEATS, _ATTEMPTS, _LENGTH = 0, 8, 16
_SEPARATOR = "\0"


@frozen
class Attempt:
    """One thing that is tried on the workload at hand."""

    kind: Kind
    name: str
    regime: str | None = None

    def finding(self, task: Task, fate: Fate, reason: str) -> Finding:
        """Return what is found where this got no answer."""
        return Finding(
            problem=task.problem,
            workload=task.workload,
            protocol=task.protocol,
            kind=self.kind,
            name=self.name,
            fate=fate,
            regime=self.regime,
            reason=reason,
        )


@define(eq=False)
class AttemptCell:
    """The page. The linter writes; its parent counts beats and attempts, and reads what is left."""

    fd: int
    _memory: mmap.mmap

    @classmethod
    def create(cls) -> Self:
        """Make a new cell, in which nothing was tried."""
        fd = os.memfd_create("attempt", os.MFD_CLOEXEC)
        os.ftruncate(fd, mmap.PAGESIZE)
        return cls.open(fd)

    @classmethod
    def open(cls, fd: int) -> Self:
        """Map an inherited cell."""
        return cls(fd, mmap.mmap(fd, mmap.PAGESIZE))

    def beat(self) -> None:
        """Give a sign of life."""
        self._count(_BEATS)

    def enter(self, attempt: Attempt) -> None:
        """Note what is tried from now on."""
        text = _SEPARATOR.join((attempt.kind, attempt.name, attempt.regime or ""))
        data = text.encode(errors="replace")[: mmap.PAGESIZE - _COUNTERS.size]
        self._memory[_COUNTERS.size : _COUNTERS.size + len(data)] = data
        self._memory[_LENGTH : _COUNTERS.size] = struct.pack("=H", len(data))
        self._count(_ATTEMPTS)

    def leave(self) -> None:
        """Note that nothing is tried."""
        self._memory[_LENGTH : _COUNTERS.size] = struct.pack("=H", 0)
        self._count(_ATTEMPTS)

    @property
    def counts(self) -> tuple[int, int]:
        """How many beats, and how many changes of what is tried, there were so far."""
        beats, attempts, _ = _COUNTERS.unpack_from(self._memory)
        return beats, attempts

    @property
    def attempt(self) -> Attempt | None:
        """What was last tried, None between tasks."""
        length = _COUNTERS.unpack_from(self._memory)[2]
        data = self._memory[_COUNTERS.size : _COUNTERS.size + length]
        kind, _, rest = data.decode(errors="replace").partition(_SEPARATOR)
        name, _, regime = rest.partition(_SEPARATOR)
        if kind not in list(Kind):
            return None
        return Attempt(Kind(kind), name, regime or None)

    def close(self) -> None:
        """Unmap and close."""
        self._memory.close()
        os.close(self.fd)

    def _count(self, offset: int) -> None:
        (before,) = struct.unpack_from("=Q", self._memory, offset)
        struct.pack_into("=Q", self._memory, offset, before + 1)
