"""The operators of a pack: each is loaded by itself, so that a slip in one costs no other."""

from __future__ import annotations

import hashlib
import keyword
import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from atrex_core.errors import PluginError
from atrex_core.interfaces import Problem
from atrex_core.interfaces.problem import BrokenProblem
from atrex_core.model import Pack
from atrex_core.traces import raised_at

_PARTS = ("private.py", "private.json", "public")
"""What makes a folder an operator's: one of them."""
_DIGESTED = (".py", ".json")
_RESERVED = frozenset({"all"})


def operators(package: str, *, name: str, version: str) -> Iterator[Problem | BrokenProblem]:
    """Yield every operator of a pack, by name; in place of one that is broken, what is wrong.

    Each folder of the package that holds a `private.py`, a `private.json` or a `public` is an
    operator, unless its name begins with an underscore. Its class is `Operator` in `private.py`.

    Args:
        package: The pack's own `__name__`.
        name: What the pack is called.
        version: Of the pack.
    """
    root = Path(import_module(package).__file__ or "").parent
    pack = Pack(name=name, version=version, digest=_digest(root))
    taken: dict[str, str] = {}
    for folder in sorted(path for path in root.iterdir() if _is_operator(path)):
        try:
            problem = _loaded(package, folder, pack)
            for known in {problem.name, problem.release_id}:
                if known in taken:
                    raise PluginError(
                        f"{folder.name}/private.json: {taken[known]!r} answers to {known!r} already"
                    )
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - an operator may raise anything
            yield BrokenProblem(name=folder.name, cause=_cause(error), error=error)
        else:
            taken |= dict.fromkeys((problem.name, problem.release_id), problem.name)
            yield problem


def _is_operator(path: Path) -> bool:
    is_named = not path.name.startswith(("_", "."))
    return is_named and any((path / part).exists() for part in _PARTS)


def _loaded(package: str, folder: Path, pack: Pack) -> Problem:
    name = folder.name
    is_plain = name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
    if not is_plain or name in _RESERVED:
        raise PluginError(
            f"folder {name!r} cannot be the name of an operator: use letters, digits, underscores"
        )
    for part in ("private.py", "private.json", "public/shapes.json"):
        if not (folder / part).is_file():
            raise PluginError(f"there is no {name}/{part}")
    module = import_module(f"{package}.{name}.private")
    if not hasattr(module, "Operator"):
        raise PluginError(f"{name}/private.py has no class `Operator`")
    operator = module.Operator
    if missing := sorted(getattr(operator, "__abstractmethods__", ())):
        raise PluginError(f"{name}/private.py: `Operator` has no {', '.join(missing)}")
    problem: object = operator(pack)
    if not isinstance(problem, Problem) or getattr(problem, "name", None) != name:
        raise PluginError(f"{name}/private.py: `Operator` is no FolderProblem of this folder")
    return problem


def _cause(error: BaseException) -> str:
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        text = text.strip().partition("\n")[0]
    except Exception:  # noqa: BLE001 - the pack's own class of errors may be broken as well
        text = "its message cannot be read"
    if isinstance(error, PluginError):
        return text
    place = raised_at(error)
    where = f" (at {place})" if place else ""
    return f"{type(error).__name__}: {text}".removesuffix(": ") + where


def _digest(root: Path) -> str:
    """Hash every file that decides a verdict, with its place in the pack."""
    digest = hashlib.sha256()
    for place in sorted(_digested(str(root)), key=lambda place: place.split("/")):
        try:
            content = (root / place).read_bytes()
        except OSError:  # whoever needs the file will say so
            content = b""
        digest.update(f"{place}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _digested(root: str) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        inside = f"{folder[len(root) + 1 :]}/".lstrip("/")
        for name in (*folders, *files):
            if name.endswith(_DIGESTED) and name not in _DIGESTED:
                yield inside + name
