"""The mutable half of `PluginHost`: load plugins, ask them what they provide, drop the broken.

A plugin may raise anything, `SystemExit` included, at any point: only Ctrl-C gets through.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from typing import Any

import pluggy
from attrs import define, evolve, field, frozen

from atrex_core import hookspecs
from atrex_core._project import PROJECT
from atrex_core.errors import AtrexError, PluginError
from atrex_core.interfaces.problem import BrokenProblem
from atrex_core.plugins.registry import BrokenItem, PluginOrigin, Quarantined, Registry
from atrex_core.plugins.turn import turn_of

log = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+/-]*")
"""No spaces, colons, commas or glob characters: names are typed, matched and joined to ids."""
_RESERVED = frozenset({"all"})


@frozen
class Provision:
    """A provide hook: what it is called, and what it may yield."""

    hook: str
    kind: str
    types: tuple[type, ...]
    taken: frozenset[str] = frozenset()
    """Names that are ours."""
    alias: str | None = None
    """The attribute that holds another name of an item, where items may have one."""
    stand_in: type[BrokenProblem] | None = None
    """What may be yielded in place of an item that cannot be loaded."""


@frozen
class Entry:
    """An installed plugin that is not loaded yet."""

    origin: PluginOrigin
    load: Callable[[], object]


def _manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


@define
class Loading:
    """Plugins on their way into a host."""

    provisions: tuple[Provision, ...]
    strict: bool = False
    """Raise instead of setting aside."""
    manager: pluggy.PluginManager = field(init=False, factory=_manager)
    origins: dict[str, PluginOrigin] = field(init=False, factory=dict)
    quarantined: list[Quarantined] = field(init=False, factory=list)
    _provided: dict[str, dict[str, list[Any]]] = field(init=False, factory=dict)
    """By plugin, then by hook."""

    def add(self, entry: Entry) -> None:
        """Import one plugin, check its hooks, and collect everything it provides.

        Raises:
            PluginError: it is broken, and this loading is strict.
        """
        name = entry.origin.plugin
        provided: dict[str, list[Any]] = {}
        where = "import"
        try:
            with turn_of(entry.origin):
                plugin = entry.load()
                where = "registration"
                self._register(plugin, name)
                for provision in self.provisions:
                    where = provision.hook
                    provided[where] = self._collect(name, provision)
                    self._note_broken(entry.origin, provision, provided[where])
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything, even SystemExit
            self.set_aside(quarantine(entry.origin, where, error))
        else:
            self.origins[name] = entry.origin
            self._provided[name] = provided

    def set_aside(self, broken: Quarantined) -> None:
        """Go on without a plugin.

        Raises:
            PluginError: this loading is strict.
        """
        name = broken.origin.plugin
        if self.manager.has_plugin(name):
            self.manager.unregister(name=name)
        if self.strict:
            message = f"plugin {broken.origin} failed in {broken.where}: {broken.cause}"
            raise PluginError(message) from broken.error
        log.warning("%s", broken)
        self.quarantined.append(broken)

    def _note_broken(
        self, origin: PluginOrigin, provision: Provision, items: Iterable[Any]
    ) -> None:
        """Say which items are set aside; what is wrong with them is said where they are wanted."""
        for item in items:
            if _is_stand_in(item, provision):
                broken = BrokenItem(origin, provision.kind, item.name, item.cause, item.error)
                if self.strict:
                    raise broken.refusal()
                log.warning("%s: `atrex-eval problems lint %s` says why", broken, item.name)

    def registry(self, provision: Provision) -> Registry[Any]:
        """Return what the surviving plugins provide of one kind.

        Raises:
            PluginError: two plugins provide the same name.
        """
        items: dict[str, Any] = {}
        owners: dict[str, PluginOrigin] = {}
        broken: dict[str, BrokenItem] = {}
        for plugin, origin in self.origins.items():
            for item in self._provided[plugin][provision.hook]:
                if _is_stand_in(item, provision):
                    found = BrokenItem(origin, provision.kind, item.name, item.cause, item.error)
                    broken.setdefault(item.name, found)
                    continue
                if item.name in items:
                    raise clash(provision.kind, item.name, owners[item.name], origin)
                items[item.name], owners[item.name] = item, origin
        aliases: dict[str, str] = {}
        for name, item in items.items():
            alias = _alias(item, provision)
            other = aliases.get(alias, alias)
            if other in items and other != name:
                first, second = sorted((other, name))
                both = (first, owners[first]), (second, owners[second])
                raise _alias_clash(provision, alias, *both)
            aliases[alias] = name
        return Registry(
            provision.kind,
            dict(sorted(items.items())),
            dict(sorted(owners.items())),
            {alias: name for alias, name in sorted(aliases.items()) if alias != name},
            tuple(self.quarantined),
            dict(sorted(broken.items())),
        )

    def _register(self, plugin: object, name: str) -> None:
        if plugin is None:
            raise TypeError("the entry point names None")
        self.manager.register(plugin, name=name)
        self.manager.check_pending()
        for hook in _hook_names():
            attribute = inspect.getattr_static(plugin, hook, None)
            found = self._implementations(hook, name)
            if attribute is not None and not found and callable(attribute):
                raise TypeError(f"{hook} is not marked with @hookimpl")
            for implementation in found:
                _check_callable(hook, implementation)

    def _collect(self, plugin: str, provision: Provision) -> list[Any]:
        items = [
            item
            for implementation in self._implementations(provision.hook, plugin)
            for item in _provided_by(implementation, provision.hook)
        ]
        names: set[str] = set()
        for item in items:
            if _is_stand_in(item, provision):
                continue
            name = _checked_name(item, provision)
            if name in names:
                raise ValueError(f"yielded two items named {name!r}")
            names.add(name)
            _check_alias(item, provision)
        return items

    def _implementations(self, hook: str, plugin: str) -> list[pluggy.HookImpl]:
        caller: pluggy.HookCaller = getattr(self.manager.hook, hook)
        return [found for found in caller.get_hookimpls() if found.plugin_name == plugin]


def installed() -> list[Entry | Quarantined]:
    """Return the installed plugins, in order of plugin name, so that two machines agree."""
    found: dict[tuple[str, str], Entry | Quarantined] = {}
    for distribution in metadata.distributions():
        for entry in _entries(distribution):
            # The first on the path is the one that imports; a later copy is shadowed.
            key = (entry.origin.plugin, _normalised(entry.origin.distribution))
            found.setdefault(key, entry)
    return [entry for _, entry in sorted(found.items(), key=lambda item: item[0])]


def clash(kind: str, name: str, first: PluginOrigin, second: PluginOrigin) -> PluginError:
    """Return the error for two plugins that want one name."""
    names = " or ".join(dict.fromkeys((first.plugin, second.plugin)))
    return PluginError(
        f"{kind} {name!r} is provided by {first} and by {second}",
        hint=f"uninstall one of them, or run with --disable-plugin {names}",
    )


def _alias_clash(
    provision: Provision,
    alias: str,
    first: tuple[str, PluginOrigin],
    second: tuple[str, PluginOrigin],
) -> PluginError:
    """Return the error for two items of which one has a name of the other as its second."""
    both = " and ".join(f"{name!r} of plugin {origin}" for name, origin in (first, second))
    plugins = " or ".join(dict.fromkeys(origin.plugin for _, origin in (first, second)))
    return PluginError(
        f"{provision.kind}s {both} both answer to {alias!r}",
        hint=f"give one of them another {_noun(provision)}, or run with --disable-plugin {plugins}",
    )


def quarantine(origin: PluginOrigin, where: str, error: BaseException) -> Quarantined:
    """Describe a failure of a plugin in one line, whatever it raised."""
    try:
        text = str(error).strip()
    except Exception:  # noqa: BLE001 - the plugin's own exception class may be broken as well
        text = "its message cannot be read"
    lines = text.splitlines()
    cause = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    if isinstance(error, AtrexError) and error.hint:
        cause += f" ({error.hint})"
    return Quarantined(origin, where, cause, error)


def _hook_names() -> list[str]:
    return [name for name in vars(hookspecs) if name.startswith("atrex_")]


def _check_callable(hook: str, implementation: pluggy.HookImpl) -> None:
    if implementation.wrapper or implementation.hookwrapper:
        raise TypeError(f"{hook} is a wrapper: no plugin stands between another and the evaluator")
    function = implementation.function
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{hook} is asynchronous: nothing would await it")
    returns = inspect.signature(getattr(hookspecs, hook)).return_annotation
    if returns == "None" and inspect.isgeneratorfunction(function):
        raise TypeError(f"{hook} yields, but is called for its effect: its body would never run")


def _provided_by(implementation: pluggy.HookImpl, hook: str) -> Iterable[Any]:
    if hook == "atrex_commands":
        return _commands(implementation)
    provided: Any = implementation.function()
    if provided is None:
        raise TypeError(f"{hook} returned None: yield the items, or return a list of them")
    return list(provided)


def _commands(implementation: pluggy.HookImpl) -> Iterable[Any]:
    # A group of its own, so that a plugin can add commands but not replace or remove ours.
    import click

    group = click.Group(name="atrex-eval")
    implementation.function(*[group for _ in implementation.argnames])
    for name, command in group.commands.items():
        command.name = name
    return list(group.commands.values())


def _checked_name(item: Any, provision: Provision) -> str:
    article = "an" if provision.kind[0] in "aeiou" else "a"
    if isinstance(item, type):
        raise TypeError(f"yielded the class {item.__name__}, not an instance of it")
    if not isinstance(item, provision.types):
        raise TypeError(f"yielded {type(item).__name__!r}, not {article} {provision.kind}")
    name = getattr(item, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _RESERVED:
        raise ValueError(f"yielded {article} {provision.kind} that cannot be named {name!r}")
    if name in provision.taken:
        raise ValueError(f"{provision.kind} {name!r} is one of atrex-eval's own")
    return name


def _is_stand_in(item: Any, provision: Provision) -> bool:
    return provision.stand_in is not None and isinstance(item, provision.stand_in)


def _alias(item: Any, provision: Provision) -> str:
    return str(getattr(item, provision.alias)) if provision.alias else str(item.name)


def _check_alias(item: Any, provision: Provision) -> None:
    if provision.alias is None:
        return
    alias: object = getattr(item, provision.alias)
    if alias == item.name:
        return
    if not isinstance(alias, str) or not alias.isidentifier() or not _NAME.fullmatch(alias):
        raise ValueError(
            f"{provision.kind} {item.name!r} has an unusable {_noun(provision)}: {alias!r}"
        )


def _noun(provision: Provision) -> str:
    return (provision.alias or "name").replace("_", " ")


def _entries(distribution: metadata.Distribution) -> Iterator[Entry | Quarantined]:
    try:
        entries = [entry for entry in distribution.entry_points if entry.group == PROJECT]
    except Exception as error:  # noqa: BLE001 - somebody else's damaged metadata must not stop us
        if f"[{PROJECT}]" in (distribution.read_text("entry_points.txt") or ""):
            yield quarantine(_origin(distribution), "its entry points", error)
        return
    if entries:
        origin = _origin(distribution)
        yield from (Entry(evolve(origin, plugin=entry.name), entry.load) for entry in entries)


def _origin(distribution: metadata.Distribution) -> PluginOrigin:
    """Return where the plugins of a distribution come from, under its own name."""
    try:
        facts = distribution.metadata  # parsed anew each time that it is asked for
        name, version = (facts[key] if key in facts else None for key in ("Name", "Version"))  # noqa: SIM401
    except Exception:  # noqa: BLE001 - damaged metadata: the plugin itself may still work
        name = version = None
    name = name or "unknown distribution"
    return PluginOrigin(name, name, version)


def _normalised(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
