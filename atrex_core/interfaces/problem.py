"""One production operator: its public half, and the private half that judges.

Only the referee and the orchestrator hold a `Problem`. A worker is given tensors, keyword
arguments of `Model`, and copies of `public_files`; nothing else of a pack.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from attrs import field, frozen

from atrex_core.model import (
    Basis,
    Container,
    Cost,
    Origin,
    Pack,
    Phase,
    Protocol,
    Rule,
    Scale,
    TensorSpec,
    Weight,
    Workload,
)

Tensors = Mapping[str, Any]
"""Tensors by name."""

Implementation = Callable[[Workload, Tensors], Tensors]
"""Outputs by name from inputs by name: an honest one, or a mutant."""


class Inapplicable(Exception):
    """Raised by a mutant on a workload where what it gets wrong cannot matter."""


@frozen(kw_only=True)
class BrokenProblem:
    """What a pack yields in place of an operator that cannot be loaded: the others stay."""

    name: str
    """What the operator would be called."""
    cause: str
    """One line: what is wrong, and in which file."""
    error: BaseException | None = field(default=None, eq=False, repr=False)


class Problem(ABC):
    """Yielded by `atrex_problems`. Constructing one imports no torch; methods with tensors do."""

    name: ClassVar[str]
    summary: ClassVar[str]
    pack: Pack
    importance: ClassVar[float]
    """Share of production device time as published, before normalisation. Private."""
    phases: ClassVar[tuple[Phase, ...]]
    container: ClassVar[Container] = Container.TENSOR
    in_place: ClassVar[Mapping[str, str]] = {}
    """Outputs that may be an input, updated: output name to input name, of the same spec.

    A candidate may return that very input, or a new tensor. No other input may change.
    """

    fp32_truth: ClassVar[Collection[str]] = ()
    """Outputs of 16 bits or fewer whose `expected`, computed in float64, is held in fp32.

    Where float64 would not fit, and `RowBlocks` cannot compute rows apart.
    """

    @property
    def release_id(self) -> str:
        """What the problem is called where its name would say too much: a Python identifier.

        Another name of the same problem wherever problems are named; results carry `name`.
        """
        return self.name

    @property
    @abstractmethod
    def workloads(self) -> Sequence[Workload]:
        """Every workload of every scale, in order of publication, smoke ones last."""

    @property
    @abstractmethod
    def public_files(self) -> Sequence[Path]:
        """The files that a candidate's author, and a worker, may see.

        `repro` needs two of them: `inputs.py` with `make_inputs(**axes, regime=, seed=, device=)`
        and `reference.py` with `Model`, both runnable alone. Other names are free.
        """

    @abstractmethod
    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Describe the tensors `forward` takes, by keyword, in order."""

    @abstractmethod
    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Describe the tensors `forward` returns, in order."""

    @abstractmethod
    def regimes(self, workload: Workload) -> Sequence[str]:
        """Name the input distributions of the correctness cases; the first is the timed one.

        Together they make every term of the operator visible in the output.
        """

    @abstractmethod
    def draw(self, workload: Workload, *, regime: str, seed: int, device: str) -> Tensors:
        """Draw inputs on the torch `device`. The same arguments give the same values."""

    @abstractmethod
    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Compute the outputs in high precision: float64, or exact integers.

        A large one may be `RowBlocks`, so that it never exists as a whole. `inputs` must stay
        as they are.
        """

    @abstractmethod
    def honest(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Compute the outputs as an honest implementation in the stated precision would."""

    @abstractmethod
    def tolerance(self, output: TensorSpec) -> Rule:
        """Return the rule for one floating-point output."""

    @abstractmethod
    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Count semantic work and compulsory bytes; from `inputs` where they matter."""

    def canonical(
        self, workload: Workload, inputs: Tensors, outputs: Tensors, expected: Tensors
    ) -> Tensors:
        """Return `outputs` with freedoms that the operator leaves open (ties) settled.

        Applied to the candidate's outputs before comparison with `expected`. Must keep every
        wrong answer wrong.
        """
        return outputs

    def mutants(self) -> Mapping[str, Implementation]:
        """Return wrong implementations, by name, that the correctness gate must reject.

        On every workload; where one cannot be wrong (a wrong order of a single thing) it raises
        `Inapplicable`.
        """
        return {}

    def variants(self) -> Mapping[str, Implementation]:
        """Return honest implementations, by name, that the correctness gate must accept.

        Each differs from the reference where a kernel may: order of sums, places of rounding,
        choice among ties.
        """
        return {}

    @property
    def prevalence(self) -> float | None:
        """Share of the observed deployments in which the operator occurs, if it is known."""
        return None

    @property
    def provenance(self) -> str:
        """Say in one line where shapes and weights come from. Private."""
        return ""

    def workload_weights(self) -> Mapping[str, Weight]:
        """Return how the operator's time divides among its published workloads, by id."""
        ids = [w.id for w in self.workloads if w.origin is Origin.PUBLISHED]
        return {id_: Weight(share=1 / len(ids), basis=Basis.UNIFORM) for id_ in ids}

    def phase_weights(self) -> Mapping[Phase, Weight]:
        """Return how the operator's time divides among the phases it occurs in."""
        parts = [phase for phase in self.phases if phase is not Phase.BOTH]
        parts = parts or [Phase.PREFILL, Phase.DECODE]
        basis = Basis.OBSERVED if len(parts) == 1 else Basis.UNIFORM
        return {phase: Weight(share=1 / len(parts), basis=basis) for phase in parts}

    def under(self, protocol: Protocol) -> Problem | None:
        """Return this problem as another protocol judges it; None where that has no rules."""
        return self if protocol is Protocol.STRICT else None

    def select(self, scale: Scale) -> Sequence[Workload]:
        """Return the workloads of one scale."""
        return tuple(w for w in self.workloads if w.scale is scale)
