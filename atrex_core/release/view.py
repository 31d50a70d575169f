"""The release view of a problem: all that a candidate's author, and a worker, may see of it.

Put together by allow-list: whatever else a pack holds cannot get in by being overlooked. A pack
that lists more as public is refused, not trimmed, so that its author hears of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from atrex_core.errors import AtrexError, PluginError
from atrex_core.interfaces import Problem
from atrex_core.model import Protocol
from atrex_core.release.interface import describe

REFERENCE, INPUTS, SHAPES = "reference.py", "inputs.py", "shapes.json"
PUBLIC_FILES = (REFERENCE, INPUTS, SHAPES)
"""What may be taken from a pack."""
INTERFACE = "INTERFACE.md"
VIEW = (*PUBLIC_FILES, INTERFACE)
"""What a view may hold."""

_GROUPS = ("published", "added", "smoke")
_SHAPES_KEYS = frozenset({"phase", "regimes", *_GROUPS})
_WORD = re.compile(r"[A-Za-z0-9_.+-]{1,64}")
"""What a text in a list of workloads may be: an id, a name, a type."""
_WORKLOAD_KEYS = frozenset({"id", "init", "axes", "phase"})


def release_view(problem: Problem) -> Mapping[str, bytes]:
    """Return the files of a problem's view by name: those of `VIEW` that it has.

    Where the problem has a release id, its own name is replaced by that, as a word, wherever it
    stands; a member of that name (`module.name`) keeps it, as the code would not run otherwise.
    Every protocol shows the same view.

    Raises:
        PluginError: the pack lists as public what no view may hold, or cannot say what it holds.
    """
    try:
        return _view(problem.under(Protocol.STRICT) or problem)
    except AtrexError:
        raise
    except Exception as error:
        raise PluginError(
            f"problem {problem.name!r} cannot be shown: {type(error).__name__}: {error}",
            hint="its pack's author can mend it",
        ) from error


def _view(problem: Problem) -> Mapping[str, bytes]:
    found: dict[str, bytes] = {}
    for path in problem.public_files:
        if path.name not in PUBLIC_FILES:
            _refuse(problem, f"lists {path.name!r} as public, which no release may hold")
        if path.name in found:
            _refuse(problem, f"lists {path.name!r} as public twice")
        try:
            found[path.name] = path.read_bytes()
        except OSError as error:
            raise PluginError(
                f"problem {problem.name!r}: cannot read its public half: {error}",
                hint="install its pack again",
            ) from error
    if SHAPES in found:
        _check_shapes(problem, found[SHAPES])
    found[INTERFACE] = describe(problem).encode()
    if problem.release_id != problem.name:
        if problem.name in _vocabulary(problem):
            _refuse(problem, "has a release id, and a size or tensor with its own name")
        found = {name: _renamed(problem, content) for name, content in found.items()}
    return {name: found[name] for name in VIEW if name in found}


def _renamed(problem: Problem, content: bytes) -> bytes:
    word = rb"(?<![\w.])" + re.escape(problem.name).encode() + rb"(?!\w)"
    return re.sub(word, problem.release_id.encode(), content)


def _vocabulary(problem: Problem) -> set[str]:
    """Return the names by which the view and the evaluator must agree."""
    names: set[str] = set()
    for workload in problem.workloads:
        names |= {*workload.axes, *workload.init}
        names |= {spec.name for spec in (*problem.inputs(workload), *problem.outputs(workload))}
    return names


def _check_shapes(problem: Problem, content: bytes) -> None:
    """Refuse a list of workloads that says more of them than what they are."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            _refuse(problem, f"has a key twice in its {SHAPES}")
        return dict(pairs)

    try:
        shapes = json.loads(content, object_pairs_hook=once)
    except ValueError as error:
        raise PluginError(
            f"problem {problem.name!r}: its {SHAPES} is not JSON: {error}",
            hint="its pack's author can mend it",
        ) from error
    if not isinstance(shapes, dict):
        _refuse(problem, f"has a {SHAPES} that is no object")
    for key in sorted({*shapes} - _SHAPES_KEYS):
        _refuse(problem, f"has {key!r} in its {SHAPES}, which no release may hold")
    for entry in _entries(shapes):
        if not isinstance(entry, dict):
            _refuse(problem, f"has a workload in its {SHAPES} that is no object")
        for key in sorted({*entry} - _WORKLOAD_KEYS):
            _refuse(
                problem, f"has {key!r} of a workload in its {SHAPES}, which no release may hold"
            )
    for text in _texts(shapes):
        if not _WORD.fullmatch(text):
            _refuse(problem, f"has {text!r} in its {SHAPES}, which is no word")


def _texts(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for key, inner in value.items():
                yield key
                yield from _texts(inner)
        case list():
            for inner in value:
                yield from _texts(inner)
        case str():
            yield value


def _entries(shapes: Mapping[str, Any]) -> Iterator[Any]:
    for group in _GROUPS:
        listed = shapes.get(group, [])
        yield from listed if isinstance(listed, list) else [listed]


def _refuse(problem: Problem, what: str) -> NoReturn:
    raise PluginError(
        f"problem {problem.name!r} {what}",
        hint=f"a view holds {', '.join(PUBLIC_FILES)} and what is written from them",
    )
