"""Write the files that a new plugin starts from: complete, and right as they stand."""

from __future__ import annotations

import importlib.util
import keyword
import os
import string
import sys
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from atrex_core.beside import put_folder
from atrex_core.errors import UsageError

PROVENANCE = "write here where shapes and weight were observed"
"""What a new problem says of itself, to be replaced."""

_TEMPLATES = Path(__file__).parent
_SUFFIX = ".txt"
_MOST_NAME = 100
"""Letters of a name: with what is put before and after it, every file's name stays short enough."""
_OPERATOR_FILES = (
    *("private.py", "private.json", "variants.py"),
    *("public/reference.py", "public/inputs.py", "public/shapes.json"),
)


@frozen(kw_only=True)
class Scaffold:
    """What was written."""

    root: Path
    """The project's folder, or the operator's where a pack was there already."""
    operator: Path
    """The folder of the operator."""


def new_problem(name: str, *, parent: Path, pack: str | None = None) -> Scaffold:
    """Write a project with a pack of one operator into `parent`.

    Args:
        name: The operator's name, in lower case with underscores.
        parent: An existing folder; the project's folder is made in it.
        pack: The pack's name; by default the operator's.

    Raises:
        UsageError: a name is no identifier or too long, something is there already, or cannot be
            written.
    """
    _check_name(name)
    pack = pack or name
    _check_name(pack, is_problem=False)
    package = f"atrex_problems_{pack}"
    if _is_module(package):
        raise UsageError(
            f"a package called {package!r} is installed already",
            hint="choose another --pack, or write one more operator into that one with --into",
        )
    words = {
        "name": name,
        "title": name.replace("_", " "),
        "provenance": PROVENANCE,
        "pack": pack,
        "package": package,
        "distribution": package.replace("_", "-"),
    }
    files = {
        "pyproject.toml": "project/pyproject.toml",
        "README.md": "project/README.md",
        f"{package}/__init__.py": "project/__init__.py",
        **{f"{package}/{name}/{file}": file for file in _OPERATOR_FILES},
    }
    content = {place: _filled(template, words) for place, template in files.items()}
    content[f"{package}/py.typed"] = ""
    root = parent / words["distribution"]
    _write(root, content)
    return Scaffold(root=root, operator=root / package / name)


def new_operator(name: str, *, package: Path) -> Scaffold:
    """Write one more operator into the folder of an existing pack.

    Raises:
        UsageError: the name is no identifier or too long, `package` is no pack's folder, the
            operator is there already, or cannot be written.
    """
    _check_name(name)
    if not os.path.isfile(package / "__init__.py"):  # noqa: PTH113 - no name is too long for it
        raise UsageError(
            f"{str(package)!r} is not the folder of a pack",
            hint="a pack's folder holds an __init__.py and one folder for each operator",
        )
    words = {"name": name, "title": name.replace("_", " "), "provenance": PROVENANCE}
    root = package / name
    _write(root, {file: _filled(file, words) for file in _OPERATOR_FILES})
    return Scaffold(root=root, operator=root)


def _check_name(name: str, *, is_problem: bool = True) -> None:
    if len(name) > _MOST_NAME:
        raise UsageError(
            f"a name of {len(name)} letters is too long: {name[:20] + '...'!r}",
            hint=f"use {_MOST_NAME} at most",
        )
    is_plain = name.isidentifier() and name.isascii() and name == name.lower()
    if is_plain and not keyword.iskeyword(name) and not name.startswith("_"):
        if is_problem and _is_module(name):
            raise UsageError(
                f"{name!r} is the name of an installed module",
                hint="a candidate's file has its problem's name, and would hide the module: "
                "choose another",
            )
        return
    raise UsageError(
        f"{name!r} cannot be the name of a folder and a module",
        hint="use lower-case letters, digits and underscores, beginning with a letter",
    )


def _is_module(name: str) -> bool:
    """Return whether `import name` finds a module; a folder without code is none."""
    if name in sys.builtin_module_names or name in sys.stdlib_module_names:
        return True
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def _filled(template: str, words: Mapping[str, str]) -> str:
    path = _TEMPLATES / "problem" / f"{template}{_SUFFIX}"
    return string.Template(path.read_text(encoding="utf-8")).substitute(words)


def _write(root: Path, content: Mapping[str, str]) -> None:
    """Write all files to `root` at once, or nothing."""
    try:
        if os.path.lexists(root):
            hint = "choose another name or folder"
            raise UsageError(f"{str(root)!r} is there already", hint=hint)
        put_folder(root, {place: text.encode() for place, text in content.items()})
    except OSError as error:
        raise UsageError(
            f"cannot write {str(root)!r}: {(error.strerror or '').lower()}",
            hint="choose another folder with --output",
        ) from error
