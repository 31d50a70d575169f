"""Rotary embedding by three positions: axes by hand, pairs, the bound, and the inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from atrex_problems_production.mrope.private import Operator

from atrex_core import ArithmeticPath, Pack, Tensors, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))

REGIMES = ("nominal", "image", "far", "unlinked", "wide")


def shape(
    tokens: int,
    section: tuple[int, int, int],
    heads: tuple[int, int] = (1, 1),
    head_size: int | None = None,
    interleaved: bool = False,
    neox: bool = True,
) -> Workload:
    rotary = 2 * sum(section)
    sizes = {"head_size": head_size or rotary, "rotary_dim": rotary}
    return Workload(
        id="case",
        axes={
            "token_count": tokens,
            "num_query_heads": heads[0],
            "num_kv_heads": heads[1],
            **sizes,
        },
        init={
            **sizes,
            "mrope_section": list(section),
            "mrope_interleaved": interleaved,
            "is_neox_style": neox,
        },
    )


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def axes_shown(workload: Workload) -> dict[str, list[int]]:
    """Return the axis of each frequency, as the first elements of ones times cosine tell it."""
    half = workload.axes["rotary_dim"] // 2
    table = torch.tensor([0.0, 1.0, 2.0])[:, None, None].expand(3, 1, half).contiguous()
    ones = torch.ones(1, 2 * half).bfloat16()
    inputs = {"q": ones, "k": ones, "cos": table, "sin": table * 0}
    answers: dict[str, Any] = {
        "expected": PROBLEM.expected(workload, inputs)["q"].dense(),
        "honest": PROBLEM.honest(workload, inputs)["q"],
        **{n: run(workload, inputs)["q"] for n, run in PROBLEM.variants().items()},
    }
    return {name: out[0, :half].int().tolist() for name, out in answers.items()}


def test_sections_follow_one_another() -> None:
    shown = axes_shown(shape(1, (2, 3, 1)))

    assert shown == dict.fromkeys(shown, [0, 0, 1, 1, 1, 2])


def test_interleaved_axes_take_turns_until_their_sections_are_used_up() -> None:
    shown = axes_shown(shape(1, (6, 3, 2), interleaved=True))

    # Frequencies 1, 4, 7 are of height and 2, 5 of width; from 8 on all are of time.
    assert shown == dict.fromkeys(shown, [0, 1, 2, 0, 1, 2, 0, 1, 0, 0, 0])


def test_a_written_out_head_in_halves_and_in_adjacent_pairs() -> None:
    halves = shape(1, (1, 1, 0), head_size=5)
    adjacent = shape(1, (1, 1, 0), head_size=5, neox=False)
    inputs = {
        "q": torch.tensor([[1.0, 2.0, 3.0, 4.0, 9.0]]).bfloat16(),
        "k": torch.tensor([[0.0, 1.0, 0.0, 0.0, 8.0]]).bfloat16(),
        "cos": torch.tensor([[[2.0, 100.0]], [[100.0, 3.0]], [[100.0, 100.0]]]),
        "sin": torch.tensor([[[5.0, 100.0]], [[100.0, 7.0]], [[100.0, 100.0]]]),
    }

    # Frequency 0 multiplies by 2 + 5i, frequency 1 by 3 + 7i; the last element stays.
    for workload, q, k in (
        (halves, [2 - 15, 6 - 28, 6 + 5, 12 + 14, 9], [0, 3, 0, 7, 8]),
        (adjacent, [2 - 10, 4 + 5, 9 - 28, 12 + 21, 9], [-5, 2, 0, 0, 8]),
    ):
        expected, honest = PROBLEM.expected(workload, inputs), PROBLEM.honest(workload, inputs)
        assert expected["q"].dense().tolist() == [q]
        assert expected["k"].dense().tolist() == [k]
        assert honest["q"].tolist() == [q]
        assert honest["k"].tolist() == [k]


@pytest.mark.parametrize("interleaved", [False, True], ids=["sections", "interleaved"])
@pytest.mark.parametrize("neox", [True, False], ids=["halves", "adjacent"])
def test_a_slow_loop_agrees(interleaved: bool, neox: bool) -> None:
    workload = shape(4, (3, 2, 2), (2, 3), 20, interleaved, neox)
    inputs = draw(workload, "unlinked")
    expected = PROBLEM.expected(workload, inputs)
    axes = [0, 1, 2, 0, 1, 2, 0] if interleaved else [0, 0, 0, 1, 1, 2, 2]

    for name, heads in (("q", 2), ("k", 3)):
        x = inputs[name].double().view(4, heads, 20)
        slow = x.clone()
        for t in range(4):
            for h in range(heads):
                for j in range(7):
                    m, n = (j, j + 7) if neox else (2 * j, 2 * j + 1)
                    c, s = (inputs[i][axes[j], t, j].double() for i in ("cos", "sin"))
                    slow[t, h, m] = x[t, h, m] * c - x[t, h, n] * s
                    slow[t, h, n] = x[t, h, n] * c + x[t, h, m] * s
        torch.testing.assert_close(expected[name].dense().view(4, heads, 20), slow)


def test_the_bound_reads_one_axis_for_each_frequency() -> None:
    workload = shape(5, (3, 2, 1), (4, 2), 16)
    cost = PROBLEM.cost(workload)

    # 5 tokens, 6 heads of 16, 6 frequencies.
    assert cost.flops == {ArithmeticPath.FP32_VECTOR: 6 * 5 * 6 * 6}
    assert cost.read_bytes == 2 * 5 * 6 * 16 + 2 * 4 * 5 * 6
    assert cost.write_bytes == 2 * 5 * 6 * 16
    assert cost.read_bytes < sum(spec.nbytes for spec in PROBLEM.inputs(workload))


def test_regimes_hold_what_they_are_for() -> None:
    workload = shape(300, (8, 12, 12), (3, 2))
    drawn = {regime: draw(workload, regime) for regime in REGIMES}

    def differs(regime: str, one: int, other: int) -> Any:
        cos = drawn[regime]["cos"]
        return (cos[one] != cos[other]).any(-1)

    assert drawn["nominal"]["q"].max() == 1
    assert drawn["nominal"]["q"].float().std() < 0.1
    assert 0 < differs("image", 0, 1).sum() < 300
    assert 0 < differs("image", 1, 2).sum() < 300
    assert differs("far", 0, 1).sum() > 290
    assert differs("far", 1, 2).sum() > 290
    radius = {r: drawn[r]["cos"].square() + drawn[r]["sin"].square() for r in REGIMES}
    assert all((radius[r] - 1).abs().max() < 1e-5 for r in REGIMES if r != "unlinked")
    scale = radius["unlinked"].mean((1, 2)).sqrt().sort().values
    assert scale[1] > 3 * scale[0]
    assert scale[2] > 6 * scale[1]
    silent = (drawn["wide"]["q"] == 0).all(-1)
    assert 0 < silent.sum() < 100
    assert silent.equal((drawn["wide"]["k"] == 0).all(-1))


def test_a_single_token_is_never_silent() -> None:
    for seed in range(20):
        assert draw(shape(1, (2, 1, 1)), "wide", seed)["q"].any()
