"""Device time of a call from activity records: first start to last end of one call.

One call to a window: the device is idle, the caches are overrun, the queue is held, the call is
enqueued, the queue is released, the device is idle again. Whatever ran in the window is the
call's, on whichever stream. A held queue leaves no gaps of the host's making; the device's own
gaps between kernels of a call count. A forward that waits for the device cannot be held: its
windows have the host's time between its kernels in them, since that is what the device sees.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from attrs import frozen

from atrex_accelerator_common.timing import Call, Queue, Turn
from atrex_core import DeviceSamples, is_settled

METHOD: Final = "activity records of held calls"
METHOD_FREE: Final = "activity records of calls that wait for the device"
NO_WORK: Final = "forward puts no work on the device"
LOST: Final = "records of some calls are missing"

_CHUNK: Final = 16
_LEAST_SAMPLES: Final = 48
"""Fewer agree by chance while a device's clocks still move."""
_MOST_SAMPLES: Final = 400


@frozen
class Record:
    """One activity of the device, in nanoseconds of the records' clock."""

    start_ns: int
    end_ns: int
    name: str
    """What ran; a copy or a fill may have none."""


class Source(Protocol):
    """Where records come from."""

    def now_ns(self) -> int:
        """Return the time on the records' clock."""
        ...

    def start(self) -> None:
        """Collect from now on."""
        ...

    def drain(self) -> Sequence[Record]:
        """Return what was collected since the last call."""
        ...

    def stop(self) -> None:
        """Collect no more."""
        ...


@frozen
class Window:
    """When one call may have run, on the records' clock."""

    start_ns: int
    end_ns: int


def measure(
    queue: Queue,
    source: Source,
    call: Call,
    *,
    hold_name: str,
    overrun: Callable[[], None],
    budget_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> DeviceSamples:
    """Return the spans of calls until their median is settled or `budget_s` is spent.

    Raises:
        Unavailable: the records cannot be had. What `call` raises passes through.
    """
    started_s = clock()
    turn = Turn(queue=queue, call=call)
    turn.warm_up(budget_s, clock)
    is_held = turn.can_be_held()
    samples: list[float] = []
    source.start()
    try:
        while len(samples) < _MOST_SAMPLES:
            windows = []
            for _ in range(_CHUNK):
                overrun()
                start_ns = source.now_ns()
                if is_held:
                    turn.run_held(1)
                else:
                    turn.run_free()
                windows.append(Window(start_ns, source.now_ns()))
                if clock() - started_s > budget_s:
                    break
            found = spans_us(windows, source.drain(), hold_name=hold_name if is_held else None)
            spans = [span for span in found if span is not None]
            if len(spans) < len(found):
                return DeviceSamples(method=METHOD, reason=LOST if spans else NO_WORK)
            samples += spans
            settled = len(samples) >= _LEAST_SAMPLES and is_settled(samples)
            if settled or clock() - started_s > budget_s:
                break
    finally:
        source.stop()
    return DeviceSamples(
        samples_us=tuple(samples),
        method=METHOD if is_held else METHOD_FREE,
        reason=None if is_held else "forward waits for the device: its own host time is included",
    )


def spans_us(
    windows: Sequence[Window], records: Sequence[Record], *, hold_name: str | None
) -> list[float | None]:
    """Return first start to last end in each window, None where there is nothing.

    The first record of a window that is called `hold_name` is the hold itself, where there was
    one. Later ones of that name are the candidate's, and count.
    """
    starts = [window.start_ns for window in windows]
    inside: list[list[Record]] = [[] for _ in windows]
    for record in sorted(records, key=lambda record: record.start_ns):
        middle = (record.start_ns + record.end_ns) // 2
        place = bisect_right(starts, middle) - 1
        if place >= 0 and middle <= windows[place].end_ns:
            inside[place].append(record)
    return [_span_us(found, hold_name) for found in inside]


def _span_us(records: list[Record], hold_name: str | None) -> float | None:
    own = next((i for i, record in enumerate(records) if record.name == hold_name), None)
    if own is not None:
        records = records[:own] + records[own + 1 :]
    if not records:
        return None
    first = min(record.start_ns for record in records)
    return (max(record.end_ns for record in records) - first) / 1e3
