"""A queue that another process holds: the stream waits for a word of host memory, and writes one.

Unlike a kernel that fills the device while it waits, it leaves room, so the process that holds the
queue can draw inputs on the same device meanwhile.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Protocol

from atrex_core import QueueGate


class GateDriver(Protocol):
    """A driver that can make a stream wait. Each method raises a `DriverError` of its own."""

    def register_host(self, address: int, nbytes: int) -> int:
        """Pin host memory that is already mapped; return its address on the device."""
        ...

    def wait_for_word(self, device_address: int, value: int, stream: int) -> None:
        """Let `stream` wait until the word, which counts up, has reached `value`."""
        ...

    def write_word(self, device_address: int, value: int, stream: int) -> None:
        """Let `stream` write the word when all before it is done, and visible to the host."""
        ...


class StreamGate(QueueGate):
    """Two words of one page, which stays pinned while the process lives."""

    def __init__(
        self,
        driver: GateDriver,
        *,
        released_address: int,
        finished_address: int,
        current_stream: Callable[[], int],
        prepare: Callable[[], None],
    ) -> None:
        """Pin the page.

        Args:
            driver: The device's.
            released_address: The word that the stream waits for.
            finished_address: The word that it writes.
            current_stream: Which one that is.
            prepare: Done before each wait is enqueued.

        Raises:
            DriverError: the driver does not let devices see this memory.
        """
        page = released_address - released_address % mmap.PAGESIZE
        on_device = driver.register_host(page, mmap.PAGESIZE)
        self._driver = driver
        self._released = on_device + released_address - page
        self._finished = on_device + finished_address - page
        self._current_stream = current_stream
        self._prepare = prepare

    def hold(self, epoch: int) -> None:
        """Let the current stream wait for the first word."""
        self._prepare()
        self._driver.wait_for_word(self._released, epoch, self._current_stream())

    def mark(self, epoch: int) -> None:
        """Let the current stream write the second word."""
        self._driver.write_word(self._finished, epoch, self._current_stream())
