"""Stands around `triton.compile`: marks the stage, keeps what was compiled, recompiles it.

Imports triton when imported.
"""

from __future__ import annotations

import copy
import importlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from attrs import define, field, frozen
from triton.compiler import compiler as triton_compiler
from triton.errors import TritonError
from triton.runtime import cache as triton_cache
from triton.runtime.jit import JITFunction

from atrex_backend_triton.diagnosis import blame, describe
from atrex_backend_triton.resources import Resources, inspect_kernel
from atrex_backend_triton.targets import Target, find_target
from atrex_core import KernelReport, Stage, TargetFailure

_compile = triton_compiler.compile
_jit_function: Any = JITFunction
_pack_args = _jit_function._pack_args
_MODULES = ("triton", "triton.compiler", "triton.compiler.compiler")
_TENSOR_MEMORY_COLUMNS = 512
_REGISTER_GRANULE = 8


@frozen(kw_only=True)
class Compiled:
    """One specialisation of a kernel, as the worker's own device has it."""

    kernel: Any
    """What `triton.compile` returned."""
    options: Mapping[str, Any]
    """As the candidate wrote them: what it left out is each target's own default."""
    seconds: float
    cached: bool


@define
class Compilation:
    """Everything that was compiled in this worker."""

    arch: str
    """The worker's own device, also when it is one that `targets` does not list."""
    enter: Callable[[Stage], AbstractContextManager[None]]
    scratch: Path
    clock: Callable[[], float] = time.perf_counter
    """Seconds of whatever kind compiling is to be measured in."""
    lock: Any = field(factory=threading.RLock)
    """Held while compiling: a virtual device changes the language while it executes."""
    fresh: list[str] = field(factory=list, init=False)
    """Digests of what was compiled, or found compiled, since somebody emptied this."""
    _kernels: dict[str, Compiled] = field(factory=dict, init=False)
    _requested: dict[int, dict[str, Any]] = field(factory=dict, init=False)
    _resources: dict[str, Resources] = field(factory=dict, init=False)
    _recompiled: dict[tuple[str, str], KernelReport | TargetFailure] = field(
        factory=dict, init=False
    )

    def install(self) -> None:
        """Take the place of `triton.compile`, wherever it is looked up."""
        for name in _MODULES:
            importlib.import_module(name).compile = self._compile  # type: ignore[attr-defined]
        requested = self._requested

        def remember_options(
            function: Any, backend: Any, kwargs: Any, *rest: Any, **named: Any
        ) -> Any:
            names = set(function.arg_names)
            requested[id(function)] = {k: v for k, v in kwargs.items() if k not in names}
            try:
                return _pack_args(function, backend, kwargs, *rest, **named)
            except Exception as error:
                # The target refused an option, before there was anything to compile.
                blame(error, function, "")
                raise

        _jit_function._pack_args = remember_options

    def reports(self, digests: Sequence[str]) -> Sequence[KernelReport]:
        """Return a report on each kernel whose binary is among `digests`, in that order."""
        return tuple(
            self._resources_of(compiled.kernel).report(
                compiled.kernel.metadata.name,
                self.arch,
                seconds=compiled.seconds,
                cached=compiled.cached,
                binary=digest,
            )
            for digest in digests
            if (compiled := self._kernels.get(digest)) is not None
        )

    def brief_reports(self, digests: Sequence[str]) -> Sequence[KernelReport]:
        """Return the same as `reports`, less what takes a look at the binary."""
        return tuple(
            KernelReport(
                kernel=compiled.kernel.metadata.name,
                target=self.arch,
                compile_seconds=compiled.seconds,
                cached=compiled.cached,
                binary=digest,
            )
            for digest in digests
            if (compiled := self._kernels.get(digest)) is not None
        )

    def registers(self, binary: bytes) -> tuple[int, int]:
        """Return the registers and spills of a binary that was compiled here."""
        for compiled in self._kernels.values():
            if compiled.kernel.kernel == binary:
                resources = self._resources_of(compiled.kernel)
                return resources.registers or 0, resources.spills or 0
        return 0, 0

    def compile_for(self, name: str, digests: Sequence[str]) -> Sequence[KernelReport]:
        """Compile the specialisations whose binaries have `digests` for the target `name`.

        Raises:
            TargetFailure: a kernel does not compile, or exceeds a limit of the target.
        """
        target = find_target(name)
        return tuple(
            self._for_target(digest, target) for digest in digests if digest in self._kernels
        )

    def _for_target(self, digest: str, target: Target) -> KernelReport:
        known = self._recompiled.get((digest, target.name))
        if known is None:
            try:
                known = self._recompile(self._kernels[digest], target)
            except TargetFailure as failure:
                known = failure
            self._recompiled[digest, target.name] = known
        if isinstance(known, TargetFailure):
            raise known
        return known

    def _recompile(self, compiled: Compiled, target: Target) -> KernelReport:
        source = compiled.kernel.src
        name = compiled.kernel.metadata.name
        if not hasattr(source, "fn"):
            message = f'kernel "{name}" was given as compiled text, which names its own target'
            raise TargetFailure(target.name, message)
        source = copy.copy(source)
        # Only alignment means the same everywhere; the rest is one vendor's specialisation.
        source.attrs = {
            path: [attr for attr in attrs if attr[0] == "tt.divisibility"]
            for path, attrs in source.attrs.items()
        }
        started = self.clock()
        wall_ns = time.time_ns()
        try:
            kernel = self._traced(source, target.gpu_target(), dict(compiled.options))
        except Exception as error:
            refusal = describe(error)
            if refusal is None:
                raise
            raise TargetFailure(target.name, f'kernel "{name}": {refusal}') from error
        seconds = self.clock() - started
        resources = inspect_kernel(kernel, self.scratch)
        if reason := _excess(kernel.metadata, resources, target):
            raise TargetFailure(target.name, f'kernel "{name}": {reason}')
        return resources.report(
            name,
            target.name,
            seconds=seconds,
            cached=_was_cached(kernel, wall_ns),
            binary=kernel.hash,
        )

    def _compile(self, src: Any, target: Any = None, options: Any = None, **named: Any) -> Any:
        started = self.clock()
        wall_ns = time.time_ns()
        kernel = self._traced(src, target, options, **named)
        seconds = self.clock() - started
        self.fresh.append(kernel.hash)
        requested = self._requested.pop(id(getattr(src, "fn", None)), None)
        self._kernels.setdefault(
            kernel.hash,
            Compiled(
                kernel=kernel,
                options=dict(options or {}) if requested is None else requested,
                seconds=seconds,
                cached=_was_cached(kernel, wall_ns),
            ),
        )
        return kernel

    def _traced(self, src: Any, target: Any, options: Any, **named: Any) -> Any:
        def attempt() -> Any:
            return _compile(src, target=target, options=options, **named)

        with self.lock, self.enter(Stage.COMPILE):
            try:
                return attempt()
            except Exception as error:
                remarks = "" if isinstance(error, TritonError) else _remarks(attempt, self.scratch)
                blame(error, getattr(src, "fn", None), remarks)
                raise

    def _resources_of(self, kernel: Any) -> Resources:
        if kernel.hash not in self._resources:
            self._resources[kernel.hash] = inspect_kernel(kernel, self.scratch)
        return self._resources[kernel.hash]


def hash_the_compiler() -> None:
    """Have triton read all of itself, which takes it over a second, for the keys of its cache.

    It does so once in a process; those that are forked from this one need not.
    """
    triton_cache.triton_key()


def _excess(metadata: Any, resources: Resources, target: Target) -> str | None:
    """Return which limit of `target` a launch would exceed, if any."""
    if metadata.shared > target.shared_limit_bytes:
        return (
            f"needs {metadata.shared} bytes of shared memory, {target.name} has "
            f"{target.shared_limit_bytes}"
        )
    threads = metadata.num_warps * target.warp_threads
    if threads > target.threads_limit:
        return f"needs {threads} threads, {target.name} allows {target.threads_limit}"
    columns = getattr(metadata, "tmem_size", None) or 0
    if columns > _TENSOR_MEMORY_COLUMNS:
        return f"needs {columns} columns of tensor memory, {_TENSOR_MEMORY_COLUMNS} exist"
    granules = -(-(resources.registers or 0) // _REGISTER_GRANULE)
    registers = granules * _REGISTER_GRANULE * threads
    if target.backend == "cuda" and registers > target.registers_per_unit:
        return f"needs {registers} registers, {target.name} has {target.registers_per_unit}"
    return None


def _was_cached(kernel: Any, started_ns: int) -> bool:
    metadata = next(path for name, path in kernel.metadata_group.items() if name.endswith(".json"))
    return Path(metadata).stat().st_mtime_ns < started_ns


def _remarks(attempt: Callable[[], Any], scratch: Path) -> str:
    """Let the compiler fail once more, and return what it prints.

    Its passes explain themselves on stderr and raise something without a word. The first time,
    stderr is left alone: should the compiler abort the process, its last words must get out.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile(dir=scratch) as log:
        os.dup2(log.fileno(), 2)
        try:
            with suppress(Exception):
                attempt()
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        log.seek(0)
        return log.read().decode(errors="replace")
