"""Named things of one kind, where each came from, and what could not be loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from attrs import field, frozen

from atrex_core.errors import PluginError, UnknownName, UsageError
from atrex_core.suggest import did_you_mean

T = TypeVar("T")


@frozen
class PluginOrigin:
    """Where a plugin came from, for messages and for `list`."""

    plugin: str
    """Its entry-point name: what `--disable-plugin` takes."""
    distribution: str
    version: str | None = None

    def __str__(self) -> str:
        return f"{self.plugin!r} ({self.package})"

    @property
    def package(self) -> str:
        """The distribution with its version, as an installer would list it."""
        return f"{self.distribution} {self.version}" if self.version else self.distribution


@frozen
class Quarantined:
    """A plugin that was set aside, and why."""

    origin: PluginOrigin
    where: str
    """`import`, `registration`, or the hook that failed."""
    cause: str
    """One line: the type of the error and the first line of its message."""
    error: BaseException = field(eq=False, repr=False)
    """The error itself, for whoever wants the traceback."""

    def __str__(self) -> str:
        return f"plugin {self.origin} was set aside in {self.where}: {self.cause}"


@frozen
class BrokenItem:
    """One item that was set aside alone, while what else its plugin provides is in use."""

    origin: PluginOrigin
    kind: str
    name: str
    cause: str
    """One line."""
    error: BaseException | None = field(default=None, eq=False, repr=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} of plugin {self.origin} is broken, and set aside"

    def refusal(self) -> PluginError:
        """Return the error of whoever needs it."""
        error = PluginError(
            f"{self.kind} {self.name!r} of plugin {self.origin} is broken: {self.cause}",
            hint="mend the file that is named; what else the plugin provides can be used",
        )
        error.__cause__ = self.error
        return error


@frozen
class Registry(Generic[T]):
    """Named things of one kind, in name order; a failing lookup says what would have worked."""

    kind: str
    """What one item is called in messages: `backend`, `hardware profile`."""
    items: Mapping[str, T]
    """By name, in name order."""
    origins: Mapping[str, PluginOrigin]
    """By item name: the plugin that provides it."""
    aliases: Mapping[str, str] = field(factory=dict)
    """Item names by other names of the same items."""
    quarantined: tuple[Quarantined, ...] = ()
    broken: Mapping[str, BrokenItem] = field(factory=dict)
    """By name: items that were set aside alone."""

    def __getitem__(self, name: str) -> T:
        """Return the item called `name`, by whichever of its names.

        Raises:
            UnknownName: there is none; the hint has the closest name, those there are, and
                the plugins that were set aside and may have provided it.
            PluginError: it is broken.
        """
        if name in self.broken and name not in self:
            raise self.broken[name].refusal()
        try:
            return self.items[self.aliases.get(name, name)]
        except KeyError:
            raise UnknownName(f"no {self.kind} is named {name!r}", hint=self._hint(name)) from None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items.values())

    def __len__(self) -> int:
        return len(self.items)

    def __contains__(self, name: object) -> bool:
        return name in self.items or name in self.aliases

    @property
    def names(self) -> tuple[str, ...]:
        """The names, sorted."""
        return tuple(self.items)

    def select(self, *globs: str) -> tuple[T, ...]:
        """Return what any of `globs` matches, in name order; everything when there are none.

        Each glob may hold several, separated by commas. Case matters. What matches no name is
        looked for among the other names.

        Raises:
            UnknownName: one of the globs matches nothing.
            UsageError: one of the globs is empty.
            PluginError: one of them matches only what is broken.
        """
        for pattern in [p for glob in globs for p in self._patterns(glob)]:
            if not self._matching(pattern):
                raise self._broken_matching(pattern)[0].refusal()
        return self.select_broken(*globs)[0]

    def select_broken(self, *globs: str) -> tuple[tuple[T, ...], tuple[BrokenItem, ...]]:
        """Return what `select` does, and what is broken among that which `globs` match.

        Raises:
            UnknownName: one of the globs matches nothing, not even what is broken.
            UsageError: one of the globs is empty.
        """
        patterns = [pattern for glob in globs for pattern in self._patterns(glob)]
        chosen = {name for pattern in patterns for name in self._matching(pattern)}
        items = tuple(i for name, i in self.items.items() if not patterns or name in chosen)
        if not patterns:
            return items, tuple(self.broken.values())
        found = {b.name: b for pattern in patterns for b in self._broken_matching(pattern)}
        return items, tuple(found.values())

    def _patterns(self, glob: str) -> list[str]:
        found = [part.strip() for part in glob.split(",") if part.strip()]
        if not found:
            hint = f"leave it out to select every {self.kind}; {self._hint('')}"
            raise UsageError(f"an empty glob {glob!r} selects no {self.kind}", hint=hint)
        return found

    def _matching(self, pattern: str) -> set[str]:
        found = {name for name in self.items if fnmatchcase(name, pattern)}
        found = found or {n for alias, n in self.aliases.items() if fnmatchcase(alias, pattern)}
        if not found and not self._broken_matching(pattern):
            hint = self._hint(pattern.strip("*?"))
            raise UnknownName(f"no {self.kind} matches {pattern!r}", hint=hint)
        return found

    def _broken_matching(self, pattern: str) -> tuple[BrokenItem, ...]:
        return tuple(b for name, b in self.broken.items() if fnmatchcase(name, pattern))

    def _hint(self, name: str) -> str:
        return "; ".join(
            [did_you_mean(name, [*self.items, *self.broken]), *map(str, self.quarantined)]
        )
