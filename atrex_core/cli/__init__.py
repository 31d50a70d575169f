"""The command line: a client of `Session`."""

from atrex_core.cli.app import main

__all__ = ["main"]
