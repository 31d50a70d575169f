"""Calls into a plugin outside of its hooks: what it raises is charged to it, by name.

What it prints goes to stderr: standard output is for results, and a plugin is not one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from atrex_core.errors import AtrexError, PluginError
from atrex_core.plugins.loading import quarantine
from atrex_core.plugins.registry import Registry
from atrex_core.plugins.turn import turn_of


@contextmanager
def blaming(registry: Registry[Any], name: str) -> Iterator[None]:
    """Run a block that asks the item called `name` of `registry`.

    Raises:
        PluginError: the block raised anything but an `AtrexError` or Ctrl-C.
    """
    origin = registry.origins[name]
    try:
        with turn_of(origin):
            yield
    except (AtrexError, KeyboardInterrupt):
        raise
    except BaseException as error:
        cause = quarantine(origin, registry.kind, error).cause
        raise PluginError(
            f"{registry.kind} {name!r} of plugin {origin} is broken: {cause}",
            hint=f"update it, or run with --disable-plugin {origin.plugin}",
        ) from error
