"""Write a release to disk: beside its place first, then into it by one rename.

At every moment the folder is absent, the earlier release, or the new one. What is no release is
never replaced.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from atrex_core.errors import HarnessError, UsageError
from atrex_core.release.contents import MANIFEST, Release, parse_manifest
from atrex_core.release.folder import scan

FILE_MODE, FOLDER_MODE = 0o644, 0o755
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def write(release: Release, output: Path) -> None:
    """Make `output` the folder of `release`; an earlier release there is replaced.

    Raises:
        UsageError: `output` holds something else, or cannot be written.
        HarnessError: there is no room.
    """
    place = Path(os.path.realpath(output))
    try:
        _check(place, output)
        with _beside(place) as folder:
            _fill(release, folder)
            _put(folder, place)
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


@contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """Make a folder next to `place`; what is there in the end is removed.

    Left over where a process was killed: the next build removes what a dead one has left.
    """
    prefix = f".{place.name}.partial-"
    for old in place.parent.glob(f"{prefix}*"):
        owner = old.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=place.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(release: Release, folder: Path) -> None:
    folder.chmod(FOLDER_MODE)
    for path, content in sorted(release.files.items()):
        target = folder / path
        target.parent.mkdir(exist_ok=True)
        target.parent.chmod(FOLDER_MODE)
        with target.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        target.chmod(FILE_MODE)


def _put(folder: Path, place: Path) -> None:
    """Let `folder` and `place` change places, or move `folder` to where nothing is."""
    try:
        folder.rename(place)  # an empty folder may be there
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        _exchange(folder, place)


def _exchange(folder: Path, place: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(folder), os.fsencode(place)
    arguments = _AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE
    if libc.renameat2(*arguments) == 0:
        return
    number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(number, os.strerror(number))
    old = folder.with_name(f"{folder.name}-old")  # a file system without exchange
    place.rename(old)
    try:
        folder.rename(place)
    except BaseException:
        old.rename(place)
        raise
    shutil.rmtree(old)


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
