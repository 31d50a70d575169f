"""Does the correctness gate of a problem tell right from wrong? Ask it about known answers.

A mutant must be refused in some case of every workload, an honest variant accepted in every case.
Inputs, expected values and honest outputs of a case are computed once and shared.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from attrs import define, field

from atrex_core.comparison import Comparison
from atrex_core.interfaces import Implementation, Inapplicable, Problem, Tensors
from atrex_core.interfaces.declared import mutants_of, regimes_of, variants_of
from atrex_core.model import CodeSteps, Protocol, TensorSpec, Workload
from atrex_core.model.lint import Fate, Finding, Kind
from atrex_core.printable import one_line
from atrex_core.processes.attempt import Attempt
from atrex_core.referee.bench import Truth, correctness_regimes, first_wrong, judge_outputs
from atrex_core.referee.faults import MOST_REASON, Complaint, fault_of, unlike
from atrex_core.referee.lint_truth import Agreement
from atrex_core.referee.margins import margin
from atrex_core.referee.seals import Seal, plain, raw
from atrex_core.tensors import dense

__all__ = ["DRAW", "REFERENCE", "Fate", "Finding", "Kind", "lint_workload"]

REFERENCE = "reference"
"""Name under which a problem's own honest output is judged, as a variant."""
DRAW = "draw"
EXPECTED = "expected"
"""Names, as checks, of what everything else on a workload rests on."""

_KEPT_BYTES = 1 << 31
"""Expected values up to this size are kept whole, so as to be used many times."""

Watch = Callable[[Attempt], None]
Excluded = Collection[tuple[Kind, str]]


def lint_workload(
    problem: Problem,
    workload: Workload,
    *,
    protocol: Protocol,
    device: str,
    seed: int,
    cases: int,
    watch: Watch | None = None,
    without: Excluded = (),
) -> Iterator[Finding]:
    """Judge every implementation that `problem` ships on `workload`; yield one finding for each.

    Where inputs or expected values cannot be had, nothing can be judged: the last finding then
    says so, and what was not settled before has none.

    Args:
        problem: As `protocol` judges it.
        workload: One of its workloads.
        protocol: Recorded with the findings.
        device: The torch device to compute on.
        seed: Of the first case; each further case adds one.
        cases: At least so many, and each regime at least once.
        watch: Told of everything before it is tried.
        without: Left out, because trying it has ended a process before.
    """
    if not {(Kind.CHECK, DRAW), (Kind.CHECK, EXPECTED), (Kind.VARIANT, REFERENCE)}.isdisjoint(
        without
    ):
        return
    court = _Court(problem, workload, protocol, device, watch or _nobody_watches)
    suspects: list[_Suspect] = []
    try:
        suspects += court.suspects(without)
        with court.resting_on(Kind.CHECK, "regimes"):
            regimes_of(problem, workload)
            regimes = correctness_regimes(problem, workload, cases)
        for number, regime in enumerate(regimes):
            waiting = [suspect for suspect in suspects if not suspect.settled]
            if not waiting:
                break
            court.hear(waiting, regime, seed + number)
    except _Halt as halt:
        yield from (court.finding(s) for s in suspects if s.settled)
        yield court.finding(halt.suspect)
    else:
        yield from map(court.finding, suspects)


@define(eq=False)
class _Suspect:
    kind: Kind
    name: str
    run: Implementation
    fate: Fate
    regime: str | None = None
    reason: str | None = None
    bound: str | None = None
    share: float | None = None
    identical: bool = True
    seconds: float = 0.0
    settled: bool = False

    @property
    def is_reference(self) -> bool:
        return (self.kind, self.name) == (Kind.VARIANT, REFERENCE)

    def settle(self, fate: Fate, reason: str | None, regime: str | None) -> None:
        self.fate, self.regime, self.settled = fate, regime, True
        self.reason = one_line(reason, MOST_REASON) if reason else None
        self.bound = self.share = None


class _Halt(Exception):
    """What everything else rests on cannot be had."""

    def __init__(self, suspect: _Suspect) -> None:
        super().__init__(suspect.name)
        self.suspect = suspect


def pass_on_the_users_own(error: BaseException) -> None:
    """Raise an interrupt that may be the user's: not where the signal is ignored."""
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if isinstance(error, KeyboardInterrupt) and not ignored:
        raise error


@define(eq=False)
class _Court:
    """Where the implementations of one problem are tried on one workload."""

    problem: Problem
    workload: Workload
    protocol: Protocol
    device: str
    watch: Watch
    _pid: int = field(factory=os.getpid, init=False)

    def suspects(self, without: Excluded) -> list[_Suspect]:
        """Return everything that is to be tried, the reference first: the rest rests on it."""
        honest: Mapping[str, Implementation] = {}
        with self.resting_on(Kind.CHECK, "variants"):
            honest = {REFERENCE: self.problem.honest, **variants_of(self.problem)}
        wrong: Mapping[str, Implementation] = {}
        with self.resting_on(Kind.CHECK, "mutants"):
            wrong = mutants_of(self.problem)
        found = [_Suspect(Kind.VARIANT, n, f, Fate.ACCEPTED) for n, f in honest.items()]
        found += [_Suspect(Kind.MUTANT, n, f, Fate.SURVIVED) for n, f in wrong.items()]
        return [suspect for suspect in found if (suspect.kind, suspect.name) not in without]

    def hear(self, waiting: list[_Suspect], regime: str, seed: int) -> None:
        """Try what is not settled yet in one case."""

        def draw() -> Tensors:
            return dict(
                self.problem.draw(self.workload, regime=regime, seed=seed, device=self.device)
            )

        with self.resting_on(Kind.CHECK, DRAW, regime):
            inputs = draw()
            seal = Seal.of(inputs)
        with self.resting_on(Kind.CHECK, EXPECTED, regime):
            expected = _kept(self.problem.expected(self.workload, lent(inputs)))
            _refuse_change(seal, inputs)
        with self.resting_on(Kind.VARIANT, REFERENCE, regime):
            honest = self.problem.honest(self.workload, lent(inputs))
            _refuse_change(seal, inputs)
        truth = Truth(expected=expected, honest=honest)
        agreement = Agreement(self.problem, self.workload, expected)
        for suspect in waiting:
            self.watch(Attempt(suspect.kind, suspect.name, regime))
            started = time.perf_counter()
            self._try(suspect, inputs, truth, regime, agreement)
            suspect.seconds += time.perf_counter() - started
            if suspect.is_reference and suspect.fate in (Fate.BROKEN, Fate.SKIPPED):
                raise _Halt(suspect)
            if changed := _broken(seal, inputs):
                suspect.settle(Fate.BROKEN, _changed(changed), regime)
                with self.resting_on(Kind.CHECK, DRAW, regime):
                    inputs = _refilled(seal, inputs) or draw()
                    if _broken(seal, inputs):
                        raise Complaint(f"after {suspect.name!r} it draws other inputs")
        reference = next((suspect for suspect in waiting if suspect.is_reference), None)
        if reference and not reference.settled and (complaint := agreement.complaint()):
            reference.settle(Fate.REFUSED, complaint, regime)

    @contextmanager
    def resting_on(self, kind: Kind, name: str, regime: str | None = None) -> Iterator[None]:
        """Run a block without which nothing can be judged."""
        self.watch(Attempt(kind, name, regime))
        try:
            yield
        except BaseException as error:  # a pack's code may raise anything: say what it did
            pass_on_the_users_own(error)
            suspect = _Suspect(kind, name, self.problem.honest, Fate.BROKEN)
            suspect.settle(*fault_of(error, self.device), regime)
            raise _Halt(suspect) from error

    def finding(self, suspect: _Suspect) -> Finding:
        return Finding(
            problem=self.problem.name,
            workload=self.workload.id,
            protocol=self.protocol,
            kind=suspect.kind,
            name=suspect.name,
            fate=suspect.fate,
            regime=suspect.regime,
            reason=suspect.reason,
            bound=suspect.bound,
            share=suspect.share,
            identical=suspect.fate is Fate.SURVIVED and suspect.identical,
            seconds=suspect.seconds,
        )

    def _try(
        self,
        suspect: _Suspect,
        inputs: Tensors,
        truth: Truth,
        regime: str,
        agreement: Agreement,
    ) -> None:
        import torch

        try:
            with torch.no_grad():
                outputs = truth.honest
                if not suspect.is_reference:
                    outputs = suspect.run(self.workload, lent(inputs))
                    if os.getpid() != self._pid:
                        os._exit(1)  # it forked: the copy of us that comes back has no say
        except Inapplicable as word:
            if suspect.kind is Kind.MUTANT:
                suspect.settle(Fate.INAPPLICABLE, str(word) or None, regime)
            else:
                suspect.settle(Fate.BROKEN, "only a mutant may be inapplicable", regime)
            return
        except BaseException as error:  # noqa: BLE001  (it is the pack's code: say what it did)
            pass_on_the_users_own(error)
            suspect.settle(*fault_of(error, self.device), regime)
            return
        try:
            if fault := unlike(self.problem.outputs(self.workload), outputs, self.device):
                suspect.settle(Fate.BROKEN, f"its answer is not as declared: {fault}", regime)
                return
            # A kernel's answer is refused for this before it is compared; here the rule is tried.
            outputs = {name: plain(tensor) for name, tensor in outputs.items()}
            if suspect.kind is Kind.VARIANT:
                agreement.note(outputs, is_reference=suspect.is_reference)
            found = judge_outputs(self.problem, self.workload, lent(inputs), outputs, truth)
            self._rule(suspect, found, outputs, truth, regime)
        except BaseException as error:  # noqa: BLE001  (canonical and tolerance are the pack's, too)
            pass_on_the_users_own(error)
            fate, reason = fault_of(error, self.device)
            suspect.settle(fate, f"its answer could not be judged: {reason}", regime)

    def _rule(
        self,
        suspect: _Suspect,
        found: Mapping[str, Comparison],
        outputs: Tensors,
        truth: Truth,
        regime: str,
    ) -> None:
        caps = {spec.name: self._cap(spec) for spec in self.problem.outputs(self.workload)}
        wrong = first_wrong(found)
        if wrong is not None:
            name, comparison = wrong
            fate = Fate.KILLED if suspect.kind is Kind.MUTANT else Fate.REFUSED
            suspect.settle(fate, f"output {name!r}: {comparison.reason}", regime)
            suspect.bound, suspect.share = margin(comparison, caps[name])
            return
        for name, comparison in found.items():
            bound, share = margin(comparison, caps[name])
            if suspect.regime is None or (share or 0.0) > (suspect.share or 0.0):
                suspect.regime, suspect.bound, suspect.share = regime, bound, share
        if suspect.kind is Kind.MUTANT and suspect.identical:
            suspect.identical = all(
                _same_bytes(tensor, truth.honest[name]) for name, tensor in outputs.items()
            )

    def _cap(self, spec: TensorSpec) -> int | None:
        rule = self.problem.tolerance(spec) if spec.dtype.is_floating else None
        return rule.cap if isinstance(rule, CodeSteps) else None


def _nobody_watches(_: Attempt) -> None:
    return


def lent(inputs: Tensors) -> Tensors:
    """Return other tensors of the same storage, in a mapping that the borrower may keep."""
    return {name: tensor.detach() for name, tensor in inputs.items()}


def _broken(seal: Seal, inputs: Tensors) -> list[str]:
    """Return the names of the inputs that are no longer what they were, or are nowhere."""
    return [name for name, tensor in inputs.items() if _is_taken(tensor)] or seal.broken(inputs)


def _is_taken(tensor: Any) -> bool:
    """Return whether there is less storage than a tensor needs: reading it would be a crash."""
    stored: int = tensor.untyped_storage().nbytes()
    return stored < _end(tensor)


def _end(tensor: Any) -> int:
    """Return where in its storage a tensor ends."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = tensor.storage_offset() + sum((extent - 1) * stride for extent, stride in steps)
    return (last + 1) * int(tensor.element_size()) if tensor.numel() else 0


def _refilled(seal: Seal, inputs: Tensors) -> Tensors | None:
    """Return inputs as they were, None where only drawing them again can give that.

    In place: a generator may give the same tensors out once more.
    """
    if seal.copies is None:
        return None
    for name, copy in seal.copies.items():
        if _is_taken(inputs[name]):
            inputs[name].untyped_storage().resize_(_end(inputs[name]))
        inputs[name].copy_(copy)
    return inputs


def _refuse_change(seal: Seal, inputs: Tensors) -> None:
    if changed := _broken(seal, inputs):
        raise Complaint(_changed(changed))


def _changed(names: list[str]) -> str:
    return f"it changed its input {', '.join(map(repr, names))}"


def _kept(expected: Tensors) -> Tensors:
    """Hold small expected values whole, so that they are computed once."""
    return {
        name: dense(value) if _bytes(value.shape) <= _KEPT_BYTES else value
        for name, value in expected.items()
    }


def _same_bytes(first: Any, second: Any) -> bool:
    import torch

    return bool(torch.equal(raw(first), raw(second)))


def _bytes(shape: tuple[int, ...]) -> int:
    count = 8
    for extent in shape:
        count *= extent
    return count
