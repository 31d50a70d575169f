"""Does the correctness gate of a problem tell right from wrong? Ask it about known answers.

A mutant must be refused in some case of every workload, an honest variant accepted in every case.
Inputs, expected values and honest outputs of a case are computed once and shared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from attrs import define, field, frozen

from atrex_core.interfaces import Implementation, Inapplicable, Problem, Tensors
from atrex_core.model import Protocol, Workload
from atrex_core.printable import one_line
from atrex_core.referee.bench import Truth, correctness_regimes, first_wrong, judge_outputs
from atrex_core.tensors import dense, dtype_of

REFERENCE = "reference"
"""Name under which a problem's own honest output is judged, as a variant."""

_KEPT_BYTES = 1 << 31
"""Inputs and expected values up to this size are kept whole, so as to be used many times."""


class Kind(StrEnum):
    """What an implementation is meant to be."""

    MUTANT = "mutant"
    VARIANT = "variant"


class Fate(StrEnum):
    """What became of an implementation on one workload."""

    KILLED = "killed"
    SURVIVED = "survived"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    INAPPLICABLE = "inapplicable"
    BROKEN = "broken"


@frozen(kw_only=True)
class Finding:
    """One implementation on one workload."""

    problem: str
    workload: str
    protocol: Protocol
    kind: Kind
    name: str
    fate: Fate
    regime: str | None = None
    """The case that decided, where one did."""
    reason: str | None = None
    seconds: float = 0.0

    @property
    def is_as_it_should_be(self) -> bool:
        """Whether the gate did right by it."""
        return self.fate in (Fate.KILLED, Fate.ACCEPTED, Fate.INAPPLICABLE)


@define(eq=False)
class _Suspect:
    kind: Kind
    name: str
    run: Implementation
    fate: Fate
    regime: str | None = None
    reason: str | None = None
    seconds: float = 0.0
    settled: bool = field(default=False)

    def settle(self, fate: Fate, regime: str | None, reason: str | None) -> None:
        self.fate, self.regime, self.settled = fate, regime, True
        self.reason = one_line(reason) if reason else None


def lint_workload(
    problem: Problem,
    workload: Workload,
    *,
    protocol: Protocol,
    device: str,
    seed: int,
    cases: int,
) -> Iterator[Finding]:
    """Judge every implementation that `problem` ships on `workload`; yield one finding for each.

    Args:
        problem: As `protocol` judges it.
        workload: One of its workloads.
        protocol: Recorded with the findings.
        device: The torch device to compute on.
        seed: Of the first case; each further case adds one.
        cases: At least so many, and each regime at least once.
    """
    suspects = [_Suspect(Kind.VARIANT, REFERENCE, problem.honest, Fate.ACCEPTED)]
    suspects += [_Suspect(Kind.VARIANT, n, f, Fate.ACCEPTED) for n, f in problem.variants().items()]
    suspects += [_Suspect(Kind.MUTANT, n, f, Fate.SURVIVED) for n, f in problem.mutants().items()]
    for number, regime in enumerate(correctness_regimes(problem, workload, cases)):
        waiting = [suspect for suspect in suspects if not suspect.settled]
        if not waiting:
            break
        inputs = problem.draw(workload, regime=regime, seed=seed + number, device=device)
        truth = _kept(Truth.of(problem, workload, inputs))
        before = _copies(inputs)
        for suspect in waiting:
            started = time.perf_counter()
            _try(suspect, problem, workload, inputs, truth, regime)
            suspect.seconds += time.perf_counter() - started
            if before is not None and (changed := _changed(inputs, before)):
                suspect.settle(Fate.BROKEN, regime, f"it changed its input {changed!r}")
                inputs[changed].copy_(before[changed])
        del inputs, truth, before
    for suspect in suspects:
        yield Finding(
            problem=problem.name,
            workload=workload.id,
            protocol=protocol,
            kind=suspect.kind,
            name=suspect.name,
            fate=suspect.fate,
            regime=suspect.regime,
            reason=suspect.reason,
            seconds=suspect.seconds,
        )


def _try(
    suspect: _Suspect,
    problem: Problem,
    workload: Workload,
    inputs: Tensors,
    truth: Truth,
    regime: str,
) -> None:
    import torch

    is_reference = suspect.kind is Kind.VARIANT and suspect.name == REFERENCE
    try:
        with torch.no_grad():
            outputs = truth.honest if is_reference else suspect.run(workload, inputs)
    except Inapplicable as word:
        suspect.settle(Fate.INAPPLICABLE, regime, str(word) or None)
        return
    except Exception as error:  # noqa: BLE001  (it is the pack's code: say what it did)
        suspect.settle(Fate.BROKEN, regime, f"{type(error).__name__}: {error}")
        return
    if fault := _unlike_the_specs(problem, workload, outputs):
        suspect.settle(Fate.BROKEN, regime, fault)
        return
    # A kernel's answer is refused for this before it is compared; here the comparison is on trial.
    outputs = {name: tensor.contiguous() for name, tensor in outputs.items()}
    wrong = first_wrong(judge_outputs(problem, workload, inputs, outputs, truth))
    if wrong is None:
        return
    name, comparison = wrong
    fate = Fate.KILLED if suspect.kind is Kind.MUTANT else Fate.REFUSED
    suspect.settle(fate, regime, f"output {name!r}: {comparison.reason}")


def _unlike_the_specs(problem: Problem, workload: Workload, outputs: Any) -> str | None:
    """Say what a worker would refuse: it never gets as far as a comparison."""
    specs = problem.outputs(workload)
    if not isinstance(outputs, Mapping) or set(outputs) != {spec.name for spec in specs}:
        return f"it returned no mapping of {[spec.name for spec in specs]}"
    for spec in specs:
        tensor = outputs[spec.name]
        if tuple(tensor.shape) != spec.shape or dtype_of(tensor) is not spec.dtype:
            found = f"{dtype_of(tensor) or tensor.dtype} {list(tensor.shape)}"
            return f"output {spec.name!r} is {found}, not {spec.dtype} {list(spec.shape)}"
    return None


def _kept(truth: Truth) -> Truth:
    """Hold small expected values whole, so that they are computed once."""
    kept = {
        name: dense(value) if _bytes(value.shape) <= _KEPT_BYTES else value
        for name, value in truth.expected.items()
    }
    return Truth(expected=kept, honest=truth.honest)


def _copies(inputs: Tensors) -> Tensors | None:
    if sum(tensor.nbytes for tensor in inputs.values()) > _KEPT_BYTES:
        return None
    return {name: tensor.clone() for name, tensor in inputs.items()}


def _changed(inputs: Tensors, before: Tensors) -> str | None:
    import torch

    for name, tensor in inputs.items():
        now, then = (t.reshape(-1).view(torch.uint8) for t in (tensor, before[name]))
        if not torch.equal(now, then):
            return name
    return None


def _bytes(shape: tuple[int, ...]) -> int:
    count = 8
    for extent in shape:
        count *= extent
    return count
