"""Loops on the host over rows or tokens are found; those over chunks and experts may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from atrex_core import Problem, Scale, Tensors, Workload
from atrex_core.referee.lint_loops import loop

_LARGEST = 100_000


def _workloads(rows: int, **more: int) -> list[Workload]:
    small = dict.fromkeys(more, 2)
    return [
        Workload(id="small", axes={"rows": 8, **small}, scale=Scale.SMOKE),
        Workload(id="large", axes={"rows": rows, **more}),
    ]


def _by_rows(_: Workload, inputs: Tensors) -> Tensors:
    return {"out": torch.stack([x + y for x, y in zip(inputs["x"], inputs["y"], strict=True)])}


def _by_chunks(_: Workload, inputs: Tensors) -> Tensors:
    pairs = zip(inputs["x"].split(64), inputs["y"].split(64), strict=True)
    return {"out": torch.cat([x + y for x, y in pairs])}


def _reading(_: Workload, inputs: Tensors) -> Tensors:
    total = sum(value.item() for value in inputs["x"][:, 0])
    return {"out": inputs["x"] + inputs["y"] + 0 * total}


def _by_experts(workload: Workload, inputs: Tensors) -> Tensors:
    out = inputs["x"] + inputs["y"]
    for _ in range(workload.axes["experts"]):
        out = out + 0
    return {"out": out}


def _loop(broken: Any, honest: Any, workloads: Sequence[Workload]) -> str | None:
    problem: Problem = broken(
        honest=lambda _, workload, inputs: honest(workload, inputs), workloads=workloads
    )
    return loop(problem, problem.select(Scale.SMOKE))


@pytest.mark.parametrize(
    ("honest", "complaint"),
    [
        (_by_rows, "the reference loops over 'rows': "),
        (_reading, "100,000 values are read on the host"),
    ],
)
def test_a_loop_over_rows_is_found(broken: Any, honest: Any, complaint: str) -> None:
    found = _loop(broken, honest, _workloads(_LARGEST))

    assert found is not None
    assert complaint in found


def test_a_loop_over_rows_in_the_generator_is_found(broken: Any) -> None:
    def draw(self: Any, workload: Workload, **arguments: Any) -> Tensors:
        drawn: Tensors = type(self).__base__.draw(self, workload, **arguments)
        for row in drawn["x"]:
            row += 1
        return drawn

    problem = broken(draw=draw, workloads=_workloads(_LARGEST))

    found = loop(problem, problem.select(Scale.SMOKE))

    assert found is not None
    assert found.startswith("the generator loops over 'rows': ")


@pytest.mark.parametrize(
    ("honest", "workloads"),
    [
        (lambda _, i: {"out": i["x"] + i["y"]}, _workloads(_LARGEST)),
        (_by_chunks, _workloads(_LARGEST)),
        (_by_rows, _workloads(100)),
    ],
    ids=["vectorised", "chunks", "few rows"],
)
def test_what_is_quick_at_every_size_passes(
    broken: Any, honest: Any, workloads: Sequence[Workload]
) -> None:
    assert _loop(broken, honest, workloads) is None


def test_sizes_are_grown_one_by_one(broken: Any) -> None:
    def draw(self: Any, workload: Workload, **arguments: Any) -> Tensors:
        only = Workload(id="w", axes={"rows": workload.axes["rows"]})
        drawn: Tensors = type(self).__base__.draw(self, only, **arguments)
        return drawn

    for experts, is_found in ((256, False), (50_000, True)):
        problem = broken(
            draw=draw,
            honest=lambda _, workload, inputs: _by_experts(workload, inputs),
            workloads=_workloads(_LARGEST, experts=experts),
        )
        found = loop(problem, problem.select(Scale.SMOKE))
        assert (found is not None) is is_found
        assert found is None or "loops over 'experts'" in found
