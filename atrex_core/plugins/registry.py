"""Named things of one kind, where each came from, and what could not be loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from attrs import field, frozen

from atrex_core.errors import UnknownName, UsageError
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

    def __getitem__(self, name: str) -> T:
        """Return the item called `name`, by whichever of its names.

        Raises:
            UnknownName: there is none; the hint has the closest name, those there are, and
                the plugins that were set aside and may have provided it.
        """
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
        """
        patterns = [pattern for glob in globs for pattern in self._patterns(glob)]
        chosen = {name for pattern in patterns for name in self._matching(pattern)}
        return tuple(item for name, item in self.items.items() if not patterns or name in chosen)

    def _patterns(self, glob: str) -> list[str]:
        found = [part.strip() for part in glob.split(",") if part.strip()]
        if not found:
            hint = f"leave it out to select every {self.kind}; {self._hint('')}"
            raise UsageError(f"an empty glob {glob!r} selects no {self.kind}", hint=hint)
        return found

    def _matching(self, pattern: str) -> set[str]:
        found = {name for name in self.items if fnmatchcase(name, pattern)}
        found = found or {n for alias, n in self.aliases.items() if fnmatchcase(alias, pattern)}
        if not found:
            hint = self._hint(pattern.strip("*?"))
            raise UnknownName(f"no {self.kind} matches {pattern!r}", hint=hint)
        return found

    def _hint(self, name: str) -> str:
        return "; ".join([did_you_mean(name, self.items), *map(str, self.quarantined)])
