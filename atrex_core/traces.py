"""Where in somebody else's code an error was raised."""

from __future__ import annotations

import traceback
from pathlib import Path

_OURS = Path(__file__).parent
_PASSED_OVER = frozenset({"torch", "importlib"})
"""Libraries in which the errors of their callers surface."""


def raised_at(error: BaseException) -> str | None:
    """Return the file and line that raised, such as `my_norm/private.py:12`.

    Of a syntax error, where it stands; else the innermost line that is neither ours nor a
    library's, or the innermost of all.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return _place(error.filename, error.lineno)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.lineno is not None]
    if not frames:
        return None
    theirs = [frame for frame in frames if _is_theirs(frame.filename)]
    last = (theirs or frames)[-1]
    return _place(last.filename, last.lineno or 0)


def _is_theirs(filename: str) -> bool:
    path = Path(filename)
    is_ours = path.is_relative_to(_OURS)
    return not is_ours and not filename.startswith("<") and _PASSED_OVER.isdisjoint(path.parts)


def _place(filename: str, line: int) -> str:
    return f"{'/'.join(Path(filename).parts[-2:])}:{line}"
