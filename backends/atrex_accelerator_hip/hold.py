"""A stream that waits for a word of host memory, so that a queue fills up behind it.

Only this stream is held: work on one that does not follow from it may run before the release.
Times from records count that too; times from events do not, and the referee's clock disputes them.
"""

from __future__ import annotations

from threading import Lock, Timer
from typing import Final, Protocol

from atrex_accelerator_common.driver import HostWord

NAME: Final = "__amd_rocclr_streamOpsWait"
"""What records call the runtime's kernel that waits, where they tell of it: rocprofiler-sdk does,
roctracer does not (ROCm/clr, rocclr/device/rocm/rocblit.hpp and rocclr/platform/activity.cpp)."""


class WaitDriver(Protocol):
    """A driver that can make a stream wait. Each method raises an error of its own."""

    def host_word(self) -> HostWord:
        """Return a fresh word of host memory that kernels can read, set to 0."""
        ...

    def wait_for_word(self, device_address: int, value: int, stream: int) -> None:
        """Let `stream` wait until the word, which counts up, has reached `value`."""
        ...


class Hold:
    """One word, used again and again."""

    def __init__(self, driver: WaitDriver) -> None:
        """Make the word.

        Raises:
            HipError: there is no such memory.
        """
        self._driver = driver
        self._word = driver.host_word()
        self._lock = Lock()
        self._epoch = 0
        self._timer: Timer | None = None

    def start(self, stream: int, limit_s: float) -> None:
        """Let `stream` wait. It goes on at `release`, or after `limit_s` regardless.

        The limit is for calls that wait for the device themselves, and never come to `release`. A
        thread sees to it, so a call that waits and keeps the interpreter's lock hangs: whoever
        started this process ends it then.
        """
        self._epoch += 1
        self._driver.wait_for_word(self._word.device_address, self._epoch, stream)
        self._timer = Timer(limit_s, self._let_go, [self._epoch])
        self._timer.daemon = True
        self._timer.start()

    def release(self) -> None:
        """Let the stream go on."""
        self._let_go(self._epoch)
        if self._timer is not None:
            self._timer.cancel()

    def _let_go(self, epoch: int) -> None:
        with self._lock:  # a late timer must not count back
            if epoch > self._word.read():
                self._word.write(epoch)
