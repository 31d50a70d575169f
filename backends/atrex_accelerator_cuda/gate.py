"""A queue that another process holds: the stream waits for a word of host memory, and writes one.

Unlike a kernel that waits, it takes no multiprocessor, so the process that holds the queue can
draw inputs on the same device meanwhile.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable

from atrex_accelerator_cuda.driver import Driver
from atrex_core import QueueGate


class StreamGate(QueueGate):
    """Two words of one page, which stays pinned while the process lives."""

    def __init__(
        self,
        driver: Driver,
        *,
        released_address: int,
        finished_address: int,
        current_stream: Callable[[], int],
    ) -> None:
        """Pin the page.

        Raises:
            CudaError: the driver does not let devices see this memory.
        """
        page = released_address - released_address % mmap.PAGESIZE
        on_device = driver.register_host(page, mmap.PAGESIZE)
        self._driver = driver
        self._released = on_device + released_address - page
        self._finished = on_device + finished_address - page
        self._current_stream = current_stream

    def hold(self, epoch: int) -> None:
        """Let the current stream wait for the first word."""
        self._driver.wait_for_word(self._released, epoch, self._current_stream())

    def mark(self, epoch: int) -> None:
        """Let the current stream write the second word."""
        self._driver.write_word(self._finished, epoch, self._current_stream())
