"""Ways to read a text: as it stands, and as whoever hides something in it would have it read.

A reading is the text made plain, its strings put together, its escapes resolved, what is encoded in
it decoded, and all of that backwards and by ROT13. What is looked for is looked for in each.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from attrs import frozen

from atrex_core.release.folding import constants_of

_ESCAPE = re.compile(
    r"\\x([0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})|\\([0-7]{1,3})|\\N\{([^}\n]+)\}"
)
_INVISIBLE = frozenset({"Cf", "Mn", "Me", "Cc", "Co", "Cn"})
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{6,}")
_BASE32 = re.compile(r"[A-Z2-7]{8,}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}[ :,]?){5,}")
_PRINTABLE = re.compile(rb"[\x20-\x7e]{4,}")
_WRAPPED = re.compile(r"[\"'\\]?\s*\n[\s#]*[\"']?")


@frozen
class Reading:
    """One way to read a text."""

    text: str
    how: str = ""
    """What was done to it: `decoded`, `backwards`; nothing where it stands there openly."""

    @property
    def is_open(self) -> bool:
        """Whether the text says so as it stands, or as Python and JSON understand it."""
        return not self.how


def readings(path: str, text: str) -> list[Reading]:
    """Return every reading of the file `path`."""
    stands = made_plain(text)
    strings = "\n".join(map(made_plain, _strings(path, text)))
    resolved = made_plain(_resolved(text))
    openly = "\n".join(dict.fromkeys([stands, strings, resolved]))
    decoded = "\n".join(_decoded(openly))
    found = [
        Reading(stands),
        *(Reading(other) for other in (strings, resolved) if other != stands),
        Reading(decoded, "decoded"),
        Reading(made_plain(_resolved(decoded)), "decoded"),
        Reading("\n".join(_decoded(decoded)), "decoded twice"),
        Reading(openly[::-1], "backwards"),
        Reading("\n".join(_decoded(openly[::-1])), "backwards and decoded"),
        Reading(decoded[::-1], "decoded and backwards"),
        Reading(codecs.encode(openly, "rot13"), "by ROT13"),
    ]
    return [reading for reading in found if reading.text]


def made_plain(text: str) -> str:
    """Return a text without marks and invisible characters, letters and digits in usual form."""
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", text)
    kept = (c for c in apart if c in "\n\t" or unicodedata.category(c) not in _INVISIBLE)
    together = unicodedata.normalize("NFKC", "".join(kept))
    return "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in together)


def encodings(word: str) -> Iterator[tuple[bytes, str]]:
    """Yield the forms in which a word stands in what hides it, each with what was done to it."""
    plain = word.encode()
    yield plain, ""
    yield plain[::-1], "backwards"
    yield codecs.encode(word, "rot13").encode(), "by ROT13"
    yield plain.hex().encode(), "in hexadecimal"
    yield plain.hex().upper().encode(), "in hexadecimal"
    for before in range(3):  # what stands before decides how it falls into groups of three
        whole = base64.b64encode(b"\0" * before + plain)
        first = -(-before * 4 // 3)
        last = (before + len(plain)) * 4 // 3
        yield whole[first:last], "in base64"


def _strings(path: str, text: str) -> Iterator[str]:
    """Yield the values that a file has once it is understood: of Python, or of JSON."""
    if path.endswith(".py"):
        yield from constants_of(text)
    elif path.endswith(".json"):
        try:
            yield from _leaves(json.loads(text))
        except (ValueError, RecursionError):
            return


def _leaves(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for key, inner in value.items():
                yield key
                yield from _leaves(inner)
        case list():
            for inner in value:
                yield from _leaves(inner)
        case str():
            yield value
        case _:
            yield json.dumps(value)


def _resolved(text: str) -> str:
    """Return a text with what Python, HTML and addresses escape as the characters meant."""

    def character(match: re.Match[str]) -> str:
        *digits, octal, name = match.groups()
        try:
            if name:
                return unicodedata.lookup(name)
            return chr(int(octal, 8) if octal else int(next(filter(None, digits)), 16))
        except (KeyError, ValueError, OverflowError):
            return match.group()

    return unquote(html.unescape(_ESCAPE.sub(character, text)))


def _decoded(text: str) -> Iterator[str]:
    """Yield what can be read in what may be encoded, wherever its groups begin."""
    for whole in dict.fromkeys([text, _WRAPPED.sub("", text)]):
        for match in _HEX.finditer(whole):
            digits = re.sub(r"[ :,]", "", match.group())
            for start in range(2):
                half = digits[start:]
                yield from _legible(binascii.unhexlify(half[: len(half) // 2 * 2]))
        for match in _BASE64.finditer(whole):
            token = match.group().replace("-", "+").replace("_", "/")
            for start in range(4):
                part = token[start:]
                part = part[: len(part) - (len(part) % 4 == 1)]
                yield from _legible(base64.b64decode(part + "=" * (-len(part) % 4)))
        for match in _BASE32.finditer(whole):
            token = match.group()[: len(match.group()) // 8 * 8]
            yield from _legible(base64.b32decode(token))


def _legible(content: bytes) -> Iterator[str]:
    for match in _PRINTABLE.finditer(content):
        yield match.group().decode()
