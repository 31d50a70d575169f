"""What Python code of a release may be made of: a small part of the language, and of torch.

A positive grammar: what is not named here is refused, whatever it may be good for.
"""

from __future__ import annotations

import ast
import builtins
import importlib
from collections.abc import Iterator
from types import BuiltinFunctionType, ModuleType
from typing import Any

from attrs import define, field

_TORCH = frozenset(
    {"torch", "torch.fft", "torch.linalg", "torch.nn", "torch.nn.functional", "torch.nn.init"}
    | {"torch.special"}
)
"""Modules whose tensor functions, types and constants public code may use."""
_OTHERS = frozenset(
    {"__future__", "collections.abc", "dataclasses", "enum", "functools", "itertools", "math"}
    | {"typing"}
)
"""Modules whose public names it may use."""
_TYPES = frozenset(
    {"Generator", "Size", "Tensor", "device", "dtype", "enable_grad", "finfo", "iinfo"}
    | {"inference_mode", "layout", "memory_format", "no_grad"}
)
"""Types that public code may take from torch itself."""
_ASKS = frozenset({"is_floating_point", "is_tensor", "manual_seed"})
"""What it may call there beside tensor functions."""
_NO_TENSORS = frozenset({"from_file", "frombuffer", "from_dlpack"})
"""Functions that torch lists with those of tensors, and that reach for files or memory."""
_MADE_IN = ("torch.nn", "torch._C", "torch._jit_internal", "torch.functional")
"""Modules in which Python functions of those modules are made."""
_BUILTINS = frozenset(
    {"abs", "all", "any", "bool", "bytes", "complex", "dict", "divmod", "enumerate", "filter"}
    | {"float", "frozenset", "int", "isinstance", "issubclass", "iter", "len", "list", "map"}
    | {"max", "min", "next", "object", "pow", "property", "range", "repr", "reversed", "round"}
    | {"set", "slice", "sorted", "staticmethod", "classmethod", "str", "sum", "super", "tuple"}
    | {"type", "zip", "chr", "ord", "Ellipsis", "NotImplemented"}
)
_NAMES = frozenset({"__name__", "__all__"})
_METHODS = frozenset({"__init__", "__post_init__"})
_REACHING = frozenset(
    {"from_file", "load", "load_library", "save", "tofile", "dump", "numpy", "__array__"}
    | {"data_ptr", "storage", "untyped_storage", "share_memory_"}
    | {"ForwardRef", "evaluate_forward_ref", "get_type_hints"}  # these run what a text says
    | {"singledispatch", "singledispatchmethod"}
    | {"ag_frame", "cr_frame", "f_back", "f_builtins", "f_globals", "f_locals", "gi_frame"}
    | {"tb_frame", "tb_next"}
)
"""Attributes by which an object gives away files, memory, or the code that uses it."""


def departures(text: str) -> Iterator[str]:
    """Yield what public code may not do, each with its line."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        yield f"is no Python: {error}"
        return
    grammar = _Grammar()
    grammar.visit(tree)
    seen = sorted(grammar.found)
    yield from (f"line {line}: {what}" for line, what in dict.fromkeys(seen))


@define(eq=False)
class _Grammar(ast.NodeVisitor):
    """Walks a module and notes what it may not hold."""

    found: list[tuple[int, str]] = field(factory=list)
    modules: dict[str, str] = field(factory=dict)
    """What names of modules stand for."""

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            if name.name not in _TORCH | _OTHERS:
                self._note(node, f"import of {name.name!r}")
            elif name.asname:
                self.modules[name.asname] = name.name
            else:
                top = name.name.partition(".")[0]
                self.modules[top] = top

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = f"{'.' * node.level}{node.module or ''}"
        for name in node.names:
            whole = f"{module}.{name.name}"
            if whole in _TORCH | _OTHERS:
                self.modules[name.asname or name.name] = whole
            elif module not in _TORCH | _OTHERS:
                self._note(node, f"import of {whole!r}")
            else:
                self._use(node, whole)

    def visit_Name(self, node: ast.Name) -> None:
        name = node.id
        if name in self.modules:
            self._note(node, f"{name} as a value")
        elif name.startswith("__"):
            if name not in _NAMES:
                self._note(node, name)
        elif hasattr(builtins, name) and isinstance(node.ctx, ast.Load):
            error = getattr(builtins, name)
            is_error = isinstance(error, type) and issubclass(error, Exception)
            if name not in _BUILTINS and not is_error:
                self._note(node, name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self._path(node)
        if path is not None:
            self._use(node, path)
            return
        self._reach(node, node.attr)
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(
                func=ast.Name(id="getattr"),
                args=[of, ast.Constant(value=str(name)), *rest],
                keywords=[],
            ) if len(rest) < 2:
                same = ast.Attribute(value=of, attr=name, ctx=ast.Load())
                self.visit(ast.copy_location(same, node))
                for argument in rest:
                    self.visit(argument)
            case _:
                self.generic_visit(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> None:
        for name in node.kwd_attrs:
            self._reach(node.cls, name)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name.startswith("__") and node.name not in _METHODS:
            self._note(node, f"definition of {node.name}")
        self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._note(node, "an asynchronous function")

    def visit_Global(self, node: ast.Global) -> None:
        self._note(node, "a global variable that is changed")

    def _note(self, node: ast.AST, what: str) -> None:
        self.found.append((getattr(node, "lineno", 0), what))

    def _reach(self, node: ast.AST, name: str) -> None:
        if name in _REACHING or (name.startswith("__") and name not in _METHODS):
            self._note(node, name)

    def _path(self, node: ast.Attribute) -> str | None:
        """Return `torch.nn.Module` where that is what is written, by whichever name."""
        names, inner = [node.attr], node.value
        while isinstance(inner, ast.Attribute):
            names.append(inner.attr)
            inner = inner.value
        if not isinstance(inner, ast.Name) or inner.id not in self.modules:
            return None
        return ".".join([self.modules[inner.id], *reversed(names)])

    def _use(self, node: ast.AST, path: str) -> None:
        if not _is_allowed(path):
            self._note(node, f"use of {path}")


def _is_allowed(path: str) -> bool:
    """Whether a dotted name is one of a module's that may be used, and none of those behind it."""
    names = path.split(".")
    last = max(i for i in range(len(names) + 1) if ".".join(names[:i]) in {*_TORCH, *_OTHERS, ""})
    module, rest = ".".join(names[:last]), names[last:]
    if not module or not rest:
        return False
    if any(name.startswith("_") or name in _REACHING for name in rest):
        return False
    return _is_torchs(module, rest) if module in _TORCH else _is_public(module, rest)


def _is_public(module: str, rest: list[str]) -> bool:
    found = importlib.import_module(module)
    value = getattr(found, rest[0], None)
    listed = getattr(found, "__all__", None) or vars(found)
    return value is not None and rest[0] in listed and not isinstance(value, ModuleType)


def _is_torchs(module: str, rest: list[str]) -> bool:
    """Whether a name is a tensor function, type or constant of torch, looked up in torch itself."""
    value: Any = importlib.import_module(module)
    name = rest[0]
    value = getattr(value, name, None)
    if value is None or isinstance(value, ModuleType):
        return False
    if module == "torch":
        return _is_torchs_own(name, value)
    if isinstance(value, type):
        return str(value.__module__).startswith("torch.nn")
    if isinstance(value, BuiltinFunctionType):
        return True
    return callable(value) and str(getattr(value, "__module__", None)).startswith(_MADE_IN)


def _is_torchs_own(name: str, value: object) -> bool:
    import torch

    if name in _TYPES | _ASKS:
        return True
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format | float):
        return True
    tensor_functions = {*dir(vars(torch._C)["_VariableFunctions"]), *torch.functional.__all__}
    return name in tensor_functions - _NO_TENSORS
