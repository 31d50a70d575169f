"""JSON in and out of typed values: strict both ways, and the only module that knows cattrs.

Nothing is coerced and nothing is smuggled: no NaN, no bytes, no `"5"` for 5. What cannot be
written is an error that names the field, and so is what cannot be read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from enum import Enum
from functools import cache
from itertools import repeat
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, overload

import attrs
import cattrs

from atrex_core.errors import AtrexError, HarnessError, UsageError

T = TypeVar("T")
Json = Any
"""Values that JSON can hold: None, bool, int, float, str, and lists and dicts of them."""

_MIN_INT, _MAX_INT = -(1 << 63), (1 << 64) - 1
"""Every 64-bit integer, signed or not; anything longer is an attack or a mistake."""
_SHOWN_ERRORS = 5
_SHOWN_CHARACTERS = 300


class EncodeError(HarnessError):
    """A value cannot be written as strict JSON."""


class DecodeError(UsageError):
    """A text is not JSON, or not the JSON of what it should be."""


class ProtocolError(AtrexError):
    """A process that is not trusted sent something that is not a message."""


def dumps(value: object) -> str:
    """Return one line of strict ASCII JSON.

    Raises:
        EncodeError: the value holds NaN, infinity, bytes or something else JSON cannot say.
    """
    return json.dumps(unstructure(value), allow_nan=False)


def unstructure(value: object) -> Json:
    """Return `value` as plain JSON values, in the order of its fields.

    Raises:
        EncodeError: as for `dumps`.
    """
    try:
        return _plain(_converter().unstructure(value), "$")
    except RecursionError:
        name = type(value).__name__
        raise EncodeError(f"cannot write {name!r} as JSON: it is nested too deeply") from None


def loads(text: str, into: type[T]) -> T:
    """Return `text` as an `into`.

    Raises:
        DecodeError: the text is not JSON, or every field that is wrong, by its path.
    """
    return structure(parse(text), into)


def parse(text: str) -> Json:
    """Return the plain values of a strict JSON text.

    Raises:
        DecodeError: it is not JSON, or holds NaN, a key twice or an oversized number.
    """
    try:
        return _parse(text)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not valid JSON: {_one_line(error)}") from None


def structure(raw: Json, into: type[T]) -> T:
    """Return plain values as an `into`.

    Raises:
        DecodeError: every field that is missing, unknown or wrong, by its path.
    """
    converter = _converter()
    try:
        return converter.structure(raw, into)
    except Exception as error:  # a validator of the target class may raise anything
        raise DecodeError(f"not a valid {into.__name__}: {_explain(error)}") from error


@overload
def loads_untrusted(data: bytes, into: type[T]) -> T: ...
@overload
def loads_untrusted(data: bytes, into: UnionType) -> object: ...
def loads_untrusted(data: bytes, into: Any) -> object:
    """Return a message from a hostile process as an `into`, a class or a union of classes.

    Classes of a union differ in required fields, or in a `Literal` field. The caller limits the
    size of `data`; the error's message is short and printable whatever was sent.

    Raises:
        ProtocolError: it is not such a message. Nothing else is ever raised.
    """
    structure_message = _converter().get_structure_hook(into)
    try:
        value = _parse(data.decode())
        if b"\\u" in data:
            # An escaped lone surrogate is valid JSON, but kills whoever prints it.
            json.dumps(value, ensure_ascii=False).encode()
        return structure_message(value, into)
    except Exception as error:  # whatever a message provokes is its sender's fault
        raise ProtocolError(f"not a valid message: {_explain(error)}") from error


class _Mismatch(ValueError):
    """A value of the wrong type; the message may be shown as it is."""


def _plain(value: object, path: str) -> Json:
    match value:
        case None | bool():
            return value
        case Enum():
            return _plain(value.value, path)
        case str():
            return str(value)
        case int():
            if not _MIN_INT <= value <= _MAX_INT:
                raise EncodeError(f"cannot write {path} as JSON: it exceeds 64 bits")
            return int(value)
        case float():
            if not math.isfinite(value):
                raise EncodeError(
                    f"cannot write {path} as JSON: it is {float(value)}",
                    hint="a missing value is null with a reason, never NaN or infinity",
                )
            return float(value)
        case list() | tuple():
            return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
        case dict():
            return {_key(key, path): _plain(item, f"{path}.{key}") for key, item in value.items()}
    raise EncodeError(f"cannot write {path} as JSON: it is of type {type(value).__name__!r}")


def _key(key: object, path: str) -> str:
    plain = key.value if isinstance(key, Enum) else key
    if not isinstance(plain, str):
        raise EncodeError(f"cannot write {path} as JSON: its key {plain!r} is not text")
    return plain


def _parse(text: str) -> Json:
    return json.loads(
        text,
        parse_constant=_refuse_constant,
        parse_float=_finite_float,
        parse_int=_bounded_int,
        object_pairs_hook=_unique_keys,
    )


def _refuse_constant(text: str) -> float:
    raise _Mismatch(f"{text} is not a JSON number")


def _finite_float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Mismatch("a number is too large")
    return value


def _bounded_int(text: str) -> int:
    # Length first: converting a million digits takes quadratic time.
    if len(text) > len(str(_MIN_INT)) or not _MIN_INT <= int(text) <= _MAX_INT:
        raise _Mismatch("an integer exceeds 64 bits")
    return int(text)


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Mismatch("an object has a key twice")
    return found


@cache
def _converter() -> cattrs.Converter:
    """Return cattrs' converter with its leniency taken out: it would read "5" as 5."""
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind, types, expected in (
        (bool, (bool,), "true or false"),
        (int, (int,), "an integer"),
        (float, (float, int), "a number"),
        (str, (str,), "text"),
    ):
        converter.register_structure_hook(kind, _scalar(kind, types, expected))
    converter.register_structure_hook(Path, lambda raw, _: Path(_text(raw)))
    converter.register_structure_hook(bytes, _refuse_bytes)
    converter.register_unstructure_hook(Path, str)
    converter.register_structure_hook(Enum, _structure_enum)
    converter.register_structure_hook_factory(attrs.has, _object_factory(converter))
    converter.register_structure_hook_factory(_is_sequence, _sequence_factory(converter))
    converter.register_structure_hook_factory(_is_mapping, _mapping_factory(converter))
    return converter


Hook = Callable[[Any, Any], Any]


def _scalar(kind: type, types: tuple[type, ...], expected: str) -> Hook:
    def structure_scalar(raw: Json, wanted: type) -> object:
        if issubclass(wanted, Enum):  # a StrEnum is a str, and cattrs dispatches on that
            return _structure_enum(raw, wanted)
        if type(raw) not in types:
            raise _Mismatch(f"expected {expected}, found {_named(raw)}")
        return kind(raw)

    return structure_scalar


def _text(raw: Json) -> str:
    if type(raw) is not str:
        raise _Mismatch(f"expected text, found {_named(raw)}")
    return raw


def _refuse_bytes(_raw: Json, _kind: object) -> bytes:
    raise _Mismatch("bytes cannot be read from JSON")


def _structure_enum(raw: Json, wanted: type[Enum]) -> Enum:
    for member in wanted:
        if type(raw) is type(member.value) and raw == member.value:
            return member
    names = ", ".join(str(member.value) for member in wanted)
    raise _Mismatch(f"expected one of {names}")


def _is_sequence(wanted: Any) -> bool:
    return (get_origin(wanted) or wanted) in (tuple, list, Sequence, MutableSequence)


def _is_mapping(wanted: Any) -> bool:
    return (get_origin(wanted) or wanted) in (dict, Mapping)


def _object_factory(converter: cattrs.Converter) -> Callable[[Any], Hook]:
    def factory(wanted: Any) -> Hook:
        from_dict = converter.gen_structure_attrs_fromdict(wanted)

        def structure_object(raw: Json, _: object) -> object:
            if type(raw) is not dict:
                raise _Mismatch(f"expected an object, found {_named(raw)}")
            return from_dict(raw, wanted)

        return structure_object

    return factory


def _sequence_factory(converter: cattrs.Converter) -> Callable[[Any], Hook]:
    def factory(wanted: Any) -> Hook:
        arguments = get_args(wanted) or (Any,)
        build = tuple if (get_origin(wanted) or wanted) is tuple else list
        fixed = build is tuple and Ellipsis not in arguments and get_args(wanted)

        def structure_sequence(raw: Json, _: object) -> object:
            if type(raw) is not list:
                raise _Mismatch(f"expected a list, found {_named(raw)}")
            if fixed and len(raw) != len(arguments):
                raise _Mismatch(f"expected {len(arguments)} items, found {len(raw)}")
            kinds = arguments if fixed else repeat(arguments[0], len(raw))
            return build(_each(converter, enumerate(raw), kinds, wanted))

        return structure_sequence

    return factory


def _mapping_factory(converter: cattrs.Converter) -> Callable[[Any], Hook]:
    def factory(wanted: Any) -> Hook:
        key_kind, value_kind = get_args(wanted) or (str, Any)

        def structure_mapping(raw: Json, _: object) -> object:
            if type(raw) is not dict:
                raise _Mismatch(f"expected an object, found {_named(raw)}")
            keys = _each(converter, zip(raw, raw, strict=True), repeat(key_kind, len(raw)), wanted)
            values = _each(converter, raw.items(), repeat(value_kind, len(raw)), wanted)
            return dict(zip(keys, values, strict=True))

        return structure_mapping

    return factory


def _each(
    converter: cattrs.Converter,
    items: Iterable[tuple[Any, Json]],
    kinds: Iterable[Any],
    wanted: Any,
) -> list[Any]:
    """Structure items one by one, so that each of the first few wrong ones is named."""
    values: list[Any] = []
    errors: list[Exception] = []
    for (place, item), kind in zip(items, kinds, strict=True):
        try:
            values.append(item if kind is Any else converter.structure(item, kind))
        except Exception as error:  # noqa: BLE001 - collected, and raised together below
            error.add_note(cattrs.IterableValidationNote(f"at {place!r}", place, kind))
            errors.append(error)
            if len(errors) > _SHOWN_ERRORS:
                break
    if errors:
        # cattrs declares the third argument in __new__ only.
        raise cattrs.IterableValidationError("items", errors, wanted)  # pyright: ignore[reportCallIssue]
    return values


def _named(raw: Json) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", int: "an integer"}
    return "null" if raw is None else names.get(type(raw), "a number")


def _explain(error: Exception) -> str:
    errors = cattrs.transform_error(error, format_exception=_format)
    if len(errors) > _SHOWN_ERRORS:
        errors = [*errors[:_SHOWN_ERRORS], "and more"]
    return _printable("; ".join(errors))


def _format(error: BaseException, _kind: type | None) -> str:
    if isinstance(error, KeyError):
        return "required field missing"
    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        return f"unknown field {', '.join(sorted(error.extra_fields))}"
    return str(error)


def _one_line(error: BaseException) -> str:
    return _printable(str(error) or type(error).__name__)


def _printable(text: str) -> str:
    """Return `text` short, on one line, and free of terminal escapes."""
    clean = re.sub(r"\s+", " ", text[: 2 * _SHOWN_CHARACTERS])
    clean = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in clean)
    return clean if len(clean) <= _SHOWN_CHARACTERS else clean[:_SHOWN_CHARACTERS] + "..."
