"""What lies in a folder, told without following a link or opening anything."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from atrex_core.beside import FILE_MODE, FOLDER_MODE

ROOT = "."
"""The folder itself."""
TIME_S = 315532800
"""When everything in a release is said to have been changed: the first moment of 1980, UTC."""
_LABELS = frozenset({"security.selinux"})
"""Extended attributes that a system gives every file by itself."""


@frozen(kw_only=True)
class Entry:
    """One thing in a folder, or the folder itself."""

    path: str
    """Relative to the folder; bytes that are no text as the system's encoding escapes them."""
    mode: int
    links: int = 1
    time_ns: int = 0
    attributes: tuple[str, ...] = ()
    """Names of its extended attributes."""

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def departures(self) -> Iterator[str]:
        """Yield what is not as a build leaves a file or folder."""
        if not (self.is_file or self.is_folder):
            return
        mode, built = stat.S_IMODE(self.mode), FILE_MODE if self.is_file else FOLDER_MODE
        if mode != built:
            yield f"{self.path!r} has mode {mode:o}, not {built:o}"
        if self.is_file and self.links > 1:
            yield f"{self.path!r} has {self.links} hard links"
        yield from (f"{self.path!r} has the extended attribute {n!r}" for n in self.attributes)
        if self.time_ns != TIME_S * 10**9:
            yield f"{self.path!r} has a time of its own"


def scan(folder: Path) -> list[Entry]:
    """Return everything below `folder`, sorted by path.

    Raises:
        OSError: it cannot be looked into.
    """
    return sorted(_below(folder, ""), key=lambda entry: entry.path)


def entry_of(path: Path, name: str) -> Entry:
    """Return what `path` is, under the name by which it is told of.

    Raises:
        OSError: it cannot be looked at.
    """
    found = path.lstat()
    return Entry(
        path=name,
        mode=found.st_mode,
        links=found.st_nlink,
        time_ns=found.st_mtime_ns,
        attributes=tuple(_attributes(path)),
    )


def _below(folder: Path, prefix: str) -> Iterator[Entry]:
    for name in os.listdir(folder):  # noqa: PTH208 - names as they are, escaped
        entry = entry_of(folder / name, f"{prefix}{name}")
        yield entry
        if entry.is_folder:
            yield from _below(folder / name, f"{entry.path}/")


def _attributes(path: Path) -> list[str]:
    try:
        found = os.listxattr(path, follow_symlinks=False)
    except OSError:  # a file system without them
        return []
    return sorted(name for name in found if name not in _LABELS)
