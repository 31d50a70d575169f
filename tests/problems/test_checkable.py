"""Every wrong implementation is rejected, and honest ones written differently are accepted.

Small workloads, several seeds; `atrex-eval problems lint` does the same at any scale.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from atrex_problems_production import atrex_problems

from atrex_core import Protocol, Scale
from atrex_core.referee.lint import Fate, Finding, Kind, lint_workload

PROBLEMS = {problem.name: problem for problem in atrex_problems()}
SEEDS = (11, 4242, 987654)

EACH = pytest.mark.parametrize("name", PROBLEMS)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors on a busy machine wait for threads longer than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def findings(name: str, protocol: Protocol, seed: int) -> list[Finding]:
    """Judge everything that a problem ships on its small workloads."""
    problem = PROBLEMS[name].under(protocol)
    assert problem is not None
    return [
        finding
        for workload in problem.select(Scale.SMOKE)
        for finding in lint_workload(
            problem, workload, protocol=protocol, device="cpu", seed=seed, cases=5
        )
    ]


@EACH
def test_every_operator_has_mutants_variants_and_regimes(name: str) -> None:
    problem = PROBLEMS[name]

    assert len(problem.mutants()) >= 9  # four that suit any operator, and five of its own
    assert {"zeros", "stale", "coarse"} <= set(problem.mutants())
    assert len(problem.variants()) >= 2
    assert all(len(problem.regimes(workload)) >= 4 for workload in problem.workloads)
    assert len(problem.select(Scale.SMOKE)) >= 3


@EACH
@pytest.mark.parametrize("seed", SEEDS)
def test_strict_rejects_every_mutant_and_accepts_every_honest_variant(name: str, seed: int) -> None:
    found = findings(name, Protocol.STRICT, seed)

    assert [finding for finding in found if not finding.is_as_it_should_be] == []
    killed = {f.name for f in found if f.kind is Kind.MUTANT and f.fate is Fate.KILLED}
    accepted = {f.name for f in found if f.kind is Kind.VARIANT and f.fate is Fate.ACCEPTED}
    assert killed == set(PROBLEMS[name].mutants())
    assert accepted == {"reference", *PROBLEMS[name].variants()}


@EACH
def test_the_published_rules_can_judge_everything_too(name: str) -> None:
    found = findings(name, Protocol.PAPER, SEEDS[0])

    assert [finding for finding in found if finding.fate is Fate.BROKEN] == []
    assert {f.fate for f in found if f.name == "reference"} == {Fate.ACCEPTED}


@pytest.mark.parametrize(
    ("name", "mutants"),
    [
        ("linear_sigmoid_mul", {"half", "no_bias", "no_product"}),
        ("paged_attention_decode", {"ignores_table"}),
        ("rms_norm", {"no_epsilon"}),
    ],
)
def test_the_published_rules_let_known_holes_through(name: str, mutants: set[str]) -> None:
    found = findings(name, Protocol.PAPER, SEEDS[0])
    survivors = {f.name for f in found if f.fate is Fate.SURVIVED}

    assert mutants <= survivors
