"""Activity records: when each kernel, copy and fill ran, by the device's own clock.

From CUPTI through NVIDIA's `cupti-python`. A process has one subscriber: a candidate that profiles
itself while it is timed takes our place, and then there are no records and a reason.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from atrex_accelerator_common.spans import Record

from atrex_core import Unavailable

_BUFFER_BYTES: Final = 8 * 2**20
_KINDS: Final = ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET")
_FORCED = 1


class Recorder:
    """Collects records while it runs."""

    def __init__(self, cupti: Any) -> None:
        """Register with the driver.

        Raises:
            Unavailable: CUPTI refuses: no permission, or somebody else is registered.
        """
        self._cupti = cupti
        self._records: list[Record] = []
        self._kinds = [getattr(cupti.ActivityKind, kind) for kind in _KINDS]
        self._now = cupti.get_timestamp  # kept, since a candidate may replace it later
        self._guarded(cupti.activity_register_callbacks, _request, self._complete)

    @classmethod
    def load(cls) -> Recorder:
        """Import CUPTI's bindings and register.

        Raises:
            Unavailable: they are not installed, or refuse.
        """
        try:
            cupti = importlib.import_module("cupti.cupti")
        except (ImportError, OSError, RuntimeError) as error:
            raise Unavailable(
                f"activity records need cupti-python: {error}",
                hint="pip install 'atrex-eval[cuda]'",
            ) from error
        return cls(cupti)

    def now_ns(self) -> int:
        """Return the time on the records' clock."""
        return int(self._now())

    def start(self) -> None:
        """Collect from now on.

        Raises:
            Unavailable: CUPTI refuses.
        """
        self._records.clear()
        try:
            for kind in self._kinds:
                self._guarded(self._cupti.activity_enable, kind)
        except Unavailable:  # nothing may be collected while another method measures
            with suppress(Unavailable):
                self.stop()
            raise

    def drain(self) -> Sequence[Record]:
        """Return what was collected since the last call. The device must be idle."""
        self._guarded(self._cupti.activity_flush_all, _FORCED)
        found, self._records = self._records, []
        return found

    def stop(self) -> None:
        """Collect no more."""
        for kind in self._kinds:
            self._guarded(self._cupti.activity_disable, kind)

    def _complete(self, activities: Sequence[Any]) -> None:
        for activity in activities:
            name = str(getattr(activity, "name", "") or "")
            self._records.append(Record(int(activity.start), int(activity.end), name))

    @staticmethod
    def _guarded(function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except Exception as error:  # its own class differs between versions
            raise Unavailable(f"CUPTI refuses: {error}") from error


def _request() -> tuple[int, int]:
    """Return how large a buffer should be, and how many records it may hold: any number."""
    return _BUFFER_BYTES, 0
