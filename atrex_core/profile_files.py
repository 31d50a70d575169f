"""A hardware profile that a user writes: one TOML file, checked key by key.

    name = "my-card"
    source = "Acme Anvil 2 data sheet, revision C, table 3"
    bandwidth_bytes_per_s = 2.4e12

    [peak_flops]
    bf16_matrix = 480e12
    fp8_matrix = { value = 960e12, source = "Acme support, ticket 17", confidence = "low" }

A figure is a number, which the file's `source` and `confidence` speak for, or a table with its
own. docs/hardware-profiles.md has all keys.
"""

from __future__ import annotations

import math
import os
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
from attrs import frozen

from atrex_core.errors import UsageError
from atrex_core.model import (
    ArithmeticPath,
    Ceiling,
    Confidence,
    DeviceMatch,
    Figure,
    HardwareProfile,
)
from atrex_core.suggest import close_match

E = TypeVar("E", bound=Enum)

_SUFFIX: Final = ".toml"
_MOST_BYTES: Final = 2**20
_RATES: Final = ("bandwidth_bytes_per_s",)
_FACTS: Final = (
    *("last_level_cache_bytes", "memory_bytes", "compute_units", "clock_hz", "matrix_clock_hz"),
)
_KEYS: Final = (
    *("name", "source", "confidence", "ceiling", "notes", "peak_flops"),
    *_RATES,
    *_FACTS,
)
_FIGURE_KEYS: Final = tuple(attribute.name for attribute in attrs.fields(Figure))
_PATHS: Final = tuple(path.value for path in ArithmeticPath)
_LEAST_RATE: Final = 1e9
"""Below this a rate was written in another unit than operations, or bytes, per second."""
_SPARSE_RATIO: Final = 0.02
_WHAT: Final = "--profile takes a name that `atrex-eval list profiles` shows, or a TOML file"


def is_path(profile: str) -> bool:
    """Return whether `--profile` was given a file rather than the name of a profile."""
    return profile.endswith(_SUFFIX) or os.sep in profile


def read_profile(path: Path) -> HardwareProfile:
    """Return the profile that a file describes.

    Raises:
        UsageError: the file cannot be read, or says something that no profile can.
    """
    return _Reader(path=repr(str(path)), document=_document(path)).profile()


def twice(profile: HardwareProfile, published: HardwareProfile) -> tuple[ArithmeticPath, ...]:
    """Return the paths whose peak is twice the published one, as a figure with sparsity is."""
    return tuple(
        path
        for path, figure in profile.peak_flops.items()
        if path in published.peak_flops
        and abs(figure.value / (2 * published.peak_flops[path].value) - 1) <= _SPARSE_RATIO
    )


@frozen(kw_only=True)
class _Reader:
    """What a file holds, and how messages call the file."""

    path: str
    document: Mapping[str, Any]

    def profile(self) -> HardwareProfile:
        self._check_keys(self.document, _KEYS, "")
        name = self._text("name", self.document.get("name"))
        if is_path(name) or name != name.strip():
            raise self._wrong("name", "a name, not a path", name)
        return HardwareProfile(
            name=name,
            match=DeviceMatch(vendor="file", names=(name,)),
            peak_flops=self._peaks(),
            ceiling=self._member("ceiling", self.document.get("ceiling", Ceiling.SPEC), Ceiling),
            notes=self._notes(),
            **{key: self._rate(key, self.document.get(key)) for key in _RATES},
            **{key: self._figure(key, self.document[key]) for key in self._given(_FACTS)},
        )

    def _given(self, keys: Iterable[str]) -> Iterator[str]:
        return (key for key in keys if key in self.document)

    def _peaks(self) -> Mapping[ArithmeticPath, Figure]:
        peaks = self.document.get("peak_flops")
        if not isinstance(peaks, dict) or not peaks:
            hint = f"add a table [peak_flops] with some of: {', '.join(_PATHS)}"
            raise self._wrong("peak_flops", "a table of peaks", peaks, hint)
        self._check_keys(peaks, _PATHS, "peak_flops.")
        return {
            ArithmeticPath(path): self._rate(f"peak_flops.{path}", raw)
            for path, raw in peaks.items()
        }

    def _rate(self, key: str, raw: object) -> Figure:
        figure = self._figure(key, raw)
        if figure.value < _LEAST_RATE:
            unit = "bytes per second" if key in _RATES else "operations per second"
            hint = f"it is in {unit}: write 989.4 T/s as 989.4e12"
            raise self._wrong(key, f"at least {_LEAST_RATE:g}", figure.value, hint)
        return figure

    def _figure(self, key: str, raw: object) -> Figure:
        table = raw if isinstance(raw, dict) else {"value": raw}
        self._check_keys(table, _FIGURE_KEYS, f"{key}.")
        spoken_for = {k: self.document.get(k) for k in ("source", "confidence")}
        given: dict[str, Any] = {**spoken_for, **table}
        value: Any = given.get("value")
        if type(value) not in (int, float) or not _is_positive(value):
            example = f'{key.rpartition(".")[2]} = {{ value = 1.5e12, source = "..." }}'
            raise self._wrong(key, "a finite number above 0", value, f"for example: {example}")
        if given["source"] is None:
            hint = 'write { value = ..., source = "..." }, or one `source` for the whole file'
            raise UsageError(f"{self.path}: {key!r} has no source", hint=hint)
        key_of = {k: f"{key}.{k}" if k in table else k for k in _FIGURE_KEYS}
        return Figure(
            value=float(value),
            source=self._text(key_of["source"], given["source"]),
            confidence=self._member(
                key_of["confidence"], given["confidence"] or Confidence.MEDIUM, Confidence
            ),
        )

    def _notes(self) -> tuple[str, ...]:
        notes = self.document.get("notes", [])
        if not isinstance(notes, list):
            raise self._wrong("notes", "a list of texts", notes)
        return tuple(self._text("notes", note) for note in notes)

    def _text(self, key: str, raw: object) -> str:
        if not isinstance(raw, str) or not raw.strip() or not raw.isprintable():
            hint = f'for example: {key.rpartition(".")[2]} = "Acme data sheet, revision C"'
            raise self._wrong(key, "one line of text", raw, hint if key != "name" else "")
        return raw

    def _member(self, key: str, raw: object, kind: type[E]) -> E:
        for member in kind:
            if raw == member.value:
                return member
        raise self._wrong(key, f"one of {', '.join(str(m.value) for m in kind)}", raw)

    def _check_keys(self, table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
        for key in table:
            if key in known:
                continue
            known = tuple(known)
            close = close_match(key, known)
            hint = f"did you mean {close!r}? " if close else ""
            hint += f"there are: {', '.join(known)}"
            if "spars" in key.lower():
                hint = "peaks are dense: give the figure without sparsity, half of the sparse one"
            raise UsageError(f"{self.path}: unknown key {where + key!r}", hint=hint)

    def _wrong(self, key: str, expected: str, raw: object, hint: str = "") -> UsageError:
        if raw is None:
            return UsageError(f"{self.path}: {key!r} is missing", hint=hint or f"it is {expected}")
        hint = hint or "docs/hardware-profiles.md has a complete example"
        return UsageError(f"{self.path}: {key!r} must be {expected}, not {_shown(raw)}", hint=hint)


def _is_positive(value: Any) -> bool:
    try:
        return math.isfinite(float(value)) and value > 0
    except OverflowError:
        return False


def _shown(raw: object) -> str:
    try:
        text = repr(raw)
    except ValueError:  # Python prints no integer of more than some thousand digits
        return "a number that is too long to print"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _document(path: Path) -> Mapping[str, Any]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            kind = "is a folder" if path.is_dir() else "is no regular file"
            raise UsageError(f"profile {str(path)!r} {kind}", hint=_WHAT)
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        why = (error.strerror or "").lower()
        raise UsageError(f"cannot read profile {str(path)!r}: {why}", hint=_hint(path)) from error
    if len(content) > _MOST_BYTES:
        raise UsageError(f"profile {str(path)!r} is larger than a mebibyte", hint=_WHAT)
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"{str(path)!r} is not UTF-8 text", hint="save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        hint = "docs/hardware-profiles.md has a complete example"
        raise UsageError(f"{str(path)!r} is not valid TOML: {error}", hint=hint) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; deep nesting
        hint = "docs/hardware-profiles.md has a complete example"
        raise UsageError(f"{str(path)!r} cannot be read as TOML: {error}", hint=hint) from error


def _hint(path: Path) -> str:
    beside = close_match(path.name, _names_beside(path))
    return f"did you mean {str(path.with_name(beside))!r}?" if beside else _WHAT


def _names_beside(path: Path) -> Iterator[str]:
    try:
        yield from (found.name for found in path.parent.glob(f"*{_SUFFIX}"))
    except OSError:
        return
