"""Filtering logits by rank: by hand, ties, zeros of both signs, exactness, and the inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from atrex_problems_production.topk_filter.private import Operator

from atrex_core import Pack, Tensors, Workload
from atrex_core.comparison import compare

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

GONE = -float("inf")

REGIMES = ("nominal", "ties", "adjacent", "zeros", "masked", "strided")


def shape(rows: int, width: int, top_k: int) -> Workload:
    axes = {"seq_len": rows, "hidden_size": width, "top_k": top_k}
    return Workload(id="case", axes=axes, init={"top_k": top_k})


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def filtered(rows: list[list[float]], top_k: int) -> dict[str, list[list[float]]]:
    """Return what every honest implementation makes of `rows`."""
    workload, inputs = shape(len(rows), len(rows[0]), top_k), {"logits": torch.tensor(rows)}
    answers: dict[str, Any] = {
        "expected": PROBLEM.expected(workload, inputs)["out"].dense(),
        "honest": PROBLEM.honest(workload, inputs)["out"],
        **{name: run(workload, inputs)["out"] for name, run in PROBLEM.variants().items()},
    }
    return {name: answer.tolist() for name, answer in answers.items()}


def accepts(rows: list[list[float]], out: list[list[float]], top_k: int) -> bool:
    workload, inputs = shape(len(rows), len(rows[0]), top_k), {"logits": torch.tensor(rows)}
    (spec,) = PROBLEM.outputs(workload)
    honest = PROBLEM.honest(workload, inputs)["out"]
    expected = PROBLEM.expected(workload, inputs)["out"]
    return compare(spec, PROBLEM.tolerance(spec), torch.tensor(out), expected, honest).passed


def test_a_written_out_case() -> None:
    found = filtered([[1.0, 4.0, 2.0, 3.0], [-1.0, -4.0, -2.0, -3.0]], 2)

    assert found == dict.fromkeys(found, [[GONE, 4.0, GONE, 3.0], [-1.0, GONE, -2.0, GONE]])


def test_everything_that_equals_the_threshold_is_kept() -> None:
    found = filtered([[1.0, 2.0, 2.0, 2.0, 3.0], [5.0] * 5], 2)

    assert found == dict.fromkeys(found, [[GONE, 2.0, 2.0, 2.0, 3.0], [5.0] * 5])


def test_repeated_logits_count_as_often_as_they_occur() -> None:
    # The second largest is 3 again, not 2.
    found = filtered([[3.0, 1.0, 3.0, 2.0]], 2)

    assert found == dict.fromkeys(found, [[3.0, GONE, 3.0, GONE]])


@pytest.mark.parametrize("row", [[0.0, -0.0, -1.0], [-0.0, 0.0, -1.0]], ids=["plus", "minus"])
def test_zeros_of_both_signs_are_equal(row: list[float]) -> None:
    found = filtered([row], 1)

    assert found == dict.fromkeys(found, [[0.0, 0.0, GONE]])


def test_more_than_there_are_keeps_everything() -> None:
    row = [2.0, -3.4e38, -0.0]
    found = filtered([row], 50)

    assert found == dict.fromkeys(found, torch.tensor([row]).tolist())


def test_the_default_keeps_fifty() -> None:
    workload = Workload(id="case", axes={"seq_len": 1, "hidden_size": 60})
    inputs = {"logits": torch.arange(60.0)[None]}

    assert PROBLEM.expected(workload, inputs)["out"].dense().isinf().sum() == 10
    assert PROBLEM.honest(workload, inputs)["out"].isinf().sum() == 10


def test_only_the_very_logits_are_accepted() -> None:
    rows = [[3.0e38, 1.0, 1.0e-30, -2.0]]
    up = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0)).item()

    assert accepts(rows, [[3.0e38, 1.0, GONE, GONE]], 2)
    assert not accepts(rows, [[3.0e38, up, GONE, GONE]], 2)
    assert not accepts(rows, [[3.0e38, 1.0, -3.4e38, GONE]], 2)
    assert not accepts(rows, [[3.0e38, 1.0, -GONE, GONE]], 2)
    assert not accepts(rows, [[3.0e38, 1.0, float("nan"), GONE]], 2)
    assert not accepts(rows, [[3.0e38, GONE, GONE, GONE]], 2)
    assert not accepts(rows, [[GONE, GONE, GONE, GONE]], 2)
    assert accepts(rows, [[3.0e38, 1.0, 1.0e-30, GONE]], 3)
    assert not accepts(rows, [[3.0e38, 1.0, 0.0, GONE]], 3)


def test_the_bound_is_one_read_and_one_write() -> None:
    cost = PROBLEM.cost(shape(3, 100, 5))

    assert cost.flops == {}
    assert (cost.read_bytes, cost.write_bytes) == (1200, 1200)


@pytest.mark.parametrize("top_k", [1, 4, 39, 40, 50], ids=str)
@pytest.mark.parametrize("regime", REGIMES)
def test_a_slow_loop_agrees(regime: str, top_k: int) -> None:
    workload = shape(6, 40, top_k)
    inputs = draw(workload, regime)
    expected = PROBLEM.expected(workload, inputs)["out"].dense().tolist()

    for row, kept in zip(inputs["logits"].tolist(), expected, strict=True):
        theta = sorted(row)[-min(top_k, 40)]
        assert kept == [x if x >= theta else GONE for x in row]


def test_regimes_put_what_they_are_for_at_the_threshold() -> None:
    k = 7
    workload = shape(12, 200, k)
    values = {
        regime: draw(workload, regime)["logits"].sort(-1, descending=True).values
        for regime in REGIMES
    }
    kept = {r: (v >= v[:, k - 1 : k]).sum(-1).tolist() for r, v in values.items()}

    assert values["nominal"].max() == 12
    assert kept["nominal"] == [k] * 12
    assert kept["ties"] == [k + 3, k + 1, 200] * 4
    assert kept["adjacent"] == [k] * 12
    assert (values["adjacent"].bfloat16().unique(dim=-1).shape[-1]) <= 12 * 2
    assert (values["zeros"][:, k - 1] == 0).all()
    assert min(kept["zeros"]) > k
    assert (values["masked"][1::3, k - 1] == torch.finfo(torch.float32).min).all()
    assert kept["masked"][1::3] == [200] * 4
    assert (values["masked"][2::3, 0] < -900).all()
    assert (values["masked"][0::3, 0] > 1e38).all()


def test_zeros_of_the_other_sign_follow_the_threshold() -> None:
    logits = draw(shape(8, 50, 5), "zeros")["logits"]
    zero, minus = logits == 0, torch.signbit(logits)

    assert ((zero & minus).sum(-1) > 0).all()
    assert ((zero & ~minus).sum(-1) > 0).all()
    # By bits, with -0.0 below 0.0, the fifth largest would be 0.0 and -0.0 would go.
    assert ((logits > 0).sum(-1) == 4).all()


def test_neighbours_stand_in_every_order() -> None:
    logits = draw(shape(4, 300, 5), "adjacent")["logits"]
    steps = logits.diff(dim=-1)

    assert (steps[0] > 0).all()
    assert (steps[1] < 0).all()
    for row in (2, 3):
        assert (steps[row] > 0).any()
        assert (steps[row] < 0).any()
    assert (logits[0::2] > 0).all()
    assert (logits[1::2] < 0).all()
    assert steps[0].unique().tolist() == [2**-23]


@pytest.mark.parametrize("top_k", [1, 5, 8], ids=str)
def test_the_first_threshold_ends_in_a_bit_that_counts(top_k: int) -> None:
    for seed in range(5):
        row = draw(shape(1, 300, top_k), "adjacent", seed)["logits"][0]
        theta, after = row.sort(descending=True).values[top_k - 1 : top_k + 1].view(torch.int32)

        assert theta >> 1 == after >> 1


@pytest.mark.parametrize(
    ("width", "top_k", "stride"), [(4096, 50, 64), (4096, 7, 256), (60, 50, 1), (999, 1, 256)]
)
def test_what_is_kept_stands_at_one_residue(width: int, top_k: int, stride: int) -> None:
    for seed in range(5):
        logits = draw(shape(3, width, top_k), "strided", seed)["logits"]
        places = logits.topk(top_k, dim=-1).indices.sort(-1).values

        assert (places.diff(dim=-1) == stride).all()
        assert places[0::2, 0].tolist() == [0, 0]


@pytest.mark.parametrize("top_k", [1, 2, 9, 50], ids=str)
def test_denormals_of_both_signs_are_kept_and_never_decide(top_k: int) -> None:
    workload = shape(3, 200, top_k)
    inputs = draw(workload, "strided")
    ordered = inputs["logits"].sort(-1, descending=True).values
    tiny = (ordered.abs() < 2.0**-126) & (ordered != 0)
    truth = PROBLEM.expected(workload, inputs)["out"].dense()
    answers = [run(workload, inputs)["out"] for run in PROBLEM.variants().values()]

    assert tiny[:, top_k // 2 : top_k].all()
    assert tiny.sum() == 3 * (top_k - top_k // 2)
    assert (ordered[tiny] > 0).any()
    assert (ordered[tiny] < 0).any() or top_k <= 2
    assert (ordered[:, top_k:] < -0.4).all()
    assert all(answer.double().equal(truth) for answer in answers)
