"""Write a release to disk: beside its place first, then into it by one rename.

At every moment the folder is absent, the earlier release, or the new one. What is no release is
never replaced.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from atrex_core.beside import put_folder
from atrex_core.errors import HarnessError, UsageError
from atrex_core.release.contents import MANIFEST, Release, parse_manifest
from atrex_core.release.folder import TIME_S, scan

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write(release: Release, output: Path) -> None:
    """Make `output` the folder of `release`; an earlier release there is replaced.

    Raises:
        UsageError: `output` holds something else, or cannot be written.
        HarnessError: there is no room.
    """
    place = Path(os.path.realpath(output))
    try:
        _check(place, output)
        put_folder(place, release.files, replace=True, time_s=TIME_S)
    except OSError as error:
        _complain(output, error)


def _check(place: Path, output: Path) -> None:
    """Refuse to replace what is no release, or holds anything that a release does not."""
    if not os.path.lexists(place):
        return
    if not place.is_dir():
        raise UsageError(f"{str(output)!r} is no folder", hint="choose another --output")
    held = scan(place)
    if not held:
        return
    manifest = None
    if any(entry.path == MANIFEST and entry.is_file for entry in held):
        with suppress(ValueError):
            manifest = parse_manifest((place / MANIFEST).read_bytes())
    if manifest is None:
        raise UsageError(
            f"{str(output)!r} is not empty, and no release", hint="choose another --output"
        )
    own = {MANIFEST, *(listed.path for listed in manifest.files)}
    own |= {str(parent) for path in own for parent in Path(path).parents}
    if others := [entry.path for entry in held if entry.path not in own]:
        raise UsageError(
            f"{str(output)!r} holds {others[0]!r}, which is no part of the release there",
            hint="move it away, or choose another --output",
        )
    for listed in manifest.files:
        path = place / listed.path
        content = path.read_bytes() if path.is_file() else b""
        if path.exists() and hashlib.sha256(content).hexdigest() != listed.sha256:
            raise UsageError(
                f"{str(path)!r} is not as it was released: it would be lost",
                hint="move it away, or choose another --output",
            )


def _complain(output: Path, error: OSError) -> NoReturn:
    why = (error.strerror or str(error)).lower()
    if error.errno in _FULL:
        raise HarnessError(
            f"cannot write the release: {why}",
            hint="free some space, or choose another --output; what was there is as it was",
        ) from error
    hint = "choose another --output"
    with suppress(OSError):
        if not stat.S_ISDIR(output.absolute().parent.stat().st_mode):
            hint = "its parent is no folder"
    raise UsageError(f"cannot write {str(output)!r}: {why}", hint=hint) from error
