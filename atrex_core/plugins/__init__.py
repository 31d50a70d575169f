"""Find plugins, survive the broken ones, and look up by name what the others provide.

What is here is loaded when it is first asked for: to know whose turn it is takes none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atrex_core.plugins.host import PluginHost, Profile
    from atrex_core.plugins.registry import PluginOrigin, Quarantined, Registry

__all__ = ["PluginHost", "PluginOrigin", "Profile", "Quarantined", "Registry"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("atrex_core.plugins.host"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
