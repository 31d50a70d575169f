"""The constants of Python code, put together as the interpreter would: `"lo" + "ad"` is `load`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_MOST = 10_000
"""Characters, or bits, of a value that is still put together."""
_SMALL = 64
"""Largest right operand of what can grow."""
_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
_METHODS = frozenset(
    {"capitalize", "decode", "encode", "fromhex", "hex", "join", "lower", "lstrip", "removeprefix"}
    | {"removesuffix", "replace", "rstrip", "strip", "swapcase", "title", "upper"}
)
"""Methods of texts and bytes that give nothing larger than what they are given."""
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "bytes": lambda value: bytes(value) if isinstance(value, list | tuple | bytes) else None,
    "chr": chr,
    "reversed": lambda value: list(reversed(value)),
    "str": str,
}
_Known = Mapping[str, Any]


class _Open(Exception):
    """An expression is not constant."""


def constants_of(text: str) -> Iterator[str]:
    """Yield the value of every largest constant expression, and of every text with gaps."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    known: dict[str, Any] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                try:
                    known[name] = folded(value, known)
                except _Open:
                    known.pop(name, None)
    yield from _constants(tree, known)


def folded(node: ast.AST, known: _Known) -> Any:
    """Return the value of a constant expression.

    Raises:
        _Open: it is none.
    """
    try:
        value = _folded(node, known)
    except _Open:
        raise
    except Exception as error:  # whatever an operation does not like
        raise _Open from error
    if isinstance(value, str | bytes | list | tuple) and len(value) > _MOST:
        raise _Open
    if isinstance(value, int) and value.bit_length() > _MOST:
        raise _Open
    return value


def _constants(node: ast.AST, known: _Known) -> Iterator[str]:
    if isinstance(node, ast.expr):
        try:
            yield from _told(folded(node, known))
        except _Open:
            pass
        else:
            if not isinstance(node, ast.List | ast.Tuple):
                return
        if isinstance(node, ast.JoinedStr):
            yield "".join(_part(value, known) for value in node.values)
    for child in ast.iter_child_nodes(node):
        yield from _constants(child, known)


def _told(value: Any) -> Iterator[str]:
    match value:
        case list() | tuple():
            for inner in value:
                yield from _told(inner)
        case bytes():
            yield value.decode("latin-1")
        case _:
            yield str(value)


def _part(node: ast.expr, known: _Known) -> str:
    try:
        return str(folded(node, known))
    except _Open:
        return " "


def _folded(node: ast.AST, known: _Known) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [folded(element, known) for element in elements]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -folded(operand, known)
        case ast.BinOp(left=left, op=op, right=right):
            values = folded(left, known), folded(right, known)
            if _may_be_large(op, *values):
                raise _Open
            return _OPERATORS[type(op)](*values)
        case ast.JoinedStr(values=values):
            return "".join(str(folded(value, known)) for value in values)
        case ast.FormattedValue(value=value, format_spec=None):
            return folded(value, known)
        case ast.Subscript(value=value, slice=where):
            return folded(value, known)[_index(where, known)]
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](folded(argument, known))
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=arguments, keywords=[]) if (
            name in _METHODS
        ):
            of = bytes if isinstance(value, ast.Name) and value.id == "bytes" else None
            receiver = of or folded(value, known)
            if not (of or isinstance(receiver, str | bytes)):
                raise _Open
            return getattr(receiver, name)(*(folded(argument, known) for argument in arguments))
    raise _Open


def _may_be_large(op: ast.operator, left: Any, right: Any) -> bool:
    match op:
        case ast.Mod():
            return isinstance(left, str | bytes) and not isinstance(right, str | list)
        case ast.Mult():
            is_number = isinstance(left, int | float) and isinstance(right, int | float)
            return not is_number and isinstance(right, int) and right > _SMALL
        case ast.Pow() | ast.LShift():
            return isinstance(right, int) and abs(right) > _SMALL
        case _:
            return False


def _index(node: ast.expr, known: _Known) -> Any:
    if isinstance(node, ast.Slice):
        parts = (node.lower, node.upper, node.step)
        return slice(*(None if part is None else folded(part, known) for part in parts))
    return folded(node, known)
