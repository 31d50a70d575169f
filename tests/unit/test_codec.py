"""JSON is strict in both directions, and hostile messages end in one kind of error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest
from attrs import field, frozen
from attrs.validators import gt

from atrex_core import AtrexError, Device, DType, ExitCode, TensorSpec, Timing, codec


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


@frozen(kw_only=True)
class Part:
    size_m: float = field(validator=gt(0.0))


@frozen(kw_only=True)
class Thing:
    count: int
    name: str = "thing"
    is_new: bool = False
    weight_kg: float | None = None
    colour: Colour | None = None
    level: Level = Level.LOW
    path: Path | None = None
    sizes: tuple[int, ...] = ()
    pair: tuple[str, int] | None = None
    parts: Sequence[Part] = ()
    main: Part | None = None
    prices: Mapping[Colour, float] = field(factory=dict)
    extra: Mapping[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class Started:
    kind: Literal["started"]
    pid: int


@frozen(kw_only=True)
class Stopped:
    kind: Literal["stopped"]
    code: int


FULL = Thing(
    count=3,
    name="näme\n\u2028",
    is_new=True,
    weight_kg=1.5,
    colour=Colour.RED,
    path=Path("/a/b.py"),
    sizes=(1, 2),
    pair=("x", 1),
    parts=[Part(size_m=1.0), Part(size_m=2.0)],
    main=Part(size_m=0.25),
    prices={Colour.BLUE: 2.0},
    extra={"list": [1, None, {"a": True}], "colour": "red"},
)


def test_a_value_is_one_line_of_ascii_json_in_field_order() -> None:
    text = codec.dumps(FULL)

    assert text == (
        '{"count": 3, "name": "n\\u00e4me\\n\\u2028", "is_new": true, "weight_kg": 1.5, '
        '"colour": "red", "level": 1, "path": "/a/b.py", "sizes": [1, 2], "pair": ["x", 1], '
        '"parts": [{"size_m": 1.0}, {"size_m": 2.0}], "main": {"size_m": 0.25}, '
        '"prices": {"blue": 2.0}, '
        '"extra": {"list": [1, null, {"a": true}], "colour": "red"}}'
    )


def test_a_value_survives_the_round_trip() -> None:
    again = codec.loads(codec.dumps(FULL), Thing)

    assert again == FULL
    assert isinstance(again.path, Path)
    assert [type(colour) for colour in again.prices] == [Colour]


def test_models_survive_the_round_trip() -> None:
    timing = Timing(device_us=1.25, call_us=None, method="m", samples_us=(1.0, 1.5))
    spec = TensorSpec(name="x", dtype=DType.BF16, shape=(2, 3))
    device = Device(id="a", accelerator="a", vendor="v", name="n", arch="x", memory_bytes=1 << 40)

    assert codec.loads(codec.dumps(timing), Timing) == timing
    assert codec.loads(codec.dumps(spec), TensorSpec) == spec
    assert codec.loads(codec.dumps(device), Device) == device


def test_an_integer_is_read_as_a_float_and_stays_one() -> None:
    part = codec.loads('{"size_m": 2}', Part)

    assert part == Part(size_m=2.0)
    assert type(part.size_m) is float


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Thing(count=1, weight_kg=float("nan")), "cannot write $.weight_kg as JSON: it is nan"),
        (
            Thing(count=1, parts=[Part(size_m=float("inf"))]),
            "cannot write $.parts[0].size_m as JSON: it is inf",
        ),
        (
            Thing(count=1, prices={Colour.RED: -float("inf")}),
            "cannot write $.prices.red as JSON: it is -inf",
        ),
        (
            Thing(count=1, extra={"raw": b"x"}),
            "cannot write $.extra.raw as JSON: it is of type 'bytes'",
        ),
        (Thing(count=1, extra={"s": {1}}), "cannot write $.extra.s as JSON: it is of type 'set'"),
        ({"a": {1: 2}}, "cannot write $.a as JSON: its key 1 is not text"),
        (Thing(count=1 << 64), "cannot write $.count as JSON: it exceeds 64 bits"),
    ],
    ids=["nan", "inf in a list", "inf in a mapping", "bytes", "set", "key", "huge"],
)
def test_what_json_cannot_say_is_refused_by_its_path(value: object, message: str) -> None:
    with pytest.raises(codec.EncodeError) as caught:
        codec.dumps(value)

    assert str(caught.value) == message
    assert caught.value.exit_code is ExitCode.HARNESS_ERROR


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: dict[str, object] = {}
    loop["again"] = loop

    with pytest.raises(codec.EncodeError, match="nested too deeply"):
        codec.dumps(loop)


WRONG = {
    "text for integer": ({"count": "5"}, "expected an integer, found text @ $.count"),
    "float for integer": ({"count": 5.0}, "expected an integer, found a number @ $.count"),
    "boolean for integer": ({"count": True}, "expected an integer, found a boolean @ $.count"),
    "null for integer": ({"count": None}, "expected an integer, found null @ $.count"),
    "integer for boolean": (
        {"count": 1, "is_new": 1},
        "expected true or false, found an integer @ $.is_new",
    ),
    "number for text": ({"count": 1, "name": 2.5}, "expected text, found a number @ $.name"),
    "boolean for float": (
        {"count": 1, "weight_kg": True},
        "expected a number, found a boolean @ $.weight_kg",
    ),
    "text for tuple": (
        {"count": 1, "sizes": "12"},
        "expected a list, found text @ $.sizes",
    ),
    "wrong item": ({"count": 1, "sizes": [1, "2"]}, "expected an integer, found text @ $.sizes[1]"),
    "short pair": ({"count": 1, "pair": ["x"]}, "expected 2 items, found 1 @ $.pair"),
    "unknown member": ({"count": 1, "colour": "green"}, "expected one of red, blue @ $.colour"),
    "unknown key": (
        {"count": 1, "prices": {"green": 1}},
        "expected one of red, blue @ $.prices['green']",
    ),
    "number for path": ({"count": 1, "path": 5}, "expected text, found an integer @ $.path"),
    "list for object": ({"count": 1, "main": []}, "expected an object, found a list @ $.main"),
    "list for mapping": ({"count": 1, "prices": []}, "expected an object, found a list @ $.prices"),
    "missing": ({}, "required field missing @ $.count"),
    "unknown field": ({"count": 1, "cuont": 2}, "unknown field cuont @ $"),
    "rejected by its validator": (
        {"count": 1, "main": {"size_m": -1}},
        "'size_m' must be > 0.0: -1.0 @ $.main",
    ),
    "several": (
        {"count": "1", "parts": [{"size_m": 1}, {"size_m": "1"}]},
        (
            "expected an integer, found text @ $.count; "
            "expected a number, found text @ $.parts[1].size_m"
        ),
    ),
}


@pytest.mark.parametrize(("raw", "message"), WRONG.values(), ids=WRONG)
def test_nothing_is_coerced_and_errors_have_a_path(raw: object, message: str) -> None:
    with pytest.raises(codec.DecodeError) as caught:
        codec.structure(raw, Thing)

    assert str(caught.value) == f"not a valid Thing: {message}"
    assert caught.value.exit_code is ExitCode.USAGE


def test_many_errors_are_cut() -> None:
    with pytest.raises(codec.DecodeError) as caught:
        codec.structure({"count": 1, "sizes": ["x"] * 1000}, Thing)

    assert str(caught.value).endswith("@ $.sizes[4]; and more")


def test_bytes_are_not_read() -> None:
    with pytest.raises(codec.DecodeError, match="bytes cannot be read from JSON"):
        codec.structure("eA==", bytes)


NOT_JSON = {
    "empty": ("", "Expecting value"),
    "half": ('{"count": 1', "Expecting ',' delimiter"),
    "nan": ('{"count": NaN}', "NaN is not a JSON number"),
    "infinity": ('{"count": -Infinity}', "-Infinity is not a JSON number"),
    "overflow": ('{"count": 1e999}', "a number is too large"),
    "huge": ('{"count": 18446744073709551616}', "an integer exceeds 64 bits"),
    "twice": ('{"count": 1, "count": 2}', "an object has a key twice"),
    "deep": ("[" * 100_000, "maximum recursion depth exceeded"),
}


@pytest.mark.parametrize(("text", "message"), NOT_JSON.values(), ids=NOT_JSON)
def test_what_is_not_strict_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(codec.DecodeError) as caught:
        codec.loads(text, Thing)

    assert str(caught.value).startswith(f"not valid JSON: {message}")


@pytest.mark.parametrize("number", [-(1 << 63), (1 << 64) - 1])
def test_64_bit_integers_survive(number: int) -> None:
    assert codec.loads(codec.dumps([number]), list[int]) == [number]


def test_a_message_of_a_union_is_told_by_its_literal() -> None:
    data = b'{"kind": "stopped", "code": 3}'

    assert codec.loads_untrusted(data, Started | Stopped) == Stopped(kind="stopped", code=3)


def test_a_message_of_one_class_is_typed() -> None:
    message: Stopped = codec.loads_untrusted(b'{"kind": "stopped", "code": 3}', Stopped)

    assert message.code == 3


HOSTILE = {
    "nothing": b"",
    "not utf-8": b'{"kind": "\xff"}',
    "utf-16": '{"kind": "started", "pid": 1}'.encode("utf-16"),
    "nan": b'{"kind": "started", "pid": NaN}',
    "overflow": b'{"kind": "started", "pid": 1e400}',
    "a million digits": b'{"kind": "started", "pid": ' + b"9" * 1_000_000 + b"}",
    "deep list": b"[" * 1_000_000,
    "deep object": b'{"kind":' * 500_000,
    "deep in a field": b'{"kind": "started", "pid": ' + b"[" * 900 + b"]" * 900 + b"}",
    "twice": b'{"kind": "started", "pid": 1, "pid": 2}',
    "unknown field": b'{"kind": "started", "pid": 1, "more": 2}',
    "unknown kind": b'{"kind": "begun", "pid": 1}',
    "unhashable kind": b'{"kind": {"a": []}, "pid": 1}',
    "missing": b'{"kind": "started"}',
    "boolean": b'{"kind": "started", "pid": true}',
    "list": b"[1, 2]",
    "null": b"null",
    "text": b'"started"',
    "escaped surrogate": b'{"kind": "\\ud800", "pid": 1}',
    "terminal escape": b'{"kind": "started", "pid": 1, "\\u001b[2J\\n": 1}',
    "a long name": b'{"kind": "started", "pid": 1, "' + b"x" * 1_000_000 + b'": 1}',
    "two values": b'{"kind": "started", "pid": 1}{}',
}


@pytest.mark.parametrize("into", [Started, Started | Stopped], ids=["class", "union"])
@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_message_is_a_protocol_error_that_can_be_shown(data: bytes, into: Any) -> None:
    with pytest.raises(codec.ProtocolError) as caught:
        codec.loads_untrusted(data, into)

    assert isinstance(caught.value, AtrexError)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_a_surrogate_pair_is_text() -> None:
    data = json.dumps({"count": 1, "name": "\U0001f600"}).encode()

    assert b"\\ud83d\\ude00" in data
    assert codec.loads_untrusted(data, Thing).name == "\U0001f600"
