"""Activity records: when each kernel, copy and fill ran, from torch's own profiler.

Documented: `torch.profiler.profile(activities=[ProfilerActivity.CUDA])` records what runs on the
device, on ROCm too ("HIP interfaces reuse the CUDA interfaces"), and `supported_activities()` says
whether this build can. Assumed: `profiler.kineto_results` and the methods of its events, which
torch's own stubs declare (`torch/_C/_autograd.pyi`); and that their times are nanoseconds since
1970, into which Kineto converts the driver's (pytorch/kineto, `RocprofActivityApi.cpp` and
`RoctracerActivityApi.cpp`).

Known to happen: no record at all, where the device was used before the profiler registered itself
(pytorch/kineto#1338). So it is started once before that, by `register`, and a recorder is proved on
a piece of work before it is believed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from atrex_accelerator_common.spans import Record

from atrex_core import Unavailable

_SUFFIX: Final = ".kd"
"""Of kernel descriptors, whose names some versions report instead of the kernels'."""
_PROOF_SLACK_NS: Final = 5_000
"""How far apart the host's clock and the converted one of the device may be.

Before each window the caches are overrun, which takes far longer: nothing gets into a window that
is not its own.
"""


def register(torch: Any) -> None:
    """Let torch's profiler find the device's queues when they are made. Call it before that."""
    with suppress(Unavailable):  # which the recorder says when it is wanted
        recorder = Recorder(torch)
        recorder.start()
        recorder.stop()


class Recorder:
    """Collects records while it runs, one session of torch's profiler after another."""

    def __init__(self, torch: Any) -> None:
        """Keep what is needed of torch, since a candidate may replace it later.

        Raises:
            Unavailable: this torch was built without device activities.
        """
        self._now = time.time_ns
        self._profile = torch.profiler.profile
        self._activity = torch.profiler.ProfilerActivity.CUDA
        self._on_device = torch.autograd.DeviceType.CUDA
        self._session: Any = None
        if self._activity not in torch.profiler.supported_activities():
            raise Unavailable("this torch's profiler cannot record what a device does")

    @classmethod
    def load(cls, torch: Any, work: Callable[[], None]) -> Recorder:
        """Return a recorder that was seen to record `work`, which returns when it is done.

        Raises:
            Unavailable: there are no records, or their times are not the host's.
        """
        recorder = cls(torch)
        recorder.start()
        began_ns = recorder.now_ns()
        work()
        ended_ns = recorder.now_ns()
        found = recorder.drain()
        recorder.stop()
        if not found:
            raise Unavailable(
                "torch's profiler records nothing of this device, as happens where the device was "
                "used before the profiler was loaded"
            )
        first = min(record.start_ns for record in found)
        last = max(record.end_ns for record in found)
        if first < began_ns - _PROOF_SLACK_NS or last > ended_ns + _PROOF_SLACK_NS:
            raise Unavailable("the times in torch's profiler are not those of the host's clock")
        return recorder

    def now_ns(self) -> int:
        """Return the time on the records' clock."""
        return self._now()

    def start(self) -> None:
        """Collect from now on.

        Raises:
            Unavailable: the profiler refuses: somebody else profiles this process.
        """
        session = self._guarded(self._profile, activities=[self._activity])
        self._guarded(session.start)
        self._session = session

    def drain(self) -> Sequence[Record]:
        """Return what was collected since the last call. The device must be idle."""
        session = self._session
        self.stop()
        found: Sequence[Record] = self._guarded(self._read, session)
        self.start()
        return found

    def stop(self) -> None:
        """Collect no more."""
        session, self._session = self._session, None
        if session is not None:
            self._guarded(session.stop)

    def _read(self, session: Any) -> list[Record]:
        return [
            Record(event.start_ns(), event.end_ns(), event.name().removesuffix(_SUFFIX))
            for event in session.profiler.kineto_results.events()
            if event.device_type() == self._on_device and not event.is_user_annotation()
        ]

    @staticmethod
    def _guarded(function: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        try:
            return function(*arguments, **more)
        except Exception as error:  # its own class differs between versions
            raise Unavailable(f"torch's profiler refuses: {error}") from error
