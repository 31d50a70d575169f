"""What a referee and its workers say to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from attrs import evolve, field, frozen

from atrex_core.interfaces import BufferHandle, DeviceSamples, KernelReport, Launch, Stage
from atrex_core.model import Container, Device, TensorSpec

# -- referee -> fork server --------------------------------------------------------------------


@frozen(kw_only=True)
class Spawn:
    """Fork a worker. Descriptors: its channel, its output pipe, its stage cell."""

    scratch: str
    cache: str | None = None
    """A folder that outlives the worker, but not the referee."""


@frozen(kw_only=True)
class Branch:
    """Fork a server that answers on a channel of its own. Descriptors: that channel."""


@frozen(kw_only=True)
class Kill:
    """End a worker and everything it started."""

    pid: int


# -- fork server -> referee --------------------------------------------------------------------


@frozen(kw_only=True)
class Warm:
    """Imports are done; workers can be forked."""

    seconds: float


@frozen(kw_only=True)
class Spawned:
    """A worker runs."""

    pid: int


@frozen(kw_only=True)
class Exited:
    """A worker has ended; nothing of it is left."""

    pid: int
    status: int
    """As `os.waitstatus_to_exitcode` gives it: negative for a signal."""
    strays: int
    """Processes it left behind, now ended."""


# -- referee -> worker -------------------------------------------------------------------------


@frozen(kw_only=True)
class Start:
    """Open the device and start the DSL. No candidate code runs yet: a failure here is ours."""

    number: int
    device: Device
    candidate: str
    """Its file, by path relative to the scratch folder."""
    cache: str | None = None
    """The folder for what is compiled, if it is to be found by other workers."""
    absent: str | None = None
    """The device's name in torch, where it is to be compiled for but not to be opened."""


@frozen(kw_only=True)
class Load:
    """Import the candidate."""

    number: int
    memory_limit_bytes: int | None


@frozen(kw_only=True)
class Placement:
    """Where in the open buffers a tensor lies."""

    spec: TensorSpec
    buffer: int
    offset_bytes: int


@frozen(kw_only=True)
class PlacedSets:
    """Sets of tensors one behind the other, all laid out alike: a sequence of placements each."""

    first: tuple[Placement, ...]
    count: int
    stride_bytes: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Placement, ...]:
        if not 0 <= index < self.count:
            raise IndexError(index)
        ahead_bytes = index * self.stride_bytes
        return tuple(evolve(p, offset_bytes=p.offset_bytes + ahead_bytes) for p in self.first)

    def __iter__(self) -> Iterator[tuple[Placement, ...]]:
        return (self[index] for index in range(self.count))


@frozen(kw_only=True)
class OpenWorkload:
    """Map the referee's buffers and construct the model. Descriptors: one per memfd buffer."""

    number: int
    init: Mapping[str, Any]
    container: Container
    buffers: tuple[BufferHandle, ...]
    input_sets: PlacedSets
    output_sets: PlacedSets
    """The first takes the outputs of single calls, each those of one call of a held queue."""
    in_place: Mapping[str, str] = field(factory=dict)
    """Outputs that may be an input, updated: output name to input name."""


@frozen(kw_only=True)
class Foresee:
    """Construct a model and run forward once on stand-ins, so that what a call needs is compiled.

    For a worker without its device.
    """

    number: int
    init: Mapping[str, Any]
    inputs: tuple[TensorSpec, ...]
    targets: tuple[str, ...] = ()
    """Also to be compiled for."""


@frozen(kw_only=True)
class Call:
    """Run forward once on input set 0 and copy its outputs into the referee's buffer."""

    number: int
    stage: Stage
    knock_out: bool = False
    report: bool = False
    """Also say what was compiled so far."""


@frozen(kw_only=True)
class Build:
    """Compile every kernel seen so far for a target that need not be present."""

    number: int
    target: str


@frozen(kw_only=True)
class Sample:
    """Measure device time, rotating the input sets."""

    number: int
    budget_s: float


@frozen(kw_only=True)
class Run:
    """Make `calls` back-to-back calls, rotating the input sets, then synchronise."""

    number: int
    calls: int


@frozen(kw_only=True)
class Enqueue:
    """Hold the queue, enqueue `calls` calls on input sets 0, 1, ..., and say that it is done.

    Outputs go to the output sets of the same numbers, each before the next call. Those that
    update an input stay there.
    """

    number: int
    calls: int
    epoch: int


@frozen(kw_only=True)
class Collect:
    """Copy the outputs of the most recent timed call on input set `index` to the buffer."""

    number: int
    index: int


@frozen(kw_only=True)
class CloseWorkload:
    """Forget the model, the tensors and the buffers."""

    number: int


WorkerRequest = (
    Start
    | Load
    | Foresee
    | OpenWorkload
    | Call
    | Build
    | Sample
    | Run
    | Enqueue
    | Collect
    | CloseWorkload
)


# -- worker -> referee -------------------------------------------------------------------------


class Fault(StrEnum):
    """Why a request could not be done. All are the candidate's."""

    EXCEPTION = "exception"
    COMPILE = "compile"
    CONTRACT = "contract"
    """Missing `Model`, wrong signature, wrong container, dtype, shape or device."""
    MEMORY = "memory"
    UNSUPPORTED = "unsupported"
    """The stand-in for an absent device cannot do it; nobody's fault."""


@frozen(kw_only=True)
class Refused:
    """The candidate failed; the worker lives on."""

    number: int
    stage: Stage
    fault: Fault
    reason: str
    details: Mapping[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class Broken:
    """Our own code, or a plugin's, failed in the worker."""

    number: int
    reason: str


@frozen(kw_only=True)
class Done:
    """The request was carried out."""

    number: int
    launches: tuple[Launch, ...] = ()
    reports: tuple[KernelReport, ...] = ()
    samples: DeviceSamples | None = None
    calls: int = 0
    peak_memory_bytes: int | None = None
    compile_seconds: float = 0.0
    versions: Mapping[str, str] = field(factory=dict)
    ungated: str | None = None
    """Why the referee cannot hold this worker's queue; None where it can."""
    short_of: str | None = None
    """Why a call on stand-ins did not come to its end; None where it did."""
