"""Keep what plugins print away from standard output, which is for results."""

from __future__ import annotations

import io
import sys
from contextlib import AbstractContextManager, redirect_stdout, suppress


def prints_aside() -> AbstractContextManager[object]:
    """Send to stderr what is printed inside the block."""
    return redirect_stdout(_Aside())


class _Aside(io.TextIOBase):
    """Stderr, wherever it is now, closed or full: printing must not break a plugin."""

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        with suppress(OSError, ValueError, AttributeError):  # it may be None
            sys.stderr.write(text)
        return len(text)
