"""The append-only record of evaluations: JSON Lines, one record a line, safe to `cat` together.

A line is never edited and a file never rewritten. Records of an older schema are upgraded in
memory, one step at a time; a damaged line is reported with its number and costs nothing else.
"""

from atrex_core.journal.file import Journal
from atrex_core.journal.reading import SCHEMA, upgraded
from atrex_core.journal.records import (
    NOT_ASKED,
    Contents,
    Damage,
    Encoding,
    LintKey,
    LintRecord,
    ResumeKey,
    SourceRecord,
    is_complete,
    limits_changed,
    lint_key,
    resume_key,
)

__all__ = [
    "NOT_ASKED",
    "SCHEMA",
    "Contents",
    "Damage",
    "Encoding",
    "Journal",
    "LintKey",
    "LintRecord",
    "ResumeKey",
    "SourceRecord",
    "is_complete",
    "limits_changed",
    "lint_key",
    "resume_key",
    "upgraded",
]
