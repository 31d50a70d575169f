"""Claims about a release's folder itself: what lies in it, and that a build gives it again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attrs import frozen

from atrex_core.errors import AtrexError
from atrex_core.interfaces import Problem
from atrex_core.release.claims import Claim, claim
from atrex_core.release.contents import (
    MANIFEST,
    Manifest,
    Release,
    parse_manifest,
    release_of,
)
from atrex_core.release.folder import ROOT, Entry, entry_of, scan
from atrex_core.release.readme import README
from atrex_core.release.view import VIEW

_SUBJECT = "folder"
_MOST_BYTES = 16 * 2**20
"""No file of a release is larger; what is, is not read."""


@frozen(kw_only=True)
class Folder:
    """A folder as it was found."""

    path: Path
    root: Entry
    entries: Sequence[Entry]
    """Everything below it."""
    files: Mapping[str, bytes]
    """Content of every regular file, by relative path."""
    too_large: Sequence[str]

    @classmethod
    def read(cls, path: Path) -> Folder:
        """Read every regular file of a folder; links are not followed.

        Raises:
            OSError: it cannot be read.
        """
        entries = scan(path)
        files, too_large = {}, []
        for entry in entries:
            if entry.is_file:
                place = path / entry.path
                if place.stat().st_size > _MOST_BYTES:
                    too_large.append(entry.path)
                else:
                    files[entry.path] = place.read_bytes()
        root = entry_of(path.resolve(), ROOT)
        return cls(path=path, root=root, entries=entries, files=files, too_large=too_large)

    def manifest(self) -> Manifest:
        """Return its manifest.

        Raises:
            ValueError: there is none that can be understood.
        """
        if MANIFEST not in self.files:
            raise ValueError(f"there is no file {MANIFEST}")
        return parse_manifest(self.files[MANIFEST])


def folder_claims(folder: Folder, manifest: Manifest | None, why: str) -> Iterator[Claim]:
    """Yield what can be said of the folder alone; `why` says what is wrong with its manifest."""
    text = "the manifest is well-formed and its digest is its own"
    if manifest is None:
        yield claim(_SUBJECT, text, [why])
        return
    wrong = [] if manifest.digest == manifest.own_digest else ["the digest is another's"]
    yield claim(_SUBJECT, text, wrong, proved=manifest.digest)
    yield claim(
        _SUBJECT,
        "every file is as the manifest lists it",
        _changed(folder, manifest),
        proved=f"{len(manifest.files)} files",
    )
    yield claim(
        _SUBJECT,
        "nothing else is there: no further file, folder or link",
        _beyond(folder, manifest),
        proved=f"{len(folder.entries)} entries",
    )
    yield claim(
        _SUBJECT,
        "modes and times are those of a build; no attribute or hard link",
        (found for entry in (folder.root, *folder.entries) for found in entry.departures()),
        proved=f"{len(folder.entries) + 1} entries",
    )
    yield claim(
        _SUBJECT,
        "only files of the allow-list are there",
        (f"{name!r}" for name in _not_allowed(folder, manifest)),
        proved=f"{', '.join(VIEW)} for each problem, {README}, {MANIFEST}",
    )


def rebuilt(problems: Sequence[Problem] | str) -> Release | str:
    """Return the release that `problems` give now, or why there is none."""
    if isinstance(problems, str):
        return problems
    try:
        return release_of(problems)
    except AtrexError as error:
        return str(error)


def rebuild_claim(folder: Folder, again: Release | str) -> Claim:
    """Return the claim that a folder is what was built `again`, to the byte."""
    text = "the installed packs give the same release"
    if isinstance(again, str):
        return claim(_SUBJECT, text, [again])
    names = sorted({*again.files, *folder.files})
    wrong = [f"{n!r} differs" for n in names if again.files.get(n) != folder.files.get(n)]
    return claim(_SUBJECT, text, wrong, proved=f"digest {again.digest}")


def _changed(folder: Folder, manifest: Manifest) -> Iterator[str]:
    for listed in manifest.files:
        content = folder.files.get(listed.path)
        if content is None:
            yield f"{listed.path!r} is missing"
        elif len(content) != listed.bytes or hashlib.sha256(content).hexdigest() != listed.sha256:
            yield f"{listed.path!r} was changed"


def _beyond(folder: Folder, manifest: Manifest) -> Iterator[str]:
    files = {MANIFEST, *(listed.path for listed in manifest.files)}
    folders = {str(parent) for name in files for parent in Path(name).parents}
    for entry in folder.entries:
        is_known = entry.path in (files if entry.is_file else folders if entry.is_folder else ())
        if not is_known:
            yield f"{entry.path!r} is no part of it"
    yield from (f"{name!r} is too large to be part of it" for name in folder.too_large)


def _not_allowed(folder: Folder, manifest: Manifest) -> Iterator[str]:
    allowed = {MANIFEST, README}
    allowed |= {f"{problem}/{name}" for problem in manifest.problems for name in VIEW}
    for entry in folder.entries:
        if entry.path not in allowed | {*manifest.problems}:
            yield entry.path
    yield from sorted({listed.path for listed in manifest.files} - allowed)
