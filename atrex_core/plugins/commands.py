"""The commands that plugins add, for a list of them: a plugin that can add none is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from atrex_core._project import PROJECT

if TYPE_CHECKING:
    import click

_HOOK = "atrex_commands"


def listed_commands() -> Mapping[str, click.Command]:
    """Return the commands of every plugin whose module has the name of their hook written in it.

    One that makes the hook up at run time is missed here, and here alone: its commands work.

    Raises:
        PluginError: two plugins want one name.
    """
    names = _able()
    if not names:
        return {}
    from atrex_core.plugins.host import PluginHost

    return PluginHost.discover(only=names).commands.items


def _able() -> set[str]:
    names: set[str] = set()
    for distribution in metadata.distributions():
        with suppress(Exception):  # damaged: whoever loads the plugins says so
            points = [point for point in distribution.entry_points if point.group == PROJECT]
            names |= {point.name for point in points if _may_add(point.value)}
    return names


def _may_add(target: str) -> bool:
    """Return whether what an entry point names may have the hook, as far as its source tells."""
    if not target.isidentifier():
        return True  # inside something that only running code can find
    try:
        loader: Any = find_spec(target).loader  # type: ignore[union-attr]
        source: str | None = loader.get_source(target)
    except Exception:  # noqa: BLE001 - missing, damaged or no Python: importing it says what is wrong
        return True
    return source is None or _HOOK in source or "import *" in source
