"""Tells the compiler's own words from any other failure of a candidate.

Imports triton when imported.
"""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

from attrs import frozen
from triton.compiler.errors import CompilationError
from triton.runtime.errors import AutotunerError, OutOfResources, PTXASError

_LINES = 20
_MARK = "__atrex_blame__"
_EXCERPT = re.compile(r"at \d+:\d+:\n(?P<excerpt>.*\n *\^)(?:\n|$)", re.DOTALL)
_REMARK = re.compile(
    r"^(?:(?P<file>\S+\.py):(?P<line>\d+):\d+: )?.*\b(?:error|LLVM ERROR): .*$", re.MULTILINE
)
_NOT_THE_COMPILERS = (OSError, MemoryError)
"""What the machine did while compiling: nobody's source is to blame."""


@frozen
class _Blame:
    function: Any
    output: str


def blame(error: Exception, function: Any, output: str) -> None:
    """Note on `error` that compiling `function` raised it, and what the compiler printed."""
    if not isinstance(error, _NOT_THE_COMPILERS):
        setattr(error, _MARK, _Blame(function, output))


def describe(error: BaseException | None) -> str | None:
    """Return why the compiler, or a limit of the device, refused the code; None if neither did.

    A candidate may have wrapped the error in one of its own.
    """
    while error is not None:
        blamed: _Blame | None = getattr(error, _MARK, None)
        if isinstance(error, CompilationError):
            return _trimmed(_compilation_message(error, blamed))
        if isinstance(error, (OutOfResources, PTXASError, AutotunerError)):
            return _trimmed(str(error))
        if blamed is not None:
            return _trimmed(_pass_message(error, blamed))
        error = error.__cause__
    return None


def _compilation_message(error: CompilationError, blamed: _Blame | None) -> str:
    """Put what is wrong first, then the author's own source up to the caret.

    The compiler reports from the inside out: what is wrong may be found in its own library, but
    what is to be mended is the innermost line of the kernel itself.
    """
    chain: list[Any] = [error]
    while isinstance(chain[-1].__cause__, CompilationError):
        chain.append(chain[-1].__cause__)
    reason = chain[-1].error_message or repr(chain[-1].__cause__ or chain[-1])
    function = blamed.function if blamed else None
    theirs = [e for e in chain if _is_in_the_file_of(function, e.src)]
    shown = theirs[-1] if theirs else chain[-1]
    line = getattr(shown.node, "lineno", None)
    place = ""
    # In a device function of its own, the line is that function's: the excerpt shows it.
    if function is not None and line is not None and shown.src == function.src:
        name = Path(function.fn.__code__.co_filename).name
        place = f"{name}:{_file_line(function, line)}: "
    match = _EXCERPT.search(str(shown))
    excerpt = match["excerpt"] if match else str(shown)
    return f"{place}{reason}\n{excerpt}"


def _is_in_the_file_of(function: Any, source: str | None) -> bool:
    if function is None or not source:
        return False
    return source.strip() in "".join(linecache.getlines(function.fn.__code__.co_filename))


def _file_line(function: Any, line: int) -> int:
    for offset, text in enumerate(function.raw_src):
        if text.strip().startswith("def "):
            return int(function.starting_line_number + offset + line - 1)
    return int(function.starting_line_number + line - 1)


def _pass_message(error: BaseException, blamed: _Blame) -> str:
    """Put the first thing that the pass printed before the bare fact that it failed."""
    said = f"{type(error).__name__}: {error}"
    lines = []
    for remark in _REMARK.finditer(blamed.output):
        text = remark[0]
        if remark["file"]:
            text = f"{Path(remark['file']).name}{text.removeprefix(remark['file'])}"
            text += "\n" + linecache.getline(remark["file"], int(remark["line"])).rstrip()
        lines.append(text)
    return "\n".join([*lines[:1], said, *lines[1:]])


def _trimmed(message: str) -> str:
    lines = message.rstrip().splitlines()
    if len(lines) <= _LINES:
        return "\n".join(lines)
    # The first line says what, the last ones show where.
    return "\n".join([lines[0], "...", *lines[-(_LINES - 2) :]])
