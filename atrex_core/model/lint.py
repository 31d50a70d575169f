"""What a lint of a problem found out: does its correctness gate tell right from wrong?"""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from atrex_core.model.result import Protocol


class Kind(StrEnum):
    """What was tried."""

    MUTANT = "mutant"
    """A wrong implementation that the problem ships: some case must refuse it."""
    VARIANT = "variant"
    """An honest implementation that the problem ships: every case must accept it."""
    KERNEL = "kernel"
    """A backend's own kernel, as one more honest implementation."""
    CHECK = "check"
    """A claim that the problem makes about itself."""


class Fate(StrEnum):
    """What became of it."""

    KILLED = "killed"
    """A mutant was refused."""
    SURVIVED = "survived"
    """A mutant was accepted in every case."""
    ACCEPTED = "accepted"
    """An honest implementation was accepted in every case."""
    REFUSED = "refused"
    """An honest implementation was refused."""
    PASSED = "passed"
    """A check holds."""
    FAILED = "failed"
    """A check does not hold."""
    INAPPLICABLE = "inapplicable"
    """A mutant says that it cannot be wrong here."""
    SKIPPED = "skipped"
    """It could not be tried here, such as for want of memory: nobody's fault."""
    BROKEN = "broken"
    """It raised, crashed, hung, or gave what is no answer."""

    @property
    def is_fault(self) -> bool:
        """Whether the problem, or the gate, has to change."""
        return self in (Fate.SURVIVED, Fate.REFUSED, Fate.FAILED, Fate.BROKEN)


@frozen(kw_only=True)
class Finding:
    """What became of one thing on one workload under one protocol."""

    problem: str
    workload: str | None
    """None where it concerns the problem as a whole."""
    protocol: Protocol
    kind: Kind
    name: str
    fate: Fate
    regime: str | None = None
    """The case that decided; of what was accepted, the one that came nearest to refusing it."""
    reason: str | None = None
    bound: str | None = None
    """Which bound of the comparison rule decided, or was nearest."""
    share: float | None = None
    """The error as a share of what that bound allows, where it is a number."""
    identical: bool = False
    """Whether a mutant gave the reference's answer, bit for bit, in every case."""
    seconds: float = 0.0

    @property
    def is_as_it_should_be(self) -> bool:
        """Whether nothing has to change on its account."""
        return not self.fate.is_fault


@frozen(kw_only=True)
class Task:
    """What is linted in one go: a workload of a problem under a protocol."""

    problem: str
    workload: str | None
    """None asks for the checks of the problem as a whole."""
    protocol: Protocol
