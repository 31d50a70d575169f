"""The command line: a client of `Session`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        from atrex_core.cli import app
    except KeyboardInterrupt:  # while modules were imported; later, the application explains it
        if sys.stderr is not None:
            sys.stderr.write("error: interrupted\nhint: nothing was begun\n")
        sys.exit(130)
    app.main(arguments)
