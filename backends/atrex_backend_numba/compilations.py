"""Seeing what Numba compiles: for how long, into what, and during which stage. Imports Numba."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import llvmlite.binding
from attrs import define, field
from numba.core import config
from numba.core.codegen import CodeLibrary
from numba.core.registry import CPUDispatcher
from numba.np.ufunc.ufuncbuilder import UFuncDispatcher

from atrex_core import KernelReport

Dispatcher = Any
"""Holds the compiled forms of one Python function, by signature, as `overloads`."""


@define(eq=False)
class CompileLog:
    """Functions that were compiled because Python asked, not because another one calls them."""

    enter: Callable[[], AbstractContextManager[None]]
    """Marks the time spent compiling as such."""
    dispatchers: dict[int, Dispatcher] = field(factory=dict, init=False)
    _seconds: dict[tuple[int, Any], float] = field(factory=dict, init=False)
    _cached: set[tuple[int, Any]] = field(factory=set, init=False)
    _depth: int = field(default=0, init=False)
    _stage: ExitStack = field(factory=ExitStack, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def watch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a dispatcher's `compile`, made to log."""

        def compile_signature(dispatcher: Dispatcher, *args: Any, **kwargs: Any) -> Any:
            before, hits = set(dispatcher.overloads), _cache_hits(dispatcher)
            started = perf_counter()
            with self._compiling() as is_outermost:
                result = original(dispatcher, *args, **kwargs)
            elapsed = perf_counter() - started
            if is_outermost:
                self.dispatchers[id(dispatcher)] = dispatcher
            for signature in set(dispatcher.overloads) - before:
                self._seconds[id(dispatcher), signature] = elapsed
                if _cache_hits(dispatcher) > hits:
                    self._cached.add((id(dispatcher), signature))
            return result

        return compile_signature

    def reports(self, dispatcher: Dispatcher) -> Iterator[KernelReport]:
        """Yield a report for each signature that a function was compiled for."""
        for signature, result in dispatcher.overloads.items():
            key = id(dispatcher), signature
            machine_code = _machine_code(result)
            yield KernelReport(
                kernel=dispatcher.py_func.__name__,
                target=llvmlite.binding.get_host_cpu_name(),
                binary_bytes=len(machine_code) if machine_code else None,
                compile_seconds=self._seconds.get(key),
                cached=key in self._cached,
            )

    @contextmanager
    def _compiling(self) -> Iterator[bool]:
        """Mark the stage around the outermost compilation, and tell whether this is it.

        The lock is not held while compiling: Numba has one of its own for that.
        """
        with self._lock:
            self._depth += 1
            is_outermost = self._depth == 1
            if is_outermost:
                self._stage.enter_context(self.enter())
        try:
            yield is_outermost
        finally:
            with self._lock:
                self._depth -= 1
                if self._depth == 0:
                    self._stage.close()


def install(log: CompileLog, cache: Path) -> None:
    """Make Numba log to `log` and cache in `cache`, for the rest of this process."""
    os.environ["NUMBA_CACHE_DIR"] = str(cache)
    config.reload_config()
    owners: tuple[Any, ...] = (CPUDispatcher, UFuncDispatcher)
    for owner in owners:
        owner.compile = log.watch(owner.compile)
    # Otherwise LLVM's output is loaded and thrown away, and its size and digest with it.
    library: Any = CodeLibrary
    library._object_caching_enabled = True
    library._compiled_object = None
    library._compiled = False


def digest_of(dispatcher: Dispatcher) -> str | None:
    """Identify the machine code of all signatures, or None when none has been kept."""
    codes = [_machine_code(result) for result in dispatcher.overloads.values()]
    if not codes or not all(codes):
        return None
    return hashlib.sha256(b"".join(code for code in codes if code)).hexdigest()[:16]


def _machine_code(result: Any) -> bytes | None:
    """Return the object file of a compilation, where LLVM's output was kept."""
    code: bytes | None = getattr(result.library, "_compiled_object", None)
    return code


def _cache_hits(dispatcher: Dispatcher) -> int:
    stats = getattr(dispatcher, "stats", None)  # a universal function's dispatcher has none
    return sum(stats.cache_hits.values()) if stats else 0
