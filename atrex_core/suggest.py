"""What to say when a name is unknown: what it could have meant, and what there is."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_LISTED = 12
"""More names than this make an error message that nobody reads."""


def natural(text: str) -> list[tuple[bool, int, str]]:
    """Return a key by which `2` comes before `10`, `r2` before `r10`, and numbers before words."""
    parts = re.findall(r"[0-9]+|[^0-9]+", text)
    return [(False, int(p), "") if p[0] in "0123456789" else (True, 0, p) for p in parts]


def close_match(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that `name` is most likely a misspelling of, ignoring case."""
    by_fold = {candidate.casefold(): candidate for candidate in known}
    found = difflib.get_close_matches(name.casefold(), by_fold, n=1, cutoff=cutoff)
    return by_fold[found[0]] if found else None


def listed(names: Iterable[str]) -> str:
    """Return the names sorted, in one line that somebody may read."""
    known = sorted(set(names), key=natural)
    text = ", ".join(known[:_LISTED]) or "none"
    return f"{text} and {len(known) - _LISTED} more" if len(known) > _LISTED else text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint of one line: the closest known name, if one is close, and what there is."""
    names = sorted(known, key=natural)
    close = close_match(name, names)
    there = f"available: {listed(names)}"
    return f"did you mean {close!r}? {there}" if close else there
