"""Where tables go: stdout, as wide as they need to be when it is not a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 240


def console() -> Console:
    """Return a console on stdout that never wraps a row of a piped table."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(file=sys.stdout, width=width, highlight=False, emoji=False)
