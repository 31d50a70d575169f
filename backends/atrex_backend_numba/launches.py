"""Seeing, and suppressing, every call from Python into code that Numba compiled.

Calls are caught on Numba's classes, so it does not matter when a kernel was made or under which
name it is called. What compiled code calls by itself is part of the launch it belongs to. Two ways
in are not seen: the raw entry points that an overload exposes, and the addresses of `cfunc`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import CodeType
from typing import Any

from attrs import define, field

Kernel = Any
"""A dispatcher, a universal function or a stencil of Numba's."""

MOST_LAUNCHES = 100_000
"""Calls kept since the last `clear`; later ones are dropped. Bounds what a timed loop costs."""

_UFUNC_METHODS = ("reduce", "accumulate", "reduceat", "outer", "at")


@define(eq=False)
class LaunchLog:
    """Kernels in the order in which they were launched."""

    kernels: list[Kernel] = field(factory=list, init=False)
    suppressed: bool = field(default=False, init=False)

    def clear(self) -> None:
        """Forget the launches seen so far."""
        self.kernels.clear()

    @contextmanager
    def suppressing(self) -> Iterator[None]:
        """Turn calls into no-ops inside the block. They are not logged."""
        before, self.suppressed = self.suppressed, True
        try:
            yield
        finally:
            self.suppressed = before

    def watch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return `original`, a function of a kernel and its arguments, made to log its calls."""

        def call(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
            if self.suppressed:
                return _untouched_output(kernel, args, kwargs)
            result = original(kernel, *args, **kwargs)
            if len(self.kernels) < MOST_LAUNCHES:
                self.kernels.append(kernel)
            return result

        return call


class WatchedUfunc:
    """A universal function of NumPy's own type, whose class cannot be changed, made to log."""

    def __init__(self, ufunc: Any, builder: Any, log: LaunchLog) -> None:
        self.__wrapped__ = builder.py_func
        self.__name__ = builder.py_func.__name__
        self._dispatcher = builder.nb_func
        self._ufunc = ufunc
        self._call = log.watch(_launch)
        for name in _UFUNC_METHODS:
            setattr(self, name, partial(log.watch(partial(_launch_method, name)), self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(self, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ufunc, name)


def _launch(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    return kernel._ufunc(*args, **kwargs)


def _launch_method(name: str, kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    return getattr(kernel._ufunc, name)(*args, **kwargs)


def install(log: LaunchLog) -> None:
    """Make Numba's classes log to `log`, for the rest of this process."""
    from numba.core.registry import CPUDispatcher
    from numba.np.ufunc.dufunc import DUFunc
    from numba.np.ufunc.gufunc import GUFunc
    from numba.np.ufunc.parallel import ParallelGUFuncBuilder, ParallelUFuncBuilder
    from numba.stencils.stencil import StencilFunc

    callables: tuple[Any, ...] = (CPUDispatcher, DUFunc, GUFunc, StencilFunc)
    for owner in callables:
        owner.__call__ = log.watch(owner.__call__)
    for name in _UFUNC_METHODS:
        setattr(DUFunc, name, log.watch(getattr(DUFunc, name)))
    builders: tuple[Any, ...] = (ParallelUFuncBuilder, ParallelGUFuncBuilder)
    for builder in builders:
        builder.build_ufunc = _watching_builds(builder.build_ufunc, log)


def code_of(kernel: Kernel) -> CodeType:
    """Return the code of the Python function that a kernel was compiled from."""
    if hasattr(kernel, "kernel_ir"):  # a stencil keeps no function, only what it parsed
        code: CodeType = kernel.kernel_ir.func_id.func.__code__
    else:
        code = kernel.__wrapped__.__code__
    return code


def dispatcher_of(kernel: Kernel) -> Any:
    """Return what holds the compiled forms of a kernel, None for a stencil, which keeps none."""
    dispatcher = getattr(kernel, "_dispatcher", kernel)
    return dispatcher if hasattr(dispatcher, "overloads") else None


def _watching_builds(build: Callable[..., Any], log: LaunchLog) -> Callable[..., Any]:
    def build_ufunc(builder: Any) -> Any:
        return WatchedUfunc(build(builder), builder, log)

    return build_ufunc


def _untouched_output(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the output that a suppressed call was given, as the call would have, or None."""
    if "out" in kwargs:
        out = kwargs["out"]
        return out[0] if isinstance(out, tuple) and len(out) == 1 else out
    inputs = getattr(kernel, "nin", None)
    if isinstance(inputs, int) and len(args) > inputs:
        return args[inputs]
    return None
