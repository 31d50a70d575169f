"""Read a journal: upgrade old records, report damaged lines, lose nothing silently."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

from atrex_core import codec
from atrex_core.errors import UsageError
from atrex_core.journal.records import Contents, Damage, LintRecord, SourceRecord
from atrex_core.model import Evaluation

SCHEMA: Final = 3
Record = dict[str, Any]
Value = Evaluation | SourceRecord | LintRecord
Upgrade = Callable[[Record], Record]
UPGRADES: Final[Mapping[int, Upgrade]] = {1: dict, 2: dict}
"""By schema number: the step that turns a record into one of the next schema.

2 added to a timing what the referee's clock says and the device's conditions, and the gap to an
evaluation: absent in older records, where nobody had looked. 3 added what an evaluation's seconds
were spent on.
"""

_START = b'{"schema":'
"""How every record begins. It cannot occur inside a JSON string, where quotes are escaped."""


def contents(data: bytes, name: str) -> Contents:
    """Return everything in the bytes of a journal called `name`.

    Raises:
        UsageError: a record is of a schema that this release does not know.
    """
    evaluations: list[Evaluation] = []
    by_id: dict[str, list[Evaluation]] = {}
    sources: dict[str, SourceRecord] = {}
    lints: list[LintRecord] = []
    damaged: list[Damage] = []
    foreign = True
    for number, raw in enumerate(data.split(b"\n"), start=1):
        line = raw.strip()
        if not line:
            continue
        foreign = foreign and not (line.startswith(_START) or _START.startswith(line))
        where = f"'{name}' line {number}"
        try:
            value = _value(line, where)
        except _Unreadable as error:
            damaged.append(Damage(number, str(error)))
            glued = _glued(line, where)
            if glued is None:
                continue
            value = glued
        if isinstance(value, SourceRecord):
            sources.setdefault(value.digest, value)
        elif isinstance(value, LintRecord):
            lints.append(value)
        elif value not in by_id.setdefault(value.id, []):
            by_id[value.id].append(value)
            evaluations.append(value)
    return Contents(
        evaluations=tuple(evaluations),
        sources=sources,
        lints=tuple(lints),
        damaged=tuple(damaged),
        foreign=foreign and bool(damaged),
    )


def upgraded(record: Record, *, to: int, steps: Mapping[int, Upgrade]) -> Record:
    """Return a record of an older schema as one of schema `to`, one step at a time."""
    for schema in range(record["schema"], to):
        record = {**steps[schema](record), "schema": schema + 1}
    return record


class _Unreadable(Exception):
    """A line holds no record, and why."""


def _glued(line: bytes, where: str) -> Value | None:
    """Return the record that follows a half-written one on its line, as joining files leaves it."""
    start = line.rfind(_START)
    if start <= 0:
        return None
    try:
        return _value(line[start:], where)
    except _Unreadable:
        return None


def _value(line: bytes, where: str) -> Value:
    try:
        record = codec.parse(line.decode())
    except (codec.DecodeError, UnicodeDecodeError) as error:
        raise _Unreadable(f"half-written or not JSON: {error}") from error
    schema = record.get("schema") if isinstance(record, dict) else None
    if type(schema) is not int or schema < 1:
        raise _Unreadable("not a record: it has no schema number")
    if schema > SCHEMA:
        raise UsageError(
            f"{where} has schema {schema}; this release reads up to {SCHEMA}",
            hint="upgrade atrex-eval",
        )
    try:
        record = upgraded(record, to=SCHEMA, steps=UPGRADES)
    except (LookupError, TypeError, ValueError) as error:
        raise _Unreadable(f"not a record of schema {schema}: {error!r}") from error
    kind = record.get("kind")
    body = {key: value for key, value in record.items() if key not in ("schema", "kind")}
    try:
        if kind == "evaluation":
            return codec.structure(body, Evaluation)
        if kind == "candidate":
            return _checked(codec.structure(body, SourceRecord))
        if kind == "lint":
            return codec.structure(body, LintRecord)
    except codec.DecodeError as error:
        raise _Unreadable(str(error)) from error
    raise _Unreadable(f"not a record: its kind is {kind!r}")


def _checked(record: SourceRecord) -> SourceRecord:
    try:
        digest = hashlib.sha256(record.content).hexdigest()
    except ValueError as error:
        raise _Unreadable(f"a candidate's source cannot be decoded: {error}") from error
    if digest != record.digest:
        raise _Unreadable("a candidate's source does not have its digest")
    return record
