"""A kind of device: enumerate, allocate, synchronise, time. Nothing here imports torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from attrs import frozen

from atrex_core.errors import Unavailable
from atrex_core.model import Conditions, Device, DType, Scale

Tensor = Any
"""`torch.Tensor`; core never imports torch at module level."""


@frozen(kw_only=True)
class BufferHandle:
    """What a worker needs to reach a referee-owned buffer.

    `token` is opaque text (an address-free export handle); `fd` is a file descriptor that
    travels beside the message on the pipe. Either may be unused.
    """

    kind: str
    nbytes: int
    token: str = ""
    fd: int | None = None


class Buffer(ABC):
    """Raw device memory, never part of a caching allocator's block."""

    nbytes: int

    @abstractmethod
    def handle(self) -> BufferHandle:
        """Return the export handle. Referee side only."""

    @abstractmethod
    def tensor(self, dtype: DType, shape: Sequence[int], offset_bytes: int = 0) -> Tensor:
        """Return a contiguous torch view of `shape` elements at `offset_bytes`."""

    @abstractmethod
    def close(self) -> None:
        """Release the memory (owner) or the mapping (worker). Views must be gone."""


class QueueGate(ABC):
    """Worker side of a queue that the referee holds, opens and clocks.

    Referee and worker share a page of host memory with two 4-byte words: one that the referee
    writes to release the queue, one that is written when all in it is done. Both count up.
    """

    blocks_host: bool = False
    """Whether `hold` itself waits: nothing can be enqueued on a device that has no queue."""

    @abstractmethod
    def hold(self, epoch: int) -> None:
        """Let all that is enqueued from now on wait until the first word reaches `epoch`.

        On the stream that is current; work on others waits as far as it follows from it.
        """

    @abstractmethod
    def mark(self, epoch: int) -> None:
        """Enqueue behind everything else: write `epoch` to the second word."""


@frozen(kw_only=True)
class DeviceSamples:
    """Raw device times of one call, or why there are none. A claim, not a verdict."""

    samples_us: tuple[float, ...] = ()
    method: str
    reason: str | None = None


class DeviceContext(ABC):
    """One process's hold on one device: the referee has one, each worker has its own."""

    torch_device: str
    """What `torch.device(...)` takes."""
    last_level_cache_bytes: int | None = None
    """Size of the cache that cold calls must overrun, where it is known."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Buffer:
        """Allocate an exportable buffer. Referee side.

        Raises:
            MemoryError: the device cannot hold it.
        """

    @abstractmethod
    def open_buffer(self, handle: BufferHandle) -> Buffer:
        """Map a referee's buffer. Worker side.

        `handle.fd` stays the caller's, who closes it after the call.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until everything enqueued on the device, on any stream, is done."""

    @abstractmethod
    def sample(self, call: Callable[[int], None], *, budget_s: float) -> DeviceSamples:
        """Measure device time of `call(i)` for i = 0, 1, 2, ... (worker side).

        Consecutive `i` use distinct input sets that together exceed the last-level cache
        twice, so calls are cold. Stop after about `budget_s` seconds. Return raw samples in
        microseconds for one call each, or a reason and no samples.
        """

    def open_gate(self, released_address: int, finished_address: int) -> QueueGate:
        """Make a gate of two words of host memory that the referee shares. Worker side.

        Raises:
            Unavailable: this device, or its driver, cannot wait for host memory.
        """
        raise Unavailable("this accelerator cannot hold a queue for the referee")

    def placed_threads(self) -> AbstractContextManager[None]:
        """Keep threads of this process apart while calls are timed. Worker side.

        For devices on which calls run in the worker's own threads; all exist by then.
        """
        return nullcontext()

    def overrun_caches(self) -> bool:
        """Make every cache forget what it holds, by reading; return False where that cannot be.

        Never by writing: the lines written would have to be written back during what follows.
        """
        return False

    def free_bytes(self) -> int | None:
        """Return how much memory the device could still give this process, if it is known."""
        return None

    def peak_memory_bytes(self) -> int | None:
        """Return the most memory this process held since the last reset, if it is known."""
        return None

    def reset_peak_memory(self) -> None:
        """Start a new peak; called before each workload."""

    def conditions(self) -> Conditions | None:
        """Return clocks, power, temperature and load as they are now. Referee side.

        Called right before and right after timing, so it takes 2 ms at most, apart from the first
        time. It only reads: nothing on a device is ever set. What cannot be read is None with a
        `reason` in the conditions, never an exception; None stands for a kind of device that
        tells nothing at all.
        """
        return None

    def versions(self) -> Mapping[str, str]:
        """Return driver and runtime versions to record with results.

        `device_uuid`, or else `device_serial`, tells this device from others like it: what a
        calibration found is kept for it, its `driver` and torch.
        """
        return {}


class Accelerator(ABC):
    """Yielded by `atrex_accelerators`. Cheap to construct; methods may import late."""

    name: ClassVar[str]
    default_scale: ClassVar[Scale] = Scale.FULL
    """What `run` selects when `--scale` is not given."""
    is_timed: ClassVar[bool] = True
    """False where the performance gate can only say why there is no number."""
    limits_address_space: ClassVar[bool] = False
    """True where a worker's memory limit may be enforced with RLIMIT_AS."""
    is_synchronous: ClassVar[bool] = False
    """True where a call returns only when its work is done: wall time bounds device time."""
    exclusive: ClassVar[bool] = True
    """Whether two workers on one device would disturb each other's times."""

    @abstractmethod
    def devices(self) -> Sequence[Device]:
        """Return the devices present, without torch and without creating a device context.

        Return an empty sequence when there are none. Runs in the orchestrator, on machines
        without the hardware too.
        """

    def device(self, device_id: str) -> Device | None:
        """Return the device called `device_id`, or None when it is not this accelerator's."""
        for device in self.devices():
            if device_id == device.id or (device_id == self.name and device.index == 0):
                return device
        return None

    @abstractmethod
    def open(self, device: Device) -> DeviceContext:
        """Initialise `device` in this process. Called after a fork, never before one."""

    def worker_environment(self, device: Device) -> Mapping[str, str]:
        """Return environment variables that the processes which use `device` start with."""
        return {}

    def deviceless_environment(self, device: Device) -> Mapping[str, str] | None:
        """Return variables that keep a process from seeing any device; it compiles for `device`.

        They come on top of `worker_environment`. None where nothing hides a device: then nothing
        is compiled ahead, and the first call of a workload compiles on the device itself.
        """
        return None

    def absence(self) -> str:
        """Say in one line why `devices()` is empty, and what would change that."""
        return f"no {self.name} device was found"
