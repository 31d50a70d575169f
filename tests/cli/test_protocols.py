"""`--protocol paper`: another set of rules for the same operators, labelled, never mixed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba", reason="the candidates are written in it")

MakeCli = Callable[[], Any]

_HALF = """
import numba
import torch

@numba.njit
def gate(post, out):
    for i in range(post.shape[0]):
        for j in range(post.shape[1]):
            out[i, j] = 0.5 * post[i, j]

class Model(torch.nn.Module):
    def forward(self, hidden_states, weight, bias, post_mul_mat):
        post = post_mul_mat.float()
        out = torch.empty_like(post)
        gate(post.numpy(), out.numpy())
        return out.to(post_mul_mat.dtype)
"""
"""Leaves the matrix product out: half of the other operand."""

_RUN = ("--backend", "numba", "--workload", "smoke-1*", "--until", "correctness")


@pytest.fixture(scope="module")
def candidate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("half") / "linear_sigmoid_mul.py"
    path.write_text(_HALF)
    return path


def test_the_published_rules_accept_what_strict_refuses(make_cli: MakeCli, candidate: Path) -> None:
    cli = make_cli()
    journal = cli.folder / "both.jsonl"

    strict = cli.run(candidate, *_RUN, "--journal", journal, "--format", "json")
    paper = cli.run(
        candidate, *_RUN, "--journal", journal, "--format", "json", "--protocol", "paper"
    )

    assert strict.code == 1
    assert paper.code == 0, paper.err
    for ran, protocol in ((strict, "strict"), (paper, "paper")):
        found = ran.document["evaluations"]
        assert {e["protocol"] for e in found} == {protocol}
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    recorded = [e["protocol"] for e in lines if e["kind"] == "evaluation"]
    assert set(recorded) == {"strict", "paper"}


def test_results_of_another_protocol_are_not_taken_for_ours(
    make_cli: MakeCli, candidate: Path
) -> None:
    cli = make_cli()
    journal = cli.folder / "both.jsonl"
    paper = cli.run(candidate, *_RUN, "--journal", journal, "--protocol", "paper")
    assert paper.code == 0

    strict = cli.run(candidate, *_RUN, "--journal", journal, "--resume")

    assert strict.code == 1


def test_a_table_says_which_rules_it_is_of(make_cli: MakeCli, candidate: Path) -> None:
    ran = make_cli().run(candidate, *_RUN, "--protocol", "paper")

    assert "protocol paper: inputs, tolerance, work and bytes as published" in ran.out


def test_a_problem_without_published_rules_is_one_error(make_cli: MakeCli, tmp_path: Path) -> None:
    candidate = tmp_path / "acme_scale.py"
    cli = make_cli()
    names = cli.run("list", "problems", "--format", "json").document["problems"]
    others = [row["name"] for row in names if row["pack"] != "production"]
    assert others, "the vendor's plugin has a problem of its own"
    candidate = tmp_path / f"{others[0]}.py"
    candidate.write_text(_HALF)

    ran = cli.run(candidate, "--backend", "numba", "--protocol", "paper")
    lint = cli.run("problems", "lint", others[0], "--protocol", "paper")

    assert ran.code == lint.code == 5
    assert f"problem {others[0]!r} has no rules for the paper protocol" in ran.err
    assert ran.err.count("error:") == ran.err.count("hint:") == 1
