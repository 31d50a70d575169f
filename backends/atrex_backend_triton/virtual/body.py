"""Turns the syntax tree that was compiled into Python that executes one program of a grid."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from attrs import field, frozen, mutable
from triton.runtime import interpreter

from atrex_backend_triton.virtual.language import Language, helpers

_BOOLEAN = {ast.And: "__atrex_all", ast.Or: "__atrex_any"}


class _Translator(interpreter.ASTTransformer):
    """The interpreter's own rewriting, and operators on which Python asks for a truth value."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:  # noqa: N802  # ast's naming
        self.generic_visit(node)
        thunks = [
            ast.Lambda(
                args=ast.arguments(
                    posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[]
                ),
                body=value,
            )
            for value in node.values
        ]
        return _call(_BOOLEAN[type(node.op)], thunks, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:  # noqa: N802  # ast's naming
        self.generic_visit(node)
        return _call("__atrex_not", [node.operand], node) if isinstance(node.op, ast.Not) else node

    def visit_If(self, node: ast.If) -> ast.stmt:  # noqa: N802  # ast's naming
        self.generic_visit(node)
        node.test = _call("__atrex_test", [node.test], node.test)
        return node

    def visit_While(self, node: ast.While) -> ast.stmt:  # noqa: N802  # ast's naming
        self.generic_visit(node)
        node.test = _call("__atrex_test", [node.test], node.test)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:  # noqa: N802  # ast's naming
        self.generic_visit(node)
        node.test = _call("__atrex_test", [node.test], node.test)
        return node

    def visit_Assign(self, node: ast.Assign) -> Any:  # noqa: N802  # ast's naming
        # Older versions rewrite the assignment without looking into its value.
        node.value = self.visit(node.value)
        return super().visit_Assign(node)


def _call(name: str, args: list[Any], at: ast.AST) -> ast.expr:
    call = ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=args, keywords=[])
    return ast.copy_location(call, at)


@frozen
class _Translation:
    source: str
    code: CodeType
    names: frozenset[str]


@mutable
class Bodies:
    """Translated bodies, each kept until its source changes."""

    language: Language
    _translations: dict[int, _Translation] = field(factory=dict, init=False)
    files: set[str] = field(factory=set, init=False)
    """Where the kernels come from: frames in these files are theirs."""

    def function(self, jit_function: Any, known: Mapping[str, Any]) -> FunctionType:
        """Return an executable form of `jit_function`, bound to its globals of this moment."""
        translation = self._translations.get(id(jit_function))
        if translation is None or translation.source is not jit_function.src:
            translation = self._translate(jit_function)
            self._translations[id(jit_function)] = translation
        scope = jit_function.get_capture_scope()
        namespace: dict[str, Any] = {"__builtins__": builtins, **known}
        for name in translation.names:
            if name in scope:
                namespace[name] = self.language.executable(scope[name])
        python = jit_function.fn
        function = FunctionType(
            translation.code, namespace, python.__name__, python.__defaults__, None
        )
        function.__kwdefaults__ = python.__kwdefaults__
        return function

    def helpers(self) -> Mapping[str, Any]:
        """Return the names that every body may use."""
        return helpers(self.language)

    def _translate(self, jit_function: Any) -> _Translation:
        tree = jit_function.parse()
        definition = tree.body[0]
        # Evaluated where the kernel was defined; the values are taken from there.
        definition.returns = None
        definition.decorator_list = []
        for argument in _arguments(definition.args):
            argument.annotation = None
        placeholder = ast.Constant(value=None)
        definition.args.defaults = [placeholder for _ in definition.args.defaults]
        definition.args.kw_defaults = [d and placeholder for d in definition.args.kw_defaults]
        tree = ast.fix_missing_locations(_Translator().visit(tree))
        ast.increment_lineno(tree, first_line(jit_function) - 1)
        filename = jit_function.fn.__code__.co_filename
        self.files.add(filename)
        module = compile(tree, filename, "exec")
        code = next(const for const in module.co_consts if isinstance(const, CodeType))
        return _Translation(jit_function.src, code, frozenset(_names(code)))


def first_line(jit_function: Any) -> int:
    """Return the line of the file where the function's `def` stands."""
    for offset, line in enumerate(jit_function.raw_src):
        if line.strip().startswith("def "):
            return int(jit_function.starting_line_number) + offset
    return int(jit_function.starting_line_number)


def _arguments(args: ast.arguments) -> Iterator[ast.arg]:
    yield from (*args.posonlyargs, *args.args, *args.kwonlyargs)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)
