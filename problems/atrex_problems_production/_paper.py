"""The published rules: input distributions, one tolerance for everything, published W and Q.

Here so that numbers can be set beside published ones, and so that what these rules let through can
be shown. Two things stay stricter than published, because they are ours and not the pack's: dtype,
shape and device of every output are checked, and inputs must not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atrex_core import (
    Allclose,
    Cost,
    Implementation,
    Problem,
    Protocol,
    Rule,
    Tensors,
    TensorSpec,
    Weight,
    Workload,
)

if TYPE_CHECKING:
    from atrex_problems_production._problem import ProductionProblem

_REGIME = "published"
_TOLERANCE = Allclose(absolute=1e-2, relative=0.05)


class PaperProblem(Problem):
    """A production problem as published. Everything that is not a rule is the strict problem's."""

    def __init__(self, strict: ProductionProblem) -> None:
        self._strict = strict
        self.pack = strict.pack
        for fact in ("name", "summary", "importance", "phases", "container", "in_place"):
            setattr(self, fact, getattr(strict, fact))

    @property
    def release_id(self) -> str:
        """The same release id."""
        return self._strict.release_id

    @property
    def workloads(self) -> Sequence[Workload]:
        """The same workloads."""
        return self._strict.workloads

    @property
    def public_files(self) -> Sequence[Path]:
        """The same files."""
        return self._strict.public_files

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Describe the same inputs."""
        return self._strict.inputs(workload)

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        """Describe the same outputs."""
        return self._strict.outputs(workload)

    def regimes(self, workload: Workload) -> Sequence[str]:
        """Name the one published distribution."""
        return (_REGIME,)

    def draw(self, workload: Workload, *, regime: str, seed: int, device: str) -> Tensors:
        """Draw inputs."""
        return self._strict.draw(workload, regime=regime, seed=seed, device=device)

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Return what the reference gives: published results are compared with that."""
        return self._strict.honest(workload, inputs)

    def honest(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Return what the reference gives."""
        return self._strict.honest(workload, inputs)

    def canonical(
        self, workload: Workload, inputs: Tensors, outputs: Tensors, expected: Tensors
    ) -> Tensors:
        """Overlook spare room that outputs did not have when they were published."""
        return self._strict.without_open_parts(workload, outputs, expected)

    def tolerance(self, output: TensorSpec) -> Rule:
        """Return the one published tolerance."""
        return _TOLERANCE

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        """Return published work and bytes, or the strict ones of what was not published."""
        if workload.id in self._strict.published:
            return self._strict.published_cost(workload)
        return self._strict.cost(workload, inputs)

    @property
    def prevalence(self) -> float | None:
        """Return what is known of the operator."""
        return self._strict.prevalence

    @property
    def provenance(self) -> str:
        """Return where the operator comes from."""
        return self._strict.provenance

    def workload_weights(self) -> Mapping[str, Weight]:
        """Return the same weights."""
        return self._strict.workload_weights()

    def mutants(self) -> Mapping[str, Implementation]:
        """Return the same mutants: under these rules some survive."""
        return self._strict.mutants()

    def variants(self) -> Mapping[str, Implementation]:
        """Return the same honest implementations: under these rules some are refused."""
        return self._strict.variants()

    def under(self, protocol: Protocol) -> Problem | None:
        """Return to the strict rules, or stay."""
        return self._strict if protocol is Protocol.STRICT else self
