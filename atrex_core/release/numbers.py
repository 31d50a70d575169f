"""Numbers that would give away where they come from, and how to find them in a text.

Most numbers say nothing: 27, 0.5 and 65536 are everywhere. One is *telling* when its digits are too
many to be met by chance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Context, Decimal

_GROUPED = r"[0-9]{1,3}(?:[,'\u2019 \u00a0\u2009\u202f][0-9]{3})+(?![0-9])"
_PLAIN = r"[0-9][0-9_]*"
_NUMBER = re.compile(
    rf"(?P<whole>(?<![0-9])(?:{_GROUPED}|{_PLAIN}))?(?P<part>\.[0-9][0-9_]*)?"
    r"(?P<power>[eE][+-]?[0-9]{1,2}(?![0-9]))?"
    r"(?=(?P<unit>\s*(?:%|per\s?cent|ns|us|ms|s)(?![a-zA-Z]))?)"
)
_BASES = re.compile(r"0[xX](?P<x>[0-9a-fA-F_]+)|0[oO](?P<o>[0-7_]+)|0[bB](?P<b>[01_]+)")
_BARE_HEX = re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{5,16}(?![0-9a-fA-F])")
_AMOUNT = rf"(?:{_GROUPED}|{_PLAIN})(?:\.[0-9]+)?"
_FRACTION = re.compile(
    rf"(?<![\w.])(?P<over>{_AMOUNT})\s*(?:[/:\u2044]|in|of|out\s+of|over|per)\s*(?P<under>{_AMOUNT})(?!\w)"
)
_UNITS = {"%": -2, "ns": -3, "us": 0, "ms": 3, "s": 6}
"""By which power of ten what is written differs from a share, or from microseconds."""
_LONG = 5
"""Digits by which a number is known again at any scale: 0.027508, 2.7508 percent, 27508."""
_SHORT = 3
"""Digits by which a fraction is known again when it is written as it is."""
_LEAST_ROOT = {_LONG: 1000, _SHORT: 100}
_ROUNDINGS = (4, 5, 6)
_PRECISE = 5
"""Digits of a number that is read as the reciprocal of a share, too: 1 in 138.2361."""


def keys_of(value: float) -> Iterator[str]:
    """Yield what a number is looked for by, also rounded; nothing where it is not telling."""
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not exact.is_finite():
        return
    own = list(_keys(exact))
    yield from own
    if own and isinstance(value, float):
        for digits in _ROUNDINGS:
            yield from _keys(Context(prec=digits).plus(exact))
        yield from _quotients(exact)


def numbers_in(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each number in a text as it is written, with all it may be known by.

    Also beside letters, with digits in groups, in hexadecimal, in percent and with a unit of time;
    as a fraction, and by its reciprocal.
    """
    for match in _NUMBER.finditer(text):
        whole, part, power = match["whole"] or "", match["part"] or "", match["power"] or ""
        if whole or part:
            written = f"{whole}{part}"
            values = list(_mantissas(whole, part.replace("_", "")))
            values += [v.scaleb(int(power[1:])) for v in values] if power else []
            if unit := (match["unit"] or "").strip():
                values += [v.scaleb(_UNITS.get(unit, -2)) for v in values]
            keys = {key for v in values for key in (_digits(v), _plain(v))}
            if whole and part:
                keys.add(_digits(Decimal(f"0{part}".replace("_", ""))))
            if len(values[0].as_tuple().digits) >= _PRECISE:
                keys |= {*_quotients(1 / values[0])} if values[0] else set()
            yield written + power, frozenset(keys)
    for match in _FRACTION.finditer(text):
        over, under = (Decimal(re.sub(r"[^0-9.]", "", match[name])) for name in ("over", "under"))
        if under:
            yield match.group(), frozenset(_quotients(over / under))
    for match in _BASES.finditer(text):
        digits = next(filter(None, match.groups())).replace("_", "")
        yield from _based(match.group(), digits, {"x": 16, "o": 8, "b": 2}[match.lastgroup or "x"])
    for match in _BARE_HEX.finditer(text):
        if not match.group().isdigit():
            yield from _based(match.group(), match.group(), 16)


def plain(value: float) -> str:
    """Return the one way of writing a number that stands for all ways of writing it."""
    return _plain(Decimal(repr(value)))


def is_scaled(key: str) -> bool:
    """Whether a key stands for a number at any scale: by its digits alone."""
    return key.startswith("d")


def _mantissas(whole: str, part: str) -> Iterator[Decimal]:
    """Yield what digits say together, and in their groups: 8_12345 may be both."""
    yield Decimal(re.sub(r"\D", "", whole) + part)
    *groups, last = re.split(r"\D+", whole)
    if groups:
        yield from (Decimal(group) for group in groups)
        yield Decimal(f"{last}{part}" if last or part else "0")


def _based(written: str, digits: str, base: int) -> Iterator[tuple[str, frozenset[str]]]:
    if digits:
        value = Decimal(int(digits, base))
        yield written, frozenset({_digits(value), _plain(value)})


def _keys(value: Decimal) -> Iterator[str]:
    digits = _digits(value)
    root = _root(digits)
    if len(digits) > _LONG and root >= _LEAST_ROOT[_LONG]:
        yield digits
    elif _is_fraction(value) and len(digits) > _SHORT and root >= _LEAST_ROOT[_SHORT]:
        yield _plain(value)


def _quotients(value: Decimal) -> Iterator[str]:
    """Yield what a share is known by where it is written as a quotient: its value, rounded."""
    if _is_fraction(value):
        yield from (f"q{_plain(Context(prec=digits).plus(value))}" for digits in _ROUNDINGS)


def _digits(value: Decimal) -> str:
    """Return the digits of a number without sign, scale, and zeros at either end.

    A letter in front tells them from a number as written.
    """
    return "d" + "".join(map(str, value.as_tuple().digits)).strip("0")


def _root(digits: str) -> int:
    """Return what is left of the digits without factors 2 and 5: 1 for 65536, 8388.608, 0.125."""
    number = int(digits[1:] or 0)
    for factor in (2, 5):
        while number and number % factor == 0:
            number //= factor
    return number


def _is_fraction(value: Decimal) -> bool:
    return value != value.to_integral_value()


def _plain(value: Decimal) -> str:
    return f"{value.normalize():f}"
