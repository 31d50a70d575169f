"""Settings of a run, and where each comes from: flags, environment, file, defaults.

The first of these that names a setting decides it. Nothing is guessed: an unknown key or a value
of the wrong type is an error that names the file and the key.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Any, Final, get_args, get_origin, get_type_hints

import attrs
from attrs import field, frozen
from attrs.validators import and_, ge, le, min_len, optional

from atrex_core.errors import UsageError
from atrex_core.model import Gate, Protocol, Scale
from atrex_core.profile_files import is_path
from atrex_core.suggest import close_match, did_you_mean

FILE_NAME: Final = "atrex.toml"
TABLE: Final = "atrex-eval"
"""The table of `[tool]` in a pyproject.toml."""
PREFIX: Final = "ATREX_"

COMMAND_LINE: Final = "command line"
DEFAULT: Final = "default"


@frozen(kw_only=True)
class Settings:
    """Everything a run can be told."""

    backend: str | None = None
    """None takes the backend that is installed as the default one."""
    problem: tuple[str, ...] = ()
    """Globs; none selects all."""
    workload: tuple[str, ...] = ()
    """Globs; none selects all."""
    scale: Scale | None = None
    """None takes what the device's accelerator is meant for."""
    device: str | None = None
    """Ids, accelerators' names, and globs over present ids, with commas between; None takes the
    first device that the backend runs on. All of them take work from one queue."""
    targets: tuple[str, ...] = ()
    """Architectures to compile for besides the device's own."""
    protocol: Protocol = Protocol.STRICT
    until: Gate | None = None
    """The last gate to judge; None judges all."""
    journal: Path | None = None
    resume: bool = False
    """Skip what the journal holds already."""
    profile: str | None = None
    """A hardware profile to use instead of the one that describes the device: its name, or the
    path of a TOML file."""
    timeout_s: float = field(default=60.0, validator=and_(ge(0.1), le(1e6)))
    """For each stage of each workload."""
    memory_limit_bytes: int | None = field(
        default=None, validator=optional(and_(ge(64 * 2**20), le(2**50)))
    )
    """For each worker process."""
    cases: int = field(default=5, validator=and_(ge(1), le(10_000)))
    """Correctness cases for each workload."""
    disabled_plugins: tuple[str, ...] = ()
    jobs: int = field(default=1, validator=and_(ge(1), le(1024)))
    format: str = field(default="table", validator=min_len(1))
    output: Path | None = None
    """Where the report goes; None is standard output."""
    perf_budget_s: float = field(default=0.25, validator=and_(ge(0.001), le(3600.0)))
    """Time to spend on measuring one workload."""


@frozen(kw_only=True)
class Configuration:
    """Settings, and for each field where its value came from."""

    settings: Settings
    sources: Mapping[str, str]
    """By field: the command line, an environment variable, a file's path, or `default`."""


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Configuration:
    """Layer flags over `ATREX_*` variables over the nearest file over the defaults.

    Args:
        flags: By field of `Settings`; None and empty tuples mean that a flag was not given.
        environment: Instead of the process's own.
        folder: Where the search for a file starts, instead of the working directory.

    Raises:
        UsageError: a key is unknown or a value unusable, wherever it was given.
    """
    values: dict[str, object] = {}
    sources = dict.fromkeys(_FIELDS, DEFAULT)
    for layer in (
        _from_file(folder or _working_folder()),
        _from_environment(os.environ if environment is None else environment),
        _from_flags(flags or {}),
    ):
        for name, value, source in layer:
            values[name], sources[name] = value, source
    return Configuration(settings=Settings(**values), sources=sources)  # type: ignore[arg-type]  # each was converted to its field's type


def changed(settings: Settings, options: Mapping[str, object]) -> Settings:
    """Return `settings` with `options` in place of its fields, checked as flags are.

    Raises:
        UsageError: an option has no such name, or a value is unusable.
    """
    values: dict[str, Any] = {name: value for name, value, _ in _from_flags(options)}
    return attrs.evolve(settings, **values)


def find_file(folder: Path) -> Path | None:
    """Return the file that configures a run in `folder`: the nearest, upwards.

    Beside each other, `atrex.toml` wins over a `pyproject.toml` with our table; a
    `pyproject.toml` without it does not count.

    Raises:
        UsageError: a `pyproject.toml` on the way is not valid TOML.
    """
    for place in (folder.absolute(), *folder.absolute().parents):
        own, shared = place / FILE_NAME, place / "pyproject.toml"
        if _is_file(own):
            return own
        if _is_file(shared) and _table(shared) is not None:
            return shared
    return None


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError(
            f"the working directory cannot be used: {(error.strerror or '').lower()}",
            hint="it may have been deleted: change to one that exists",
        ) from error


Item = tuple[str, object, str]
"""Field, converted value, source."""


class _Wrong(Exception):
    """A value cannot be used: what was expected, and perhaps a hint."""

    def __init__(self, expected: str, hint: str = "") -> None:
        super().__init__(expected)
        self.hint = hint


def _fields() -> dict[str, Any]:
    hints = get_type_hints(Settings)
    return {attribute.name: hints[attribute.name] for attribute in attrs.fields(Settings)}


_FIELDS: Final = _fields()
_FLAGS: Final = {
    "targets": "--target",
    "timeout_s": "--timeout",
    "memory_limit_bytes": "--memory-limit",
    "disabled_plugins": "--disable-plugin",
}
"""How the command line spells the fields that it does not spell as they are."""
_KEYS: Final = {name.replace("_", "-"): name for name in _FIELDS}
_VARIABLES: Final = {PREFIX + name.upper(): name for name in _FIELDS}


def _from_file(folder: Path) -> Iterator[Item]:
    path = find_file(folder)
    if path is None:
        return
    where = str(path) if path.name == FILE_NAME else f"{path} [tool.{TABLE}]"
    for key, raw in (_table(path) or {}).items():
        if key not in _KEYS:
            raise UsageError(f"{where}: unknown key {key!r}", hint=did_you_mean(key, _KEYS))
        name = _KEYS[key]
        value = _converted(name, raw, f"{where}: {key!r}", _file_value)
        yield name, _rebased(name, value, path.parent), str(path)


def _from_environment(environment: Mapping[str, str]) -> Iterator[Item]:
    for variable, raw in sorted(environment.items()):
        if not variable.startswith(PREFIX) or not raw:
            continue
        if variable in _VARIABLES:
            name = _VARIABLES[variable]
            yield name, _converted(name, raw, f"variable {variable}", _text_value), variable
        elif close := close_match(variable, _VARIABLES, cutoff=0.85):
            # Plugins have variables of their own; only a likely misspelling is an error.
            raise UsageError(f"unknown variable {variable}", hint=f"did you mean {close}?")


def _from_flags(flags: Mapping[str, object]) -> Iterator[Item]:
    for name, raw in flags.items():
        if name not in _FIELDS:
            raise UsageError(f"unknown setting {name!r}", hint=did_you_mean(name, _FIELDS))
        if raw is not None and raw != () and raw != []:
            flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
            yield name, _converted(name, raw, flag, _file_value), COMMAND_LINE


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder on the way that we may not look into
        return False


def _table(path: Path) -> dict[str, object] | None:
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        hint = "correct the line, or remove the file"
        raise UsageError(f"{path} is not valid TOML: {error}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text", hint="save it as UTF-8") from error
    except ValueError as error:  # a number of thousands of digits
        raise UsageError(f"{path} cannot be read as TOML: {error}") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or '').lower()}") from error
    if path.name == FILE_NAME:
        return document
    tools = document.get("tool")
    table = tools.get(TABLE) if isinstance(tools, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{path}: 'tool.{TABLE}' is not a table")
    return table


def _converted(
    name: str, raw: object, where: str, convert: Callable[[object, Any], object]
) -> object:
    try:
        value = _some(raw) if name == "device" else convert(raw, _FIELDS[name])
        if name == "profile" and is_path(str(value)):
            value = str(_path(str(value)))
        validator: Any = getattr(attrs.fields(Settings), name).validator
        if validator is not None:
            validator(None, getattr(attrs.fields(Settings), name), value)
    except _Wrong as error:
        raise UsageError(f"{where} must be {error}, not {_shown(raw)}", hint=error.hint) from error
    except ValueError as error:
        raise UsageError(f"{where} is out of range: {_shown(raw)}", hint=str(error)) from error
    return value


def _shown(raw: object) -> str:
    try:
        return repr(raw)
    except ValueError:  # Python prints no integer of more than some thousand digits
        return "a number that is too long to print"


def _text_value(raw: object, kind: Any) -> object:
    """Return the text of an environment variable as a `kind`."""
    text, kind = str(raw).strip(), _inner(kind)
    if kind is bool:
        words = {"1": True, "true": True, "yes": True, "on": True}
        words |= {"0": False, "false": False, "no": False, "off": False}
        if text.lower() not in words:
            raise _Wrong("true or false")
        return words[text.lower()]
    if kind in (int, float):
        try:
            return _file_value(kind(text), kind)
        except ValueError:
            raise _Wrong("an integer" if kind is int else "a number") from None
    return _file_value(text, kind)


def _file_value(raw: object, kind: Any) -> object:
    """Return a typed value, as TOML and flags have it, as a `kind`."""
    kind = _inner(kind)
    if get_origin(kind) is tuple:
        return _names(raw)
    if issubclass(kind, Enum):
        return _member(raw, kind)
    if kind is float and type(raw) in (int, float):
        value = float(str(raw))
        if math.isfinite(value):
            return value
        raise _Wrong("a finite number")
    if kind is Path and isinstance(raw, str | Path) and str(raw):
        return _path(str(raw))
    if kind is str and isinstance(raw, str) and raw:
        return raw
    if kind in (bool, int) and type(raw) is kind:
        return raw
    expected = {bool: "true or false", int: "an integer", float: "a number", Path: "a path"}
    raise _Wrong(expected.get(kind, "text"))


def _path(text: str) -> Path:
    if "\0" in text:
        raise _Wrong("a path")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        hint = "write the path out: the folder that ~ stands for is not known"
        raise _Wrong("a path that exists", hint) from error


def _inner(kind: Any) -> Any:
    """Return the type that is not None: nobody can write None in any layer."""
    if get_origin(kind) is tuple:
        return kind
    return next((part for part in get_args(kind) if part is not NoneType), kind)


_LEAVE_OUT = "leave it out where none is meant"


def _names(raw: object) -> tuple[str, ...]:
    items = [raw] if isinstance(raw, str) else raw
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise _Wrong("text or a list of texts")
    if any(not item.replace(",", "").strip() for item in items):
        raise _Wrong("one name or more", _LEAVE_OUT)
    return tuple(part.strip() for item in items for part in item.split(",") if part.strip())


def _some(raw: object) -> str:
    """Return names, of which there must be one, with commas between."""
    names = _names(raw)
    if not names:
        raise _Wrong("one name or more", _LEAVE_OUT)
    return ",".join(names)


def _member(raw: object, kind: type[Enum]) -> Enum:
    for member in kind:
        if raw == member.value:
            return member
    names = [str(member.value) for member in kind]
    close = close_match(raw, names) if isinstance(raw, str) else None
    raise _Wrong(f"one of {', '.join(names)}", hint=f"did you mean {close!r}?" if close else "")


def _rebased(name: str, value: object, folder: Path) -> object:
    # A path in a file means the same wherever below the file the run starts.
    if name == "profile" and is_path(str(value)):
        path = folder / str(value)
        return str(path) if path.suffix or path.exists() else value  # a name may hold a slash
    return folder / value if isinstance(value, Path) else value
