"""Tensors that are computed while they are looked at, and the rules that walk them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from atrex_core import Allclose, DType, RowBlocks, TensorSpec, Tolerance, dense
from atrex_core.comparison import compare
from atrex_core.packs import altering, by_rows, coarse

EXACT = Allclose(absolute=0.0, relative=0.0)


def blocks(whole: Any, step: int) -> tuple[RowBlocks, list[tuple[int, int]]]:
    """Return `whole` as blocks of `step` rows, and the list of what was computed."""
    asked: list[tuple[int, int]] = []

    def compute(start: int, stop: int) -> Any:
        asked.append((start, stop))
        return whole[start:stop].clone()

    return RowBlocks(shape=tuple(whole.shape), step=step, compute=compute), asked


@pytest.mark.parametrize("step", [1, 3, 4, 10, 99])
def test_rows_are_the_rows_whatever_blocks_they_lie_in(step: int) -> None:
    whole = torch.arange(20.0).view(10, 2)
    lazy, _ = blocks(whole, step)

    for start in range(10):
        for stop in range(start + 1, 11):
            assert torch.equal(lazy.rows(start, stop), whole[start:stop])
    assert torch.equal(lazy.dense(), whole)


def test_rows_in_order_compute_each_block_once() -> None:
    lazy, asked = blocks(torch.zeros(10, 2), 4)

    for row in range(10):
        lazy.rows(row, row + 1)
        lazy.rows(row, row + 1)

    assert asked == [(0, 4), (4, 8), (8, 10)]


def test_dense_leaves_tensors_alone() -> None:
    tensor = torch.zeros(3)

    assert dense(tensor) is tensor


@pytest.mark.parametrize("shape", [(7,), (7, 5), (7, 3, 5), (1, 1), (5000, 3)])
@pytest.mark.parametrize("step", [1, 2, 100])
def test_a_comparison_finds_the_same_in_blocks_as_in_a_tensor(
    shape: tuple[int, ...], step: int
) -> None:
    rng = torch.Generator().manual_seed(1)
    expected = torch.randn(*shape, generator=rng, dtype=torch.float64)
    actual = expected.bfloat16()
    actual.view(-1)[-1] += 1
    spec = TensorSpec(name="out", dtype=DType.BF16, shape=shape)
    rule = Tolerance(dtype=DType.BF16)

    lazy, _ = blocks(expected, step)
    found = compare(spec, rule, actual, lazy, expected.bfloat16())

    assert found == compare(spec, rule, actual, expected, expected.bfloat16())
    assert not found.passed
    assert found.details["worst"]["index"] == [extent - 1 for extent in shape]


def test_by_rows_applies_a_function_to_blocks() -> None:
    x, bias = torch.randn(1000, 30000), torch.randn(1000)
    calls = []

    def plus(rows: Any, b: Any) -> Any:
        calls.append(len(rows))
        return rows + b[:, None]

    lazy = by_rows(plus, x, bias)

    assert lazy.shape == (1000, 30000)
    assert lazy.dense().dtype is torch.float64
    assert torch.equal(lazy.dense(), (x + bias[:, None]).double())
    assert max(calls) < 1000


def test_by_rows_makes_smaller_blocks_where_a_row_needs_more() -> None:
    x = torch.zeros(64, 8)

    assert by_rows(lambda rows: rows, x).step > 64
    assert by_rows(lambda rows: rows, x, row_elements=1 << 22).step == 2


def test_plain_bounds_are_scaled_by_the_candidate() -> None:
    spec = TensorSpec(name="out", dtype=DType.FP32, shape=(1,))
    published = Allclose(absolute=0.0, relative=0.05)

    def verdict(reference: float, candidate: float) -> bool:
        found = compare(spec, published, torch.tensor([candidate]), torch.tensor([reference]))
        return found.passed

    assert verdict(reference=1.0, candidate=1.052)
    assert not verdict(reference=1.052, candidate=1.0)


@pytest.mark.parametrize(
    ("reference", "candidate", "passes"),
    [
        (float("-inf"), float("-inf"), True),
        (float("inf"), float("-inf"), False),
        (float("inf"), 1.0, False),
        (1.0, float("inf"), False),
        (float("nan"), float("nan"), False),
        (0.0, -0.0, True),
    ],
)
def test_plain_bounds_and_special_values(reference: float, candidate: float, passes: bool) -> None:
    spec = TensorSpec(name="out", dtype=DType.FP32, shape=(1,))

    for rule in (EXACT, Allclose(absolute=1e-2, relative=0.05)):
        found = compare(spec, rule, torch.tensor([candidate]), torch.tensor([reference]))
        assert found.passed is passes


def test_a_difference_beyond_plain_bounds_is_named() -> None:
    spec = TensorSpec(name="out", dtype=DType.FP32, shape=(2, 2))
    expected = torch.ones(2, 2)
    actual = torch.tensor([[1.0, 1.0], [2.0, 1.0]])

    found = compare(spec, Allclose(absolute=0.01, relative=0.05), actual, expected)

    assert found.reason is not None
    assert found.reason.startswith("1 of 4 elements (25%) are further than 0.01 + 0.05 times")
    assert "[1, 0] (got 2, expected 1)" in found.reason


def test_coarse_keeps_so_many_bits() -> None:
    values = torch.tensor([1.0, 1.0625, 1.125, -3.3, 0.0, 1e-30])

    assert coarse(values, 4).tolist()[:3] == [1.0, 1.0, 1.125]
    assert coarse(values, 2)[3] == -3.0
    assert coarse(values, 4)[4] == 0
    assert coarse(values.bfloat16(), 3).dtype is torch.bfloat16


def test_altering_replaces_inputs_and_nothing_else() -> None:
    seen = {}

    def honest(workload: Any, inputs: Any) -> Any:
        seen.update(inputs)
        return {}

    inputs = {"x": 1, "y": 2}
    altering(honest, x=lambda i: i["y"] * 10)(None, inputs)  # type: ignore[arg-type]

    assert seen == {"x": 20, "y": 2}
    assert inputs == {"x": 1, "y": 2}


def test_rows_at_the_edge_of_two_blocks_compute_neither_again() -> None:
    lazy, asked = blocks(torch.zeros(12, 2), 4)

    for start in range(0, 12, 3):  # tiles that straddle, each looked at twice
        lazy.rows(start, start + 3)
        lazy.rows(start, start + 3)

    assert asked == [(0, 4), (4, 8), (8, 12)]
