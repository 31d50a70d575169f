"""Write the files that a new plugin starts from: complete, and right as they stand."""

from __future__ import annotations

import keyword
import shutil
import string
import tempfile
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from atrex_core.errors import UsageError

_TEMPLATES = Path(__file__).parent
_SUFFIX = ".txt"
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
        UsageError: a name is no identifier, something is there already, or cannot be written.
    """
    _check_name(name)
    pack = pack or name
    _check_name(pack)
    package = f"atrex_problems_{pack}"
    words = {
        "name": name,
        "title": name.replace("_", " "),
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
        UsageError: the name is no identifier, `package` is no pack's folder, the operator is there
            already, or cannot be written.
    """
    _check_name(name)
    if not (package / "__init__.py").is_file():
        raise UsageError(
            f"{str(package)!r} is not the folder of a pack",
            hint="a pack's folder holds an __init__.py and one folder for each operator",
        )
    words = {"name": name, "title": name.replace("_", " ")}
    root = package / name
    _write(root, {file: _filled(file, words) for file in _OPERATOR_FILES})
    return Scaffold(root=root, operator=root)


def _check_name(name: str) -> None:
    is_plain = name.isidentifier() and name.isascii() and name == name.lower()
    if is_plain and not keyword.iskeyword(name) and not name.startswith("_"):
        return
    raise UsageError(
        f"{name!r} cannot be the name of a folder and a module",
        hint="use lower-case letters, digits and underscores, beginning with a letter",
    )


def _filled(template: str, words: Mapping[str, str]) -> str:
    path = _TEMPLATES / "problem" / f"{template}{_SUFFIX}"
    return string.Template(path.read_text(encoding="utf-8")).substitute(words)


def _write(root: Path, content: Mapping[str, str]) -> None:
    """Write all files beside `root` and move them there at once, or nothing."""
    if root.exists() or root.is_symlink():
        raise UsageError(f"{str(root)!r} is there already", hint="choose another name or folder")
    beside: Path | None = None
    try:
        beside = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=root.parent))
        for place, text in content.items():
            path = beside / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        beside.chmod(0o755)
        beside.rename(root)
    except OSError as error:
        raise UsageError(
            f"cannot write {str(root)!r}: {(error.strerror or '').lower()}",
            hint="choose another folder with --output",
        ) from error
    finally:
        if beside is not None and beside.exists():
            shutil.rmtree(beside, ignore_errors=True)
