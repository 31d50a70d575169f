"""A DSL: load a candidate, compile it for a device or for an absent target, watch its launches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from attrs import frozen

from atrex_core.interfaces.accelerator import DeviceContext
from atrex_core.model import Device


class Stage(StrEnum):
    """What a worker is doing, so that its death is charged to the right gate."""

    STARTUP = "startup"
    IMPORT = "import"
    CONSTRUCT = "construct"
    COMPILE = "compile"
    CORRECTNESS = "correctness"
    PERFORMANCE = "performance"
    AUTHENTICITY = "authenticity"


@frozen(kw_only=True)
class Launch:
    """One kernel that the DSL launched."""

    kernel: str
    own: bool
    """Whether the kernel's source lies in the candidate's own file."""
    binary: str | None = None
    """Digest of the compiled binary, where the DSL has one."""


@frozen(kw_only=True)
class KernelReport:
    """What compiling one kernel for one target gave. None means the tool does not tell."""

    kernel: str
    target: str
    registers: int | None = None
    shared_bytes: int | None = None
    spills: int | None = None
    """Spilled bytes or registers, as the target's compiler counts them; 0 is none."""
    matrix_instructions: tuple[str, ...] = ()
    binary_bytes: int | None = None
    compile_seconds: float | None = None
    cached: bool = False
    binary: str | None = None
    """Digest of the compiled binary, as in `Launch`: one kernel in several reports."""


class TargetFailure(Exception):
    """A kernel cannot be built for a target, or exceeds one of its limits.

    The message is the compiler's own, trimmed; `target` names the architecture.
    """

    def __init__(self, target: str, message: str) -> None:
        super().__init__(message)
        self.target = target


@frozen(kw_only=True)
class RuntimeRequest:
    """What a backend is given when a worker starts, before the candidate is imported."""

    device: Device
    context: DeviceContext
    candidate: Path
    """The candidate's file inside the worker's scratch folder."""
    scratch: Path
    enter: Callable[[Stage], AbstractContextManager[None]]
    """Marks a stage for the duration of a block: wrap just-in-time compilation in it."""
    cache: Path | None = None
    """A folder that every worker of this candidate, and of no other, finds what was compiled in.

    The candidate may have written anything to it: read nothing of it before the candidate is
    loaded, so that what comes of that is its own doing.
    """


class BackendRuntime(ABC):
    """The DSL inside one worker. Its word is evidence, never a verdict."""

    @abstractmethod
    def launches(self) -> Sequence[Launch]:
        """Return what was launched since the last `clear_launches`."""

    @abstractmethod
    def clear_launches(self) -> None:
        """Forget the launches seen so far."""

    @abstractmethod
    def knocked_out(self) -> AbstractContextManager[None]:
        """Suppress the DSL's launches inside the block: they become no-ops."""

    @abstractmethod
    def compile_error(self, error: BaseException) -> str | None:
        """Return the compiler's message when `error` means the DSL rejected the code, else None."""

    def reports(self) -> Sequence[KernelReport]:
        """Return one report for each kernel launched since the last `clear_launches`.

        A kernel that was compiled earlier and launched again is reported again, unchanged.
        """
        return ()

    def compile_for(self, target: str) -> Sequence[KernelReport]:
        """Compile every kernel launched since the last `clear_launches` for `target`.

        The target need not be present. Compiling the same kernel again should cost nothing.

        Raises:
            TargetFailure: the compiler refused, or a limit of the target is exceeded.
        """
        return ()


class Backend(ABC):
    """Yielded by `atrex_backends`. Cheap to construct; importing it imports no DSL."""

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    accelerators: ClassVar[tuple[str, ...]]
    """Accelerators whose real devices this DSL runs on, preferred first."""
    virtual_targets: ClassVar[tuple[str, ...]] = ()
    """Architectures it can execute exactly on a CPU, the default one first."""
    targets: ClassVar[tuple[str, ...]] = ()
    """Architectures it can compile for without the hardware."""
    default_targets: ClassVar[tuple[str, ...]] = ()
    """What the compile gate also builds for when `--target` is not given on a virtual device."""
    is_default: ClassVar[bool] = False
    """Used when `--backend` is not given. At most one installed backend may say so."""
    compiles_ahead: ClassVar[bool] = False
    """Whether `start_ahead` is implemented."""

    @abstractmethod
    def check_available(self) -> None:
        """Return if the DSL is installed here, without importing it.

        Raises:
            Unavailable: it is not; the hint says how to get it.
        """

    @property
    def kernels(self) -> Path | None:
        """The folder of bundled kernels (`<problem>.py`) and of `probe.py`, if there is one.

        `probe.py` exposes a `Model` whose forward(x, y), two fp32 vectors, returns x + y:
        `doctor` runs it on every device.
        """
        return None

    @abstractmethod
    def preload(self) -> None:
        """Import torch and the DSL in the fork server. Import only: initialise no device."""

    @abstractmethod
    def start(self, request: RuntimeRequest) -> BackendRuntime:
        """Install the DSL's driver and hooks in a fresh worker."""

    def start_ahead(self, request: RuntimeRequest) -> BackendRuntime:
        """Install, where no device can be seen, what compiles for `request.device` all the same.

        The candidate runs as always, on tensors that have a shape, a dtype and a device but no
        memory (torch's `FakeTensor`). A launch compiles its kernel into `request.cache`, under
        the key that a worker with the device will look for, and does nothing else. A search for
        the best configuration compiles each of them, and its result is not kept. `reports` is
        about everything compiled or launched since the last `clear_launches`, and may leave out
        all but names, digests and seconds of the processor; no report leaves out `binary`.

        Only called where `compiles_ahead`.
        """
        raise NotImplementedError

    def versions(self) -> Mapping[str, str]:
        """Return the DSL's package versions, without importing it."""
        return {}

    def repro_prelude(self, device: Device) -> str:
        """Return Python source that makes a plain script run this DSL on `device`."""
        return ""

    def exposes(self, namespace: Mapping[str, Any]) -> str | None:
        """Return a complaint about a candidate's module namespace, or None if it will do."""
        return None
