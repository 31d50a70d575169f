"""From paths to candidates. Names that are not text, and files that are not files, included.

Only regular files count: opening a pipe or a device could wait for ever.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from atrex_core.errors import UsageError
from atrex_core.interfaces import Backend, Problem
from atrex_core.model import Candidate
from atrex_core.plugins import PluginHost
from atrex_core.printable import one_line

log = logging.getLogger(__name__)

_MOST_SOURCE_BYTES = 4 * 2**20


def find_candidates(
    host: PluginHost, backend: Backend, problems: Sequence[Problem], paths: Sequence[Path]
) -> Iterator[Candidate]:
    """Yield the candidates in `paths`, or the backend's own kernels when there are none.

    A file is named after its problem, by name or release id, or lies in a folder that is. When
    exactly one problem is selected, a file may have any name.

    Raises:
        UsageError: a path cannot be read, or it cannot be told which problem it solves.
    """
    names = {n: problem.name for problem in problems for n in (problem.name, problem.release_id)}
    if not paths:
        folder = backend.kernels
        for problem in problems:
            path = folder / f"{problem.name}.py" if folder else None
            if path is not None and _is_regular(path):
                yield read_candidate(path, problem.name, backend.name, submission=backend.name)
        return
    for path in paths:
        if stat.S_ISDIR(_mode(path)):
            yield from _in_folder(path, names, backend.name)
        else:
            problem_name = _problem_of(path, host, problems)
            if problem_name in names.values():
                yield read_candidate(path, problem_name, backend.name, submission=path.stem)


def source_files(folder: Path, *, quiet: bool = False) -> Iterator[Path]:
    """Yield the Python files below `folder`, in order; what only looks like one is left out."""
    odd = []
    for path in sorted(folder.rglob("*.py")):
        if _is_regular(path):
            yield path
        elif not path.is_dir():  # a folder may have any name
            odd.append(str(path.relative_to(folder)))
    if odd and not quiet:
        what = one_line(", ".join(odd), 200)
        log.warning("left out of %s: not regular files: %s", one_line(str(folder)), what)


def _in_folder(folder: Path, names: Mapping[str, str], backend: str) -> Iterator[Candidate]:
    for path in source_files(folder):
        if path.stem in names:
            label = "/".join(path.relative_to(folder).with_suffix("").parts[:-1]) or folder.name
            yield read_candidate(path, names[path.stem], backend, submission=label)
        elif path.parent.name in names:
            problem = names[path.parent.name]
            yield read_candidate(path, problem, backend, submission=path.stem)


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:  # a link that leads nowhere, or in circles
        return False


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError as error:
        why = f"no such file or folder: {str(path)!r}"
        if not isinstance(error, FileNotFoundError):
            why = f"cannot read {str(path)!r}: {(error.strerror or '').lower()}"
        hint = "a candidate is a .py file that exposes `Model`"
        raise UsageError(why, hint=hint) from error


def _problem_of(path: Path, host: PluginHost, chosen: Sequence[Problem]) -> str:
    for name in (path.stem, path.resolve().parent.name):
        if name in host.problems:
            return host.problems[name].name
    if len(chosen) == 1:
        return chosen[0].name
    raise UsageError(
        f"cannot tell which problem {str(path)!r} solves",
        hint="name the file after its problem, or select one with --problem NAME",
    )


def read_candidate(path: Path, problem: str, backend: str, *, submission: str) -> Candidate:
    """Read a candidate's file. Names that are not text are recorded in a printable form.

    Raises:
        UsageError: it cannot be read, is no regular file, or is absurdly large.
    """
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(
                    f"{str(path)!r} is not a regular file", hint="a candidate is one source file"
                )
            source = file.read(_MOST_SOURCE_BYTES + 1)
        if len(source) > _MOST_SOURCE_BYTES:
            raise UsageError(
                f"{str(path)!r} is larger than {_MOST_SOURCE_BYTES >> 20} MiB",
                hint="a candidate is one source file",
            )
    except OSError as error:
        raise UsageError(
            f"cannot read {str(path)!r}: {(error.strerror or '').lower()}",
            hint="check the path and its rights",
        ) from error
    return Candidate(
        name=_text(submission),
        problem=problem,
        backend=backend,
        path=Path(_text(str(path))),
        source=source,
    )


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # opening a pipe would wait for its writer


def _text(name: str) -> str:
    return os.fsencode(name).decode("utf-8", "backslashreplace")
