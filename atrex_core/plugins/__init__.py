"""Find plugins, survive the broken ones, and look up by name what the others provide."""

from atrex_core.plugins.host import PluginHost, Profile
from atrex_core.plugins.registry import PluginOrigin, Quarantined, Registry

__all__ = ["PluginHost", "PluginOrigin", "Profile", "Quarantined", "Registry"]
