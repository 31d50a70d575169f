"""A whole release in memory: the views of some problems, a README, and a manifest over all.

The same problems give the same bytes, on any machine and at any time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from atrex_core.errors import UsageError
from atrex_core.interfaces import Problem
from atrex_core.release.readme import README, readme
from atrex_core.release.view import PUBLIC_FILES, VIEW, release_view

MANIFEST = "manifest.json"
SCHEMA = 1
KIND = "atrex-eval release"


@frozen(kw_only=True)
class Listed:
    """One file as the manifest lists it."""

    path: str
    sha256: str
    bytes: int


@frozen(kw_only=True)
class Manifest:
    """What a release says it holds."""

    packs: tuple[tuple[str, str], ...]
    """Name and version of each pack that problems come from."""
    problems: tuple[str, ...]
    """Release ids."""
    files: tuple[Listed, ...]
    digest: str

    @property
    def own_digest(self) -> str:
        """The SHA-256 of everything else here: the same for the same release only."""
        text = json.dumps(self._facts(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_json(self) -> bytes:
        """Return the text of the file."""
        facts = {**self._facts(), "digest": self.digest}
        return (json.dumps(facts, indent=2) + "\n").encode()

    def _facts(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "schema": SCHEMA,
            "packs": [{"name": name, "version": version} for name, version in self.packs],
            "problems": list(self.problems),
            "files": [{"path": f.path, "sha256": f.sha256, "bytes": f.bytes} for f in self.files],
        }


@frozen(kw_only=True)
class Release:
    """What a release's folder is to hold."""

    manifest: Manifest
    files: Mapping[str, bytes] = field(repr=False)
    """By relative path, the manifest's own file included."""

    @property
    def digest(self) -> str:
        """Identify the release."""
        return self.manifest.digest


def release_of(problems: Iterable[Problem]) -> Release:
    """Return the release of `problems`.

    Raises:
        UsageError: one of them has no public half to hand out.
        PluginError: a pack lists as public what no release may hold.
    """
    chosen = sorted(problems, key=lambda problem: problem.release_id)
    files: dict[str, bytes] = {}
    for problem in chosen:
        view = release_view(problem)
        if missing := [name for name in PUBLIC_FILES if name not in view]:
            raise UsageError(
                f"problem {problem.name!r} cannot be released: it has no public {missing[0]}",
                hint="select others with --problem, or add it to the problem's public files",
            )
        files |= {f"{problem.release_id}/{name}": view[name] for name in VIEW}
    files[README] = readme([problem.release_id for problem in chosen]).encode()
    manifest = _manifest(chosen, files)
    return Release(manifest=manifest, files={**files, MANIFEST: manifest.to_json()})


def parse_manifest(content: bytes) -> Manifest:
    """Return the manifest that `content` is, whether or not what it says is true.

    Raises:
        ValueError: it is none of this schema; the message says why.
    """
    try:
        facts = json.loads(content)
        if facts["kind"] != KIND or facts["schema"] != SCHEMA:
            raise ValueError(f"it is no {KIND} of schema {SCHEMA}")
        found = Manifest(
            packs=tuple((_text(p["name"]), _text(p["version"])) for p in facts["packs"]),
            problems=tuple(_text(name) for name in facts["problems"]),
            files=tuple(
                Listed(path=_text(f["path"]), sha256=_text(f["sha256"]), bytes=_size(f["bytes"]))
                for f in facts["files"]
            ),
            digest=_text(facts["digest"]),
        )
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it lacks something: {type(error).__name__}: {error}") from error
    if found.to_json() != content:
        raise ValueError("it holds more than a manifest does, or is laid out differently")
    return found


def _manifest(problems: Sequence[Problem], files: Mapping[str, bytes]) -> Manifest:
    listed = tuple(
        Listed(path=path, sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))
        for path, content in sorted(files.items())
    )
    packs = {(problem.pack.name, problem.pack.version) for problem in problems}
    unsigned = Manifest(
        packs=tuple(sorted(packs)),
        problems=tuple(problem.release_id for problem in problems),
        files=listed,
        digest="",
    )
    return Manifest(
        packs=unsigned.packs,
        problems=unsigned.problems,
        files=unsigned.files,
        digest=unsigned.own_digest,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _size(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no size")
    return value
