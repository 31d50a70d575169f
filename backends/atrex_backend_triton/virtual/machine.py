"""Executes launches of compiled kernels on CPU tensors."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any

import numpy as np
import triton.language as tl
from attrs import define, field
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle
from triton.tools.tensor_descriptor import TensorDescriptor

from atrex_backend_triton.targets import Target
from atrex_backend_triton.virtual.body import Bodies
from atrex_backend_triton.virtual.builder import Builder
from atrex_backend_triton.virtual.formats import encode
from atrex_backend_triton.virtual.language import Language
from atrex_backend_triton.virtual.memory import Extents
from atrex_core import Unavailable

_GRID_LIMIT_YZ = 65535
_GRID_LIMIT_X = 2**31 - 1
_WORK_ITEMS_LIMIT = 2**32 - 1


class KernelError(RuntimeError):
    """A kernel's body failed; the message says where in its source, and in which program."""


@define
class Machine:
    """One virtual device: it runs the programs of a launch one after another."""

    target: Target
    lock: AbstractContextManager[Any]
    """Held while the language executes: nothing can be compiled meanwhile."""
    _builder: Builder = field(factory=Builder, init=False)
    _bodies: Bodies = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._bodies = Bodies(Language(self._builder, _device_library(self.target)))

    def launch(self, source: Any, metadata: Any, grid: Sequence[int], args: Sequence[Any]) -> None:
        """Execute `source`, as compiled into `metadata`, over `grid`.

        Raises:
            KernelError: the body failed, or touched memory that is not an argument's.
            Unavailable: it uses what only the hardware has.
        """
        self._check_grid(grid, metadata)
        if not hasattr(source, "fn") or source.fn.is_gluon():
            raise Unavailable(
                f'kernel "{metadata.name}" is not Triton source: a virtual device only compiles it',
                hint="run this kernel on the hardware itself",
            )
        language = self._bodies.language
        with self.lock:
            run = _Run(self._bodies, metadata.name)
            self._builder.extents = Extents(args)
            self._builder.options = _options(metadata)
            with (
                language.executing(run.call),
                np.errstate(all="ignore"),
                warnings.catch_warnings(),
            ):
                # NaNs are data here; numpy's remarks on them are not the candidate's.
                warnings.simplefilter("ignore", RuntimeWarning)
                operands = self._operands(source, args)
                run.programs(source.fn, operands, self._builder, grid)

    def _operands(self, source: Any, args: Sequence[Any]) -> list[Any]:
        signature = source.signature.values()
        return [self._operand(arg, kind) for arg, kind in zip(args, signature, strict=True)]

    def _operand(self, arg: Any, kind: Any) -> Any:
        if isinstance(kind, tuple):
            values = [self._operand(a, k) for a, k in zip(arg, kind, strict=True)]
            return type(arg)(*values) if hasattr(arg, "_fields") else tuple(values)
        if kind == "constexpr":
            return arg
        if isinstance(arg, TensorDescriptor):
            return self._descriptor(arg, kind)
        dtype: Any = tl.str_to_ty(kind, None)
        if hasattr(arg, "data_ptr"):
            return _scalar(np.uint64(arg.data_ptr()), dtype)
        if dtype.is_floating():
            return _scalar(encode(np.asarray(arg, dtype=np.float64), dtype), dtype)
        return _scalar(np.asarray(arg).astype(interpreter._get_np_dtype(dtype)), dtype)

    def _descriptor(self, arg: Any, kind: str) -> Any:
        strides: list[Any] = [_scalar(np.int64(stride), tl.int64) for stride in arg.strides]
        strides[-1] = tl.constexpr(1)
        described: Any = tl.str_to_ty(kind, None)
        descriptor = self._bodies.language.semantic.make_tensor_descriptor(
            base=_scalar(
                np.uint64(arg.base.data_ptr()), tl.pointer_type(described.block_type.element_ty)
            ),
            shape=[_scalar(np.int32(extent), tl.int32) for extent in arg.shape],
            strides=strides,
            block_shape=[tl.constexpr(extent) for extent in arg.block_shape],
            padding_option=arg.padding,
        )
        descriptor.handle.round_f32_to_tf32 = getattr(arg, "round_f32_to_tf32", False)
        return descriptor

    def _check_grid(self, grid: Sequence[int], metadata: Any) -> None:
        threads = metadata.num_warps * self.target.warp_threads
        if self.target.backend == "cuda":
            fits = grid[0] <= _GRID_LIMIT_X and max(grid[1:]) <= _GRID_LIMIT_YZ
        else:
            fits = all(extent * threads <= _WORK_ITEMS_LIMIT for extent in grid)
        if not fits or min(grid) < 0:
            raise KernelError(
                f'kernel "{metadata.name}": grid {tuple(grid)} exceeds the limits of '
                f"{self.target.name}"
            )


@define
class _Run:
    """One launch: its functions are bound once, and its errors are told with their place."""

    bodies: Bodies
    kernel: str
    _functions: dict[int, FunctionType] = field(factory=dict, init=False)
    _helpers: Mapping[str, Any] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._helpers = self.bodies.helpers()

    def call(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Execute a device function."""
        kwargs = {k: v for k, v in kwargs.items() if k not in ("_semantic", "_generator")}
        return self._function(function)(*args, **kwargs)

    def programs(
        self, function: Any, operands: list[Any], builder: Builder, grid: Sequence[int]
    ) -> None:
        """Execute every program of the grid."""
        body = self._function(function)
        x, y, z = grid
        keyword_only = _keyword_only(body)
        positional = operands[: len(operands) - len(keyword_only)]
        named = dict(zip(keyword_only, operands[len(positional) :], strict=True))
        if body.__code__.co_flags & inspect.CO_VARARGS:
            positional = [*positional[:-1], *positional[-1]]
        builder.set_grid_dim(x, y, z)
        index = (0, 0, 0)
        try:
            for linear in range(x * y * z):
                index = (linear % x, linear // x % y, linear // (x * y))
                builder.set_grid_idx(*index)
                body(*positional, **named)
        except Unavailable:
            raise
        except Exception as error:
            raise self._told(error, index) from error

    def _function(self, jit_function: Any) -> Callable[..., Any]:
        function = self._functions.get(id(jit_function))
        if function is None:
            function = self.bodies.function(jit_function, self._helpers)
            self._functions[id(jit_function)] = function
        return function

    def _told(self, error: Exception, index: tuple[int, int, int]) -> KernelError:
        where = _place(error.__traceback__, self.bodies.files)
        kind = "" if type(error).__name__ == "OutOfBounds" else f"{type(error).__name__}: "
        return KernelError(f'kernel "{self.kernel}"{where}, program {index}: {kind}{error}')


def _keyword_only(body: Any) -> list[str]:
    code = body.__code__
    start = code.co_argcount
    return list(code.co_varnames[start : start + code.co_kwonlyargcount])


def _place(traceback: TracebackType | None, files: set[str]) -> str:
    place = ""
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        # The library's own device functions are named only when nothing else is.
        if filename in files and (not place or "/triton/language/" not in filename):
            place = f" at {Path(filename).name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place


def _scalar(value: Any, dtype: Any) -> Any:
    return tl.core.tensor(TensorHandle(np.asarray(value).reshape(1), dtype), dtype)


def _options(metadata: Any) -> Any:
    debug = bool(metadata.debug)
    return interpreter.InterpreterOptions(
        debug=debug,
        sanitize_overflow=debug and bool(metadata.sanitize_overflow),
        default_dot_input_precision=metadata.default_dot_input_precision,
        allowed_dot_input_precisions=tuple(metadata.allowed_dot_input_precisions),
    )


def _device_library(target: Target) -> Any:
    from triton.compiler.compiler import make_backend

    return make_backend(target.gpu_target()).get_module_map()["triton.language.extra.libdevice"]
