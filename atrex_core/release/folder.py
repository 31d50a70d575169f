"""What lies in a folder, told without following a link or opening anything."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen


@frozen(kw_only=True)
class Entry:
    """One thing below a folder."""

    path: str
    """Relative to the folder; bytes that are no text as the system's encoding escapes them."""
    mode: int

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)


def scan(folder: Path) -> list[Entry]:
    """Return everything below `folder`, sorted by path.

    Raises:
        OSError: it cannot be looked into.
    """
    return sorted(_below(folder, ""), key=lambda entry: entry.path)


def _below(folder: Path, prefix: str) -> Iterator[Entry]:
    with os.scandir(folder) as listing:
        found = [(entry.name, entry.stat(follow_symlinks=False).st_mode) for entry in listing]
    for name, mode in found:
        entry = Entry(path=f"{prefix}{name}", mode=mode)
        yield entry
        if entry.is_folder:
            yield from _below(folder / name, f"{entry.path}/")
