"""Numbers that would give away where they come from, and how to find them in a text.

Most numbers say nothing: 27, 0.5 and 65536 are everywhere. One is *telling* when its digits are too
many to be met by chance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Context, Decimal

_NUMBER = re.compile(r"(?<![\w.])\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w)")
_LONG = 5
"""Digits by which a number is known again at any scale: 0.027508, 2.7508 percent, 27508."""
_SHORT = 3
"""Digits by which a fraction is known again when it is written as it is."""
_LEAST_ROOT = {_LONG: 1000, _SHORT: 100}
_ROUNDINGS = (4, 5, 6)


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


def numbers_in(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each number in a text as it is written, with all it may be known by."""
    for match in _NUMBER.finditer(text):
        value = Decimal(match.group().replace("_", ""))
        yield match.group(), frozenset({_digits(value), _plain(value)})


def plain(value: float) -> str:
    """Return the one way of writing a number that stands for all ways of writing it."""
    return _plain(Decimal(repr(value)))


def _keys(value: Decimal) -> Iterator[str]:
    digits = _digits(value)
    root = _root(digits)
    if len(digits) > _LONG and root >= _LEAST_ROOT[_LONG]:
        yield digits
    elif _is_fraction(value) and len(digits) > _SHORT and root >= _LEAST_ROOT[_SHORT]:
        yield _plain(value)


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
