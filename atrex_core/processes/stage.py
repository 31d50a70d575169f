"""One shared page that says what a worker is doing, readable after it has died."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from attrs import define, field

from atrex_core.interfaces import Stage
from atrex_core.processes.gate import GateWords

_STAGES = tuple(Stage)


@define(eq=False)
class StageCell:
    """The page: the stage in its first byte, and the words of a gate behind it.

    A hostile candidate can write it too, so whoever reads it asks whether it can be.

    The size is sealed, because a mapping that somebody has cut short kills whoever looks at it.
    """

    fd: int
    _memory: mmap.mmap
    gate: GateWords = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.gate = GateWords(self._memory)

    @classmethod
    def create(cls) -> Self:
        """Make a new cell, at `Stage.STARTUP`."""
        fd = os.memfd_create("stage", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, mmap.PAGESIZE)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        return cls(fd, mmap.mmap(fd, mmap.PAGESIZE))

    @classmethod
    def open(cls, fd: int) -> Self:
        """Map a cell received from the referee."""
        return cls(fd, mmap.mmap(fd, mmap.PAGESIZE))

    @property
    def stage(self) -> Stage:
        """What the worker was last doing."""
        value = self._memory[0]
        return _STAGES[value] if value < len(_STAGES) else Stage.STARTUP

    @contextmanager
    def enter(self, stage: Stage) -> Iterator[None]:
        """Mark `stage` for the duration of a block.

        An exception leaves the mark in place until the surrounding block ends, so that the
        reply names the stage that failed.
        """
        before = self._memory[0]
        self._memory[0] = _STAGES.index(stage)
        yield
        self._memory[0] = before

    def set(self, stage: Stage) -> None:
        """Mark `stage` until further notice."""
        self._memory[0] = _STAGES.index(stage)

    def close(self) -> None:
        """Close; the page is unmapped when nobody looks at it any more."""
        os.close(self.fd)
