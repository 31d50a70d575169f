"""Errors the command line knows how to explain.

A candidate that misbehaves is data (a failed gate), never one of these.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """What `atrex-eval` returns to the shell."""

    OK = 0
    """No gate failed or errored."""
    CANDIDATE_FAILED = 1
    """A candidate failed a gate."""
    USAGE = 2
    """A wrong option, an unknown name, or a file that cannot be used."""
    HARNESS_ERROR = 3
    """We, or a plugin, are at fault."""
    UNAVAILABLE = 4
    """The backend or device is not available on this machine."""
    NOTHING_TO_DO = 5
    """The selection is empty."""
    INTERRUPTED = 130
    """Ctrl-C; everything judged so far is in the journal."""


class AtrexError(Exception):
    """Base of every error raised on purpose. `hint` says what to do next."""

    exit_code: ClassVar[ExitCode] = ExitCode.HARNESS_ERROR

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(AtrexError):
    """The request cannot be carried out as written."""

    exit_code = ExitCode.USAGE


class UnknownName(UsageError):
    """A name that no plugin provides."""


class PluginError(AtrexError):
    """A plugin broke the contract: bad hook signature, duplicate name, wrong type."""


class HarnessError(AtrexError):
    """A process or file of ours failed; the candidate is not to blame."""


class Unavailable(AtrexError):
    """The backend or device exists but this machine cannot run it."""

    exit_code = ExitCode.UNAVAILABLE


class NothingToDo(AtrexError):
    """The selection holds no evaluation."""

    exit_code = ExitCode.NOTHING_TO_DO
