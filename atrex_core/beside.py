"""A folder that appears at once or not at all: written beside its place, then renamed into it."""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

FILE_MODE, FOLDER_MODE = 0o644, 0o755
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def put_folder(
    place: Path, files: Mapping[str, bytes], *, replace: bool = False, time_s: int | None = None
) -> None:
    """Make `place` a folder of `files`. At every moment it is as it was, or whole.

    Args:
        place: Where nothing is, or an empty folder.
        files: Content by relative path.
        replace: Whether a folder that holds something may be there.
        time_s: When everything in it is said to have been changed; None says the truth.

    Raises:
        OSError: it cannot be written; `place` is as it was.
    """
    with _beside(place) as folder:
        _fill(folder, files)
        if time_s is not None:
            for path in (*folder.rglob("*"), folder):
                os.utime(path, (time_s, time_s))
        _put(folder, place, replace=replace)


@contextmanager
def _beside(place: Path) -> Iterator[Path]:
    """Make a folder next to `place`; what is there in the end is removed.

    Left over where a process was killed: the next one removes what a dead one has left.
    """
    prefix = f".{place.name}.partial-"
    for old in place.parent.glob(f"{glob.escape(prefix)}*"):
        owner = old.name.removeprefix(prefix).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=place.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.chmod(FOLDER_MODE)
    for path, content in sorted(files.items()):
        target = folder / path
        for parent in reversed(target.relative_to(folder).parents[:-1]):
            (folder / parent).mkdir(exist_ok=True)
            (folder / parent).chmod(FOLDER_MODE)
        with target.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        target.chmod(FILE_MODE)


def _put(folder: Path, place: Path, *, replace: bool) -> None:
    """Let `folder` and `place` change places, or move `folder` to where nothing is."""
    try:
        folder.rename(place)  # an empty folder may be there
    except OSError as error:
        if not replace or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
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
