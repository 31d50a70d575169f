"""Known names in a text, however they are spelled: `half_sum`, `HalfSumV2`, `half of the sum`."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from functools import lru_cache

from attrs import frozen

_RUN = re.compile(r"\w+")
_PHRASE = re.compile(r"\w+(?:[\s#'\"`*-]+\w+)+")
"""Words that blanks, hyphens, quotation marks and beginnings of lines divide, and nothing else."""
_BETWEEN = r"[\W_]*"
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
LONG = 8
"""Letters of a name that is known again inside of any other, wherever that is divided."""
_DISTINCT = 3
"""Parts of a name that is known again where blanks or hyphens divide it, as they divide words."""
LEAST_HIDDEN = 5
"""Letters of a name that is looked for backwards, in code, and by ROT13."""


@frozen
class Spelled:
    """A name or word, taken apart."""

    bare: str
    parts: tuple[str, ...]

    def is_in(self, other: Spelled) -> bool:
        """Whether another name has this one in it."""
        if len(self.bare) >= LONG:
            return self.bare in other.bare
        count = len(self.parts)
        starts = range(len(other.parts) - count + 1) if count else ()
        return any(other.parts[i : i + count] == self.parts for i in starts)


@lru_cache(maxsize=2**16)
def spelled(name: str) -> Spelled:
    """Take a name apart at underscores, hyphens, digits and capitals."""
    parts = _parts(name)
    return Spelled("".join(parts), parts)


def spellings(
    text: str, known: Mapping[str, str], told: Container[str], *, hidden: bool
) -> Iterator[tuple[str, str]]:
    """Yield each name of a text that has a known one in it, with that one.

    Args:
        text: Where to look.
        known: By what is looked for, where it comes from.
        told: Those of them that words of a sentence may tell; names of helpers are ordinary words.
        hidden: Whether the text was hidden; short names are not looked for there.
    """
    wanted = [(name, spelled(name)) for name in known]
    if hidden:
        wanted = [(name, form) for name, form in wanted if len(form.bare) >= LEAST_HIDDEN]
    distinct = [(name, form) for name, form in wanted if len(form.parts) >= _DISTINCT]
    for run in dict.fromkeys(_RUN.findall(text)):
        yield from ((run, name) for name, own in wanted if own.is_in(spelled(run)))
    for phrase in _PHRASE.findall(text) if distinct else ():
        words = f" {' '.join(_parts(phrase))} "
        for name, own in distinct:
            if f" {' '.join(own.parts)} " in words:
                yield from (
                    (r, name) for r in _runs_of(own, phrase) if name in told or " " not in r
                )


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part.casefold() for part in _PART.findall(name))


def _runs_of(name: Spelled, phrase: str) -> Iterator[str]:
    """Yield how a name stands in a phrase that divides it into words."""
    pattern = _BETWEEN.join(map(re.escape, name.parts))
    for run in dict.fromkeys(re.findall(pattern, phrase, re.IGNORECASE)):
        if not _RUN.fullmatch(run):
            yield " ".join(run.split())
