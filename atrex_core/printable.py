"""Text that others wrote, made safe to show: a candidate's words end up on terminals and in logs.

What a terminal would obey (escape sequences, line ends, direction marks) is shown, not sent.
"""

from __future__ import annotations

import math
import unicodedata
from typing import Any

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MOST_TEXT = 4000
_MOST_ITEMS = 1000
_MOST_DEPTH = 12


def one_line(text: str, limit: int = 1000) -> str:
    """Return `text` as one line of at most `limit` printable characters."""
    return _cut(_visible(" ".join(text[: 4 * limit].split()), kept=""), limit)


def many(number: int, what: str) -> str:
    """Say how many of what there are."""
    return f"{number} {what}{'s' * (number != 1)}"


def block(text: str, limit: int = _MOST_TEXT) -> str:
    """Return `text`, its lines kept, in printable characters: of a long one, both ends."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"
    return _visible(text, kept="\n\t")


def plain(value: Any, depth: int = 0) -> Any:
    """Return JSON values of bounded size: text printable, numbers finite, nothing nested deeply."""
    match value:
        case str():
            return block(str(value))
        case float() if not math.isfinite(value):
            return str(value)
        case None | bool() | int() | float():
            return value
        case _ if depth == _MOST_DEPTH:
            return "..."
        case list() | tuple():
            return [plain(item, depth + 1) for item in value[:_MOST_ITEMS]]
        case dict():
            items = list(value.items())[:_MOST_ITEMS]
            return {one_line(str(key), 100): plain(item, depth + 1) for key, item in items}
    return one_line(str(value))


def _visible(text: str, *, kept: str) -> str:
    return "".join(
        char if char in kept or unicodedata.category(char) not in _UNSAFE else _escaped(char)
        for char in text
    )


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 4] + " ..."
