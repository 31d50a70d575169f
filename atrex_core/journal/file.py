"""One journal file: locked by the run that writes it, appended to, and flushed line by line."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Self

from atrex_core import codec
from atrex_core.errors import AtrexError, HarnessError, UnknownName, UsageError
from atrex_core.journal.reading import SCHEMA, contents
from atrex_core.journal.records import (
    Contents,
    Damage,
    LintKey,
    LintRecord,
    ResumeKey,
    SourceRecord,
    is_complete,
    lint_key,
    resume_key,
)
from atrex_core.model import Candidate, Evaluation, Gate
from atrex_core.suggest import did_you_mean, listed

log = logging.getLogger(__name__)


class Journal:
    """One journal file. Reading takes no lock; the first write locks it until `close`."""

    def __init__(self, path: Path) -> None:
        """Name a journal; nothing is opened or created yet."""
        self.path = path
        self._file: int | None = None
        self._release: Callable[[], object] | None = None
        self._known: set[str] = set()
        self._read: tuple[object, Contents] | None = None

    def __enter__(self) -> Self:
        """Create the file if need be, and lock it against other runs."""
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other runs write. Appending again locks the file again."""
        if self._release:
            self._release()
        self._file = self._release = None

    def append(self, evaluation: Evaluation) -> None:
        """Write one evaluation and return once it is on the disk.

        Raises:
            EncodeError: the evaluation holds something JSON cannot say, such as NaN.
            UsageError: the file cannot be written, or another run is writing it.
            HarnessError: the disk is full or failing.
        """
        self._write("evaluation", evaluation)

    def add_candidate(self, candidate: Candidate) -> None:
        """Write a candidate's source, unless the journal has it already.

        Raises:
            UsageError, HarnessError: as for `append`.
        """
        self._open()
        if candidate.digest not in self._known:
            self._write("candidate", SourceRecord.of(candidate))
            self._known.add(candidate.digest)

    def add_lint(self, record: LintRecord) -> None:
        """Write what a lint found in one task.

        Raises:
            UsageError, HarnessError: as for `append`.
        """
        self._write("lint", record)

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self.read().evaluations)

    @property
    def damaged(self) -> tuple[Damage, ...]:
        """The lines that hold no record, in whole or in part."""
        return self.read().damaged

    def candidates(self) -> Mapping[str, SourceRecord]:
        """Return the sources of the evaluated candidates, by digest."""
        return self.read().sources

    def find(self, prefix: str) -> Evaluation:
        """Return the evaluation whose id is, or alone begins with, `prefix`.

        Raises:
            UnknownName: no id does, or several do.
        """
        evaluations = self.read().evaluations
        found = [e for e in evaluations if e.id == prefix]
        found = found or [e for e in evaluations if e.id.startswith(prefix)]
        if len(found) == 1:
            return found[0]
        if not found:
            hint = did_you_mean(prefix, {e.id for e in evaluations})
            raise UnknownName(f"no evaluation in '{self.path}' has id {prefix!r}", hint=hint)
        if len({e.id for e in found}) == 1:
            raise UnknownName(
                f"{len(found)} different evaluations in '{self.path}' share id {found[0].id!r}",
                hint="the journal was edited, or joined from runs that used the same id",
            )
        raise UnknownName(
            f"id {prefix!r} is ambiguous in '{self.path}'",
            hint=f"it may be {listed(e.id for e in found)}",
        )

    def completed(self, until: Gate | None = None) -> frozenset[ResumeKey]:
        """Return what a run up to gate `until` need not evaluate again.

        See `is_complete`. An absent journal has nothing.
        """
        if self._is_absent():
            return frozenset()
        return frozenset(resume_key(e) for e in self if is_complete(e, until))

    def lints(self) -> Mapping[LintKey, LintRecord]:
        """Return what lints have found so far, the latest of each; an absent journal has none."""
        if self._is_absent():
            return {}
        return {lint_key(record): record for record in self.read().lints}

    def _is_absent(self) -> bool:
        try:
            self.path.stat()
        except FileNotFoundError:
            return True
        except OSError as error:
            raise _explained("read", self.path, error) from error
        return False

    def read(self) -> Contents:
        """Return everything in the journal.

        Raises:
            UsageError: the file cannot be read, or is from a newer release.
        """
        try:
            status = self.path.stat()
            if stat.S_ISCHR(status.st_mode):
                raise UsageError(f"'{self.path}' is a device, not a journal")
            _refuse_pipe(self.path, status.st_mode)
            version = (status.st_ino, status.st_size, status.st_mtime_ns)
            if self._read is None or self._read[0] != version:
                self._read = version, contents(self.path.read_bytes(), str(self.path))
        except OSError as error:
            raise _explained("read", self.path, error) from error
        return self._read[1]

    def _open(self) -> int:
        if self._file is not None:
            return self._file
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            if self.path.exists():
                _refuse_pipe(self.path, self.path.stat().st_mode)
            file = os.open(self.path, flags, 0o666)
        except OSError as error:
            raise _explained("write", self.path, error) from error
        try:
            self._prepare(file)
        except BaseException:
            os.close(file)
            raise
        # Closing is what unlocks: a forked child that closes its copy must not unlock ours.
        self._release = weakref.finalize(self, os.close, file)
        self._file = file
        return file

    def _prepare(self, file: int) -> None:
        _lock(file, self.path)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return
        held = self.read()
        if held.foreign:
            raise UsageError(
                f"'{self.path}' exists and is not a journal",
                hint="choose another file: a journal is appended to, never overwritten",
            )
        self._known = set(held.sources)
        _sync_folder(self.path.parent)

    def _write(self, kind: str, value: Evaluation | SourceRecord | LintRecord) -> None:
        record = {"schema": SCHEMA, "kind": kind, **codec.unstructure(value)}
        line = codec.dumps(record).encode() + b"\n"
        file = self._open()
        try:
            if _ends_within_a_line(file):
                line = b"\n" + line
            remaining = memoryview(line)
            while remaining:  # one write, unless the system accepts only a part
                remaining = remaining[os.write(file, remaining) :]
            _sync(file)
        except OSError as error:
            raise _explained("write", self.path, error) from error


def _refuse_pipe(path: Path, mode: int) -> None:
    """Refuse what would keep us waiting for another process, or forget what it is given."""
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        raise UsageError(
            f"'{path}' is a {'pipe' if stat.S_ISFIFO(mode) else 'socket'}, not a journal",
            hint="a journal is a file: it is read again and appended to",
        )


def _lock(file: int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(
            f"another run is writing journal '{path}'",
            hint="choose another file with --journal; journals can be joined with cat",
        ) from None
    except OSError as error:
        # Some network file systems have no locks; a record is still one write.
        log.warning("journal '%s' cannot be locked: %s", path, error.strerror)


def _ends_within_a_line(file: int) -> bool:
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
        return False
    return os.pread(file, 1, status.st_size - 1) != b"\n"


def _sync(file: int) -> None:
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a pipe has nothing to sync
            raise


def _sync_folder(folder: Path) -> None:
    """Make a new file's name as durable as its lines; a folder that refuses is no worse off."""
    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    with contextlib.suppress(OSError):
        os.fsync(file)
    os.close(file)


def _explained(verb: str, path: Path, error: OSError) -> AtrexError:
    message = f"cannot {verb} journal '{path}': {(error.strerror or str(error)).lower()}"
    match error.errno:
        case errno.ENOENT if verb == "read":
            return UsageError(message, hint="check the path; a run writes it with --journal")
        case errno.ENOENT | errno.ENOTDIR:
            return UsageError(message, hint=f"create folder '{path.parent}' first")
        case errno.ENAMETOOLONG | errno.ELOOP:
            return UsageError(message, hint="choose another file with --journal")
        case errno.EISDIR:
            return UsageError(message, hint="name a file inside it")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return UsageError(message, hint="choose a file that you may use, with --journal")
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return HarnessError(
                message, hint="free some space and run again with --resume: earlier lines are safe"
            )
    return HarnessError(message, hint="earlier lines are safe; try another file with --journal")
