"""What is claimed of a release, and whether it was proved."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from attrs import frozen

from atrex_core.printable import one_line

_MOST_SHOWN = 3


class Standing(StrEnum):
    """What came of a claim."""

    PASS = "PASS"  # noqa: S105 - a word in a table, no password
    FAIL = "FAIL"
    """Refuted, or not proved."""
    LIMIT = "LIMIT"
    """Not claimed: it was tried, and the isolation that is active does not prevent it."""


@frozen(kw_only=True)
class Claim:
    """One row of what `release verify` shows."""

    subject: str
    """What the claim is about: manifest, static, worker."""
    text: str
    standing: Standing
    detail: str = ""


def claim(subject: str, text: str, found: Iterable[str], *, proved: str = "") -> Claim:
    """Return the claim that nothing is `found`; `proved` says what was looked at."""
    wrong = list(dict.fromkeys(found))
    if not wrong:
        return Claim(subject=subject, text=text, standing=Standing.PASS, detail=proved)
    shown = "; ".join(wrong[:_MOST_SHOWN])
    if len(wrong) > _MOST_SHOWN:
        shown += f"; and {len(wrong) - _MOST_SHOWN} more"
    detail = one_line(shown)
    return Claim(subject=subject, text=text, standing=Standing.FAIL, detail=detail)
