"""Switches `triton.language` between compiling and executing.

While a body is executed, the language's functions act on numpy-backed tensors. Afterwards they
are as they were, so that the next kernel compiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import triton.language as tl
from triton.language.extra import libdevice
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

from atrex_backend_triton.virtual import reduction
from atrex_backend_triton.virtual.builder import Builder
from atrex_core import Unavailable

_ABSENT = object()
_jit_function: Any = JITFunction


class Language:
    """The executing form of the language for one target."""

    def __init__(self, builder: Builder, device_library: ModuleType) -> None:
        self.semantic: Any = TritonSemantic(builder)
        self._device_library = device_library
        self._changes = self._collect_changes()
        self._by_original = {
            id(original): new
            for _, _, new, original in self._changes
            if original is not _ABSENT and callable(original)
        }

    @contextmanager
    def executing(self, call_function: Callable[..., Any]) -> Iterator[None]:
        """Make the language execute inside the block. `call_function` runs device functions."""

        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            return call_function(function, args, kwargs)

        compiling_call = _jit_function.__call__
        _jit_function.__call__ = call
        for owner, name, new, _ in self._changes:
            setattr(owner, name, new)
        try:
            yield
        finally:
            for owner, name, _, original in self._changes:
                if original is _ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)
            _jit_function.__call__ = compiling_call

    def executable(self, value: Any) -> Any:
        """Return what a kernel's global `value`, as imported by name, stands for here."""
        if new := self._by_original.get(id(value)):
            return new
        return self._bound(value) if tl.core.is_builtin(value) else value

    def _bound(self, builtin: Any) -> Callable[..., Any]:
        semantic = self.semantic
        # The decorator's own layer only checks for what is passed here.
        function = getattr(builtin, "__wrapped__", builtin)

        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = semantic
            return function(*args, **kwargs)

        return call

    def _collect_changes(self) -> list[tuple[Any, str, Any, Any]]:
        """Return (owner, attribute, executing form, compiling form) of all that differs."""
        before: dict[tuple[int, str], tuple[Any, str, Any]] = {}

        class Scope(interpreter._LangPatchScope):
            def set_attr(self, obj: Any, name: str, value: object) -> None:
                before.setdefault((id(obj), name), (obj, name, vars(obj).get(name, _ABSENT)))
                setattr(obj, name, value)

        scope = Scope()
        try:
            interpreter._patch_lang_tensor(tl.core.tensor, scope)
            for module in (tl, tl.core):
                interpreter._patch_lang_core(module, scope)
            for owner, name, value in self._overrides():
                scope.set_attr(owner, name, value)
            changed = [
                (owner, name, vars(owner)[name], original)
                for owner, name, original in before.values()
            ]
        finally:
            for owner, name, original in before.values():
                if original is _ABSENT:
                    delattr(owner, name)
                else:
                    setattr(owner, name, original)
        return changed

    def _overrides(self) -> Iterator[tuple[Any, str, Any]]:
        tensor = tl.core.tensor
        owners: list[Any] = [tl, tl.core, tl.math, tensor, tl.core.tensor_descriptor_base]
        for owner in [*owners, self._device_library]:
            for name, member in dict(vars(owner)).items():
                if tl.core.is_builtin(member):
                    yield owner, name, self._bound(member)
        for name, member in dict(vars(tensor)).items():
            if isinstance(member, JITFunction):
                yield tensor, name, _method(member)
        # What compilation resolves by module, execution resolves by name.
        for name, stub in dict(vars(libdevice)).items():
            vendor = vars(self._device_library).get(name)
            if callable(stub) and vendor is not None:
                yield libdevice, name, self._bound(vendor)
        for owner in (tl, tl.core, tensor):
            yield owner, "reduce", reduction.reduce
            yield owner, "associative_scan", reduction.scan
        for owner in (tl, tl.core):
            yield owner, "map_elementwise", _beyond_us("map_elementwise")
            if not hasattr(interpreter.InterpreterBuilder, "create_dot_scaled"):
                yield owner, "dot_scaled", _beyond_us("dot_scaled")
        yield tensor, "__index__", _index
        # A type is its own representation here; older versions do not know all of them.
        yield tl.dtype, "to_ir", _own_type
        yield tensor, "__bool__", _truth


def _method(function: Any) -> Callable[..., Any]:
    # A compiled function is no descriptor: as an attribute of a class it would lose `self`.
    def method(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        return function(tensor, *args, **kwargs)

    return method


def _beyond_us(name: str) -> Callable[..., Any]:
    def refuse(*_args: Any, **_kwargs: Any) -> Any:
        raise Unavailable(
            f"{name} cannot be executed on a virtual device with this version of triton",
            hint="run this kernel on the hardware itself",
        )

    return refuse


def _own_type(dtype: Any, _builder: Any) -> Any:
    return dtype


def _index(tensor: Any) -> int:
    return int(tensor.handle.data.item())


def _truth(tensor: Any) -> bool:
    # The library itself asks whether an optional block was given at all.
    return tensor.handle.data.size != 1 or bool(tensor.handle.data.item())


def helpers(language: Language) -> Mapping[str, Any]:
    """Return the names that translated bodies use beside the kernel's own."""
    return {
        "interpreter_semantic": language.semantic,
        "_InterpreterComparison": getattr(interpreter, "_InterpreterComparison", None),
        "__atrex_all": _all_of,
        "__atrex_any": _any_of,
        "__atrex_not": _negation,
        "__atrex_test": _condition,
    }


def _all_of(*operands: Callable[[], Any]) -> Any:
    """Evaluate `a and b` as the compiler does: tensors combine, constants short-circuit."""
    return _boolean(operands, decisive=False, method="logical_and")


def _any_of(*operands: Callable[[], Any]) -> Any:
    """Evaluate `a or b` as the compiler does."""
    return _boolean(operands, decisive=True, method="logical_or")


def _boolean(operands: tuple[Callable[[], Any], ...], *, decisive: bool, method: str) -> Any:
    tensors = []
    value: Any = None
    for operand in operands:
        value = operand()
        if isinstance(value, tl.core.tensor):
            tensors.append(value)
        elif bool(value) is decisive:
            return value
    if not tensors:
        return value
    result = tensors.pop()
    while tensors:
        result = getattr(tensors.pop(), method)(result)
    return result


def _condition(value: Any) -> Any:
    """Return what a statement branches on."""
    if isinstance(value, tl.core.tensor) and value.handle.data.size != 1:
        raise reduction.BlockTruth("a block of several values was used as one condition")
    return value


def _negation(operand: Any) -> Any:
    if isinstance(operand, tl.core.tensor):
        return operand.__not__()
    return not operand
