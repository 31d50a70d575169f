"""An AMD GPU that pretends: HIP's library, and the corner of torch's ROCm build that is used."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from atrex_accelerator_hip.context import HipContext
from attrs import define, field

from atrex_core import Device

MIB = 2**20
WAIT_KERNEL = "__amd_rocclr_streamOpsWait"
ERRORS = {
    1: (b"hipErrorInvalidValue", b"invalid argument"),
    2: (b"hipErrorOutOfMemory", b"out of memory"),
    101: (b"hipErrorInvalidDevice", b"invalid device ordinal"),
    600: (b"hipErrorNotReady", b"device not ready"),
    700: (b"hipErrorIllegalAddress", b"an illegal memory access was encountered"),
    801: (b"hipErrorNotSupported", b"operation not supported"),
}
GPU = Device(
    id="hip:1",
    accelerator="hip",
    vendor="amd",
    name="AMD Instinct MI300X",
    arch="gfx942",
    index=1,
    memory_bytes=8 * MIB,
    last_level_cache_bytes=256 * MIB,
    compute_units=304,
    driver="amdgpu 6.12.12",
)


@define
class Activity:
    """What ran on the device, by the clock that `FakeHip.now_ns` reads."""

    name: str
    start_ns: int
    end_ns: int


@define(eq=False, slots=False)
class FakeHip:
    """HIP's functions on a device of 8 MiB, with the memory, queues and waits behind them.

    What is enqueued runs as soon as nothing before it waits. The device sees host memory 4096
    bytes above where the host does, so that a host's address given to it is noticed.
    """

    records_waits: bool = True
    can_wait: int = 1
    uuid: bytes = b"8f6b0123456789ab"
    told: list[tuple[Any, ...]] = field(factory=list)
    failing: dict[str, int] = field(factory=dict)
    ran: list[Activity] = field(factory=list)
    memory: dict[int, int] = field(factory=dict)
    exports: dict[bytes, int] = field(factory=dict)
    mapped: set[int] = field(factory=set)
    queues: dict[int, list[tuple[Any, ...]]] = field(factory=dict)
    happened_ns: dict[int, int] = field(factory=dict)
    clock_ns: int = 1_800_000_000 * 10**9
    _pinned: list[Any] = field(factory=list)
    _host_pages: list[tuple[int, int]] = field(factory=list)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("hip"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.told.append((name, *map(_plain, arguments)))
            if name in self.failing:
                return self.failing[name]
            return getattr(self, f"_{name}", lambda *_: 0)(*arguments) or 0

        return call

    def names(self) -> list[str]:
        return [entry[0] for entry in self.told]

    # -- what a test does to the device ------------------------------------------------------------

    def now_ns(self) -> int:
        """Read the clock, which goes on a little."""
        self.clock_ns += 100
        return self.clock_ns

    def enqueue(self, us: float, name: str = "kernel", stream: int = 0) -> None:
        """Put a kernel on a stream."""
        self._put(stream, ("work", us, name))

    def run(self) -> bool:
        """Run what can run; return whether nothing is left."""
        while any(self._step(queue) for queue in self.queues.values()):
            pass
        return not any(self.queues.values())

    def wait_until_idle(self) -> None:
        """Return when nothing is left, as a call that synchronises does."""
        until = time.perf_counter() + 5.0
        while not self.run():
            assert time.perf_counter() < until, "this waits for ever"

    def _put(self, stream: int, command: tuple[Any, ...]) -> None:
        self.queues.setdefault(stream, []).append(command)
        self.run()

    def _step(self, queue: list[tuple[Any, ...]]) -> bool:
        if not queue:
            return False
        kind, *rest = queue[0]
        if kind == "wait" and self._word(rest[0]).value < rest[1]:
            return False
        queue.pop(0)
        if kind == "wait" and self.records_waits:
            self._ran(1.0, WAIT_KERNEL)
        elif kind == "write":
            self._word(rest[0]).value = rest[1]
        elif kind == "event":
            self.happened_ns[rest[0]] = self.clock_ns
        elif kind == "work":
            self._ran(*rest)
        return True

    def _ran(self, us: float, name: str) -> None:
        start_ns = self.clock_ns + 50
        self.clock_ns = start_ns + round(us * 1000)
        self.ran.append(Activity(name, start_ns, self.clock_ns))

    def _word(self, device_address: int) -> ctypes.c_uint32:
        host = device_address - 4096
        assert any(start <= host < start + nbytes for start, nbytes in self._host_pages), (
            "the device cannot see this memory"
        )
        return ctypes.c_uint32.from_address(host)

    # -- HIP's functions ---------------------------------------------------------------------------

    def _hipRuntimeGetVersion(self, version: Any) -> None:
        version._obj.value = 70125424

    def _hipDeviceGetAttribute(self, value: Any, attribute: int, _device: int) -> int | None:
        if attribute != 10013:
            return 1
        value._obj.value = self.can_wait
        return None

    def _hipDeviceGetUuid(self, uuid: Any, _device: int) -> None:
        uuid._obj.bytes[:] = self.uuid.ljust(16, b"\0")

    def _hipDeviceGetPCIBusId(self, text: Any, _nbytes: int, _device: int) -> None:
        text.value = b"0000:c1:00.0"

    def _hipMemGetInfo(self, free: Any, total: Any) -> None:
        free._obj.value, total._obj.value = 8 * MIB - sum(self.memory.values()), 8 * MIB

    def _hipMalloc(self, pointer: Any, nbytes: int) -> int | None:
        if nbytes > 8 * MIB - sum(self.memory.values()):
            return 2
        pointer._obj.value = 0x7F00_0000_0000 + len(self.told) * 64 * MIB
        self.memory[pointer._obj.value] = nbytes
        return None

    def _hipFree(self, address: int) -> int | None:
        return None if self.memory.pop(address, None) else 1

    def _hipIpcGetMemHandle(self, handle: Any, address: int) -> int | None:
        if address not in self.memory:
            return 1
        exported = address.to_bytes(64, "little")
        ctypes.memmove(ctypes.addressof(handle._obj), exported, 64)
        self.exports[exported] = address
        return None

    def _hipIpcOpenMemHandle(self, pointer: Any, handle: Any, flags: int) -> int | None:
        if bytes(handle) not in self.exports or flags != 1:
            return 1
        pointer._obj.value = self.exports[bytes(handle)] + 2**40
        self.mapped.add(pointer._obj.value)
        return None

    def _hipIpcCloseMemHandle(self, address: int) -> int | None:
        if address not in self.mapped:
            return 1
        self.mapped.remove(address)
        return None

    def _hipHostMalloc(self, pointer: Any, nbytes: int, _flags: int) -> None:
        self._pinned.append(ctypes.create_string_buffer(b"\xff" * nbytes, nbytes))
        pointer._obj.value = ctypes.addressof(self._pinned[-1])
        self._host_pages.append((pointer._obj.value, nbytes))

    def _hipHostRegister(self, address: int, nbytes: int, _flags: int) -> None:
        self._host_pages.append((address, nbytes))

    def _hipHostGetDevicePointer(self, pointer: Any, address: int, _flags: int) -> None:
        pointer._obj.value = address + 4096

    def _hipStreamWaitValue32(
        self, stream: int, address: int, value: int, flags: int, mask: int
    ) -> int | None:
        if flags != 0 or mask != 0xFFFF_FFFF:
            return 1
        return self._put(stream, ("wait", address, value))

    def _hipStreamWriteValue32(self, stream: int, address: int, value: int, _flags: int) -> None:
        self._put(stream, ("write", address, value))

    def _hipEventCreateWithFlags(self, event: Any, _flags: int) -> None:
        event._obj.value = 0xE0000 + len(self.told)

    def _hipEventRecord(self, event: int, stream: int) -> None:
        self.happened_ns.pop(event, None)
        self._put(stream, ("event", event))

    def _hipEventQuery(self, event: int) -> int | None:
        self.run()
        return None if event in self.happened_ns else 600

    def _hipEventSynchronize(self, event: int) -> None:
        self.run()
        assert event in self.happened_ns, "this would wait for ever"

    def _hipEventElapsedTime(self, found: Any, start: int, end: int) -> None:
        found._obj.value = (self.happened_ns[end] - self.happened_ns[start]) / 1e6

    def _hipGetErrorName(self, code: int) -> bytes:
        return ERRORS[code][0]

    def _hipGetErrorString(self, code: int) -> bytes:
        return ERRORS[code][1]


def _plain(argument: Any) -> Any:
    """Return what a list of calls can be compared by: `&` stands for an address of ours."""
    if isinstance(argument, (int, float)):
        return argument
    return bytes(argument) if isinstance(argument, ctypes.Structure) else "&"


class FakeProfiler:
    """`torch.profiler.profile`: what ran between start and stop."""

    def __init__(self, torch: FakeTorch) -> None:
        self._torch = torch
        self._first = 0

    def start(self) -> None:
        if self._torch.is_profiled:
            raise RuntimeError("Profiler is already enabled on this thread")
        self._torch.told.append("profile")
        self._torch.is_profiled = True
        self._first = len(self._torch.hip.ran)

    def stop(self) -> None:
        torch = self._torch
        torch.is_profiled = False
        found = [] if torch.is_forgetful else torch.hip.ran[self._first :]
        kept = [entry for entry in found if entry.name not in torch.losing]
        events = [torch.event(entry) for entry in kept]
        self.profiler = SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: events))


class FakeTorch:
    """The corner of torch that is used."""

    int32 = "int32"

    def __init__(self, hip: FakeHip) -> None:
        self.hip = hip
        self.told: list[str] = []
        self.is_profiled = False
        self.is_forgetful = False
        self.losing: set[str] = set()
        self.skew_ns = 0
        self.version = SimpleNamespace(hip="7.1.25424")
        self.autograd = SimpleNamespace(DeviceType=SimpleNamespace(CUDA="on the device"))
        self.profiler = SimpleNamespace(
            ProfilerActivity=SimpleNamespace(CUDA="device"),
            supported_activities=lambda: {"host", "device"},
            profile=self.profile,
        )
        self.properties = SimpleNamespace(
            name="AMD Instinct MI300X",
            gcnArchName="gfx942:sramecc+:xnack-",
            multi_processor_count=304,
            L2_cache_size=4 * MIB,
        )
        self.cuda = SimpleNamespace(
            init=lambda: self.told.append("init"),
            set_device=lambda index: self.told.append(f"set_device {index}"),
            synchronize=self.synchronize,
            get_device_properties=lambda _index: self.properties,
            current_stream=lambda _index: SimpleNamespace(cuda_stream=0),
            empty_cache=lambda: self.told.append("empty_cache"),
            memory_reserved=lambda _index: 5 * MIB,
            memory_allocated=lambda _index: 2 * MIB,
            max_memory_allocated=lambda _index: 4096,
            reset_peak_memory_stats=lambda index: self.told.append(f"reset {index}"),
        )

    def profile(self, *, activities: list[str]) -> FakeProfiler:
        assert activities == ["device"]
        return FakeProfiler(self)

    def event(self, entry: Activity) -> Any:
        return SimpleNamespace(
            name=lambda: f"{entry.name}.kd",
            start_ns=lambda: entry.start_ns + self.skew_ns,
            end_ns=lambda: entry.end_ns + self.skew_ns,
            device_type=lambda: "on the host" if entry.name == "hipLaunch" else "on the device",
            is_user_annotation=lambda: entry.name == "annotation",
        )

    def synchronize(self, index: int) -> None:
        self.told.append(f"synchronize {index}")
        self.hip.wait_until_idle()

    def zeros(self, *shape: int, device: str, dtype: Any = None) -> Any:
        self.told.append(f"zeros {shape} {device}")
        return SimpleNamespace(amax=lambda: self.hip.enqueue(100.0, "overrun"))

    def ones(self, *shape: int, device: str) -> None:
        self.hip.enqueue(2.0, "ones")

    def as_tensor(self, source: Any, *, device: str) -> Any:
        view = SimpleNamespace(interface=source.__cuda_array_interface__, device=device)
        view.view = lambda _what: view
        return view


@pytest.fixture
def hip() -> FakeHip:
    """Return HIP's library, pretended."""
    return FakeHip()


@pytest.fixture
def torch(hip: FakeHip, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    """Return torch on the pretended device, and let the host's clock be that device's."""
    monkeypatch.setattr("atrex_accelerator_hip.records.time.time_ns", hip.now_ns)
    return FakeTorch(hip)


@pytest.fixture
def gpu() -> Device:
    """Return the device as it is listed."""
    return GPU


@pytest.fixture
def context(hip: FakeHip, torch: FakeTorch) -> HipContext:
    """Return a context on the pretended device."""
    return HipContext(GPU, torch=torch, hip=hip)
