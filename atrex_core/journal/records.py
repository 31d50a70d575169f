"""What a journal holds, as values."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from attrs import field, frozen

from atrex_core.model import (
    Candidate,
    Device,
    Evaluation,
    Gate,
    GateResult,
    Outcome,
    Pack,
    Protocol,
    Scale,
    Verdict,
)
from atrex_core.model.lint import Fate, Finding, Task

NOT_ASKED: Final = "not asked for"
"""How the reason of a gate begins that was skipped because the run was to stop before it."""


_ASKED: Final = ("targets", "cases")
"""What a request must agree in. More patience or memory can only turn a failure around: see
`limits_changed`."""
_LIMITS: Final = ("timeout_s", "memory_limit_bytes")


class Encoding(StrEnum):
    """How a candidate's source is kept as text."""

    UTF_8 = "utf-8"
    BASE64 = "base64"


@frozen(kw_only=True)
class SourceRecord:
    """A candidate's source as the journal keeps it, once for each digest."""

    digest: str
    backend: str
    problem: str
    name: str
    encoding: Encoding
    source: str

    @classmethod
    def of(cls, candidate: Candidate) -> Self:
        """Record a candidate, byte for byte."""
        try:
            encoding, source = Encoding.UTF_8, candidate.source.decode()
        except UnicodeDecodeError:
            encoding, source = Encoding.BASE64, base64.b64encode(candidate.source).decode()
        return cls(
            digest=candidate.digest,
            backend=candidate.backend,
            problem=candidate.problem,
            name=candidate.name,
            encoding=encoding,
            source=source,
        )

    @property
    def content(self) -> bytes:
        """The source as it was read."""
        if self.encoding is Encoding.BASE64:
            return base64.b64decode(self.source, validate=True)
        return self.source.encode()

    def candidate(self, path: Path) -> Candidate:
        """Return the candidate again, as if it had been read from `path`."""
        return Candidate(
            name=self.name,
            problem=self.problem,
            backend=self.backend,
            path=path,
            source=self.content,
        )


@frozen
class Damage:
    """A line that holds no record, in whole or in part."""

    line: int
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}"


@frozen(kw_only=True)
class ResumeKey:
    """What must agree for an evaluation to stand for another.

    Of the device its kind, and not its id: several devices take work from one queue, and which of
    them judged what is chance. An id does not name a device for good either: visibility settings
    and other machines number anew. To set devices of one kind beside each other, give each a
    journal of its own.
    """

    digest: str
    submission: str
    problem: str
    workload: str
    backend: str
    accelerator: str
    device_name: str
    virtual: bool
    target: str
    protocol: Protocol
    pack_digest: str
    scale: Scale
    request: tuple[tuple[str, str], ...]


@frozen(kw_only=True)
class LintRecord:
    """What a lint found in one task."""

    pack: Pack
    task: Task
    device: Device
    cases: int
    seed: int | None
    """None where a referee drew its own."""
    submission: str | None = None
    """The backend whose kernel was tried, None where it was what the problem itself ships."""
    digest: str | None = None
    """Of that kernel's source."""
    findings: tuple[Finding, ...]
    seconds: float
    environment: Mapping[str, str] = field(factory=dict)
    finished_at: str

    @property
    def problem(self) -> str:
        """The problem's name."""
        return self.task.problem

    @property
    def workload(self) -> str | None:
        """The workload's id, None for the checks of the problem as a whole."""
        return self.task.workload

    @property
    def is_complete(self) -> bool:
        """Whether trying again would find nothing new."""
        return not any(found.fate in (Fate.BROKEN, Fate.SKIPPED) for found in self.findings)


@frozen(kw_only=True)
class LintKey:
    """What must agree for a lint of a task to stand for another."""

    pack_name: str
    pack_digest: str
    task: Task
    device_name: str
    cases: int
    submission: str | None
    digest: str | None


@frozen(kw_only=True)
class Contents:
    """Everything a journal held when it was read."""

    evaluations: tuple[Evaluation, ...] = ()
    """In the order they were written; exact repetitions, from joining files, count once."""
    sources: Mapping[str, SourceRecord]
    """By candidate digest."""
    lints: tuple[LintRecord, ...] = ()
    damaged: tuple[Damage, ...] = ()
    foreign: bool = False
    """Whether the file is not empty and yet no line of it can ever have been a record."""


def lint_key(record: LintRecord) -> LintKey:
    """Return what a repetition of `record` would have in common with it."""
    return LintKey(
        pack_name=record.pack.name,
        pack_digest=record.pack.digest,
        task=record.task,
        device_name=record.device.name,
        cases=record.cases,
        submission=record.submission,
        digest=record.digest,
    )


def resume_key(evaluation: Evaluation) -> ResumeKey:
    """Return what a repetition of `evaluation` would have in common with it."""
    return ResumeKey(
        digest=evaluation.digest,
        submission=evaluation.submission,
        problem=evaluation.problem,
        workload=evaluation.workload,
        backend=evaluation.backend,
        accelerator=evaluation.accelerator,
        device_name=evaluation.device.name,
        virtual=evaluation.device.virtual,
        target=evaluation.target,
        protocol=evaluation.protocol,
        pack_digest=evaluation.pack.digest,
        scale=evaluation.scale,
        request=tuple((name, evaluation.request.get(name, "")) for name in _ASKED),
    )


def is_complete(evaluation: Evaluation, until: Gate | None = None) -> bool:
    """Return whether repeating `evaluation`, up to gate `until`, would find nothing new.

    It would if a gate errored, or is missing, or was left out because fewer were asked for.
    """
    if evaluation.outcome is Verdict.ERRORED:
        return False
    if evaluation.first_failure is not None:
        return True
    gates = list(Gate)
    wanted = gates[: gates.index(until) + 1] if until else gates
    return all(_was_judged(evaluation.gates.get(gate)) for gate in wanted)


def limits_changed(evaluation: Evaluation, request: Mapping[str, str]) -> bool:
    """Return whether a failure was judged under other limits than `request` has now."""
    if evaluation.first_failure is None:
        return False
    return any(evaluation.request.get(name) != request.get(name) for name in _LIMITS)


def _was_judged(result: GateResult | None) -> bool:
    if result is None:
        return False
    skipped = result.outcome is Outcome.SKIPPED
    return not (skipped and (result.reason or "").startswith(NOT_ASKED))
