"""The chunked recurrence of states: by hand, its pool, its cost, and what its inputs contain."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from atrex_problems_production.chunk_gated_delta_rule_state.private import Operator

from atrex_core import ArithmeticPath, Pack, Tensors, Workload

PROBLEM = Operator(Pack(name="test", version="1", digest=""))


def shape(tokens: int, *, batch: int = 1, states: int = 4, size: int = 16) -> Workload:
    axes = {
        "batch_size": batch,
        "token_count": tokens,
        "num_k_heads": 2,
        "num_v_heads": 4,
        "key_dim": 8,
        "value_dim": 4,
        "state_count": states,
        "chunk_size": size,
    }
    return Workload(id="case", axes=axes, init={"chunk_size": size})


def draw(workload: Workload, regime: str, seed: int = 0) -> Tensors:
    return PROBLEM.draw(workload, regime=regime, seed=seed, device="cpu")


def test_a_written_out_case() -> None:
    def column(*values: float) -> Any:
        return torch.tensor(values).view(1, -1, 1, 1).bfloat16()

    workload = Workload(
        id="single",
        axes={
            "batch_size": 1,
            "token_count": 4,
            "num_k_heads": 1,
            "num_v_heads": 1,
            "key_dim": 1,
            "value_dim": 1,
            "state_count": 2,
        },
        init={"chunk_size": 3},
    )
    inputs = {
        "k": column(1, 2, 4, 1),
        "w": column(1, 0, 0.5, 1),
        "u": column(3, 5, 2, 30),
        # The second gate lies below the last of its chunk: that row adds nothing.
        "g": torch.tensor([1.0, 0.25, 0.5, 0.5]).log().view(1, 4, 1),
        "initial_state": torch.tensor([7.0, 2.0]).view(2, 1, 1, 1),
        "initial_state_indices": torch.tensor([1], dtype=torch.int32),
    }
    expected, honest = PROBLEM.expected(workload, inputs), PROBLEM.honest(workload, inputs)

    # r is 3 - 2, 5, 2 - 1; M is 0.5 * 2 + 1 * 1 * 0.5 + 4 * 1 = 5.5. Then r is 30 - 5.5, and M is
    # 0.5 * 5.5 + 24.5.
    for found in (expected, honest):
        assert found["h"].flatten().tolist() == [2.0, 5.5]
        assert found["v_new"].flatten().tolist() == [1.0, 5.0, 1.0, 24.5]
    assert expected["final_state"].dense().flatten().tolist() == pytest.approx([7.0, 27.25])
    assert honest["final_state"].flatten().tolist() == pytest.approx([7.0, 27.25])


@pytest.mark.parametrize("regime", ["nominal", "slow", "carried", "stepped", "opposed"])
def test_truth_is_what_a_loop_over_rows_gives(regime: str) -> None:
    workload = shape(21, batch=2, states=3, size=8)
    inputs = draw(workload, regime)
    k, w, u, g, pool = (inputs[n].double() for n in ("k", "w", "u", "g", "initial_state"))
    h = torch.zeros(2, 3, 4, 8, 4, dtype=torch.float64)
    v_new, final = torch.zeros(u.shape, dtype=torch.float64), pool.clone()
    for b in range(2):
        for n in range(4):
            m = pool[int(inputs["initial_state_indices"][b]), n]
            for chunk in range(3):
                rows = range(chunk * 8, min(chunk * 8 + 8, 21))
                last = g[b, rows[-1], n]
                h[b, chunk, n], start = m, m
                m = last.exp() * m
                for t in rows:
                    v_new[b, t, n] = u[b, t, n] - w[b, t, n] @ start
                    if last <= g[b, t, n]:
                        push = v_new[b, t, n] * (last - g[b, t, n]).exp()
                        m = m + k[b, t, n // 2, :, None] * push
            final[int(inputs["initial_state_indices"][b]), n] = m
    expected = PROBLEM.expected(workload, inputs)

    for name, wanted in (("h", h), ("v_new", v_new)):
        assert (expected[name].double() - wanted).abs().max() < 1e-6 * wanted.abs().max()
    assert (expected["final_state"].dense() - final).abs().max() < 1e-12 * final.abs().max()


def test_other_rows_of_the_pool_stay_and_inputs_too() -> None:
    workload = shape(40, batch=2, states=5)
    inputs = draw(workload, "stepped")
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    expected, honest = PROBLEM.expected(workload, inputs), PROBLEM.honest(workload, inputs)
    used = inputs["initial_state_indices"].long()
    others = [row for row in range(5) if row not in used.tolist()]

    for final in (expected["final_state"].dense().float(), honest["final_state"]):
        assert torch.equal(final[others], before["initial_state"][others])
        assert (final[used] != before["initial_state"][used]).any()
    assert all(torch.equal(inputs[name], before[name]) for name in before)


@pytest.mark.parametrize("regime", ["slow", "carried", "stepped", "opposed"])
def test_rows_of_the_pool_are_distinct_and_out_of_order(regime: str) -> None:
    for seed in range(20):
        rows = draw(shape(3, batch=3, states=4), regime, seed)["initial_state_indices"]

        assert len(rows.unique()) == 3
        assert not (rows == torch.arange(3)).any()
    assert draw(shape(3, batch=3), "nominal")["initial_state_indices"].tolist() == [0, 1, 2]


def test_the_first_token_still_counts_at_the_end() -> None:
    workload = shape(700)
    inputs = draw(workload, "slow")
    u = inputs["u"].clone()
    u[:, 0] = 0
    with_first, without = (
        PROBLEM.expected(workload, {**inputs, "u": values})["final_state"].dense()
        for values in (inputs["u"], u)
    )
    used = inputs["initial_state_indices"].long()

    assert (with_first - without)[used].norm() > 0.1 * with_first[used].norm()


def test_what_tokens_add_is_small_beside_what_is_carried() -> None:
    workload = shape(300)
    inputs = draw(workload, "carried")
    used = inputs["initial_state_indices"].long()
    before = inputs["initial_state"][used].double()
    after = PROBLEM.expected(workload, inputs)["final_state"].dense()[used]

    alone = PROBLEM.expected(workload, {**inputs, "k": inputs["k"] * 0})["final_state"]
    kept = alone.dense()[used]

    assert 0.2 < kept.norm() / before.norm() < 0.6
    assert 0.002 < (after - kept).norm() / kept.norm() < 0.05


def test_gates_do_what_their_regimes_say() -> None:
    stepped, opposed = (draw(shape(64), r)["g"].view(4, 16, 4) for r in ("stepped", "opposed"))

    assert (stepped[:, :-1] == stepped[:, -1:]).any()
    assert (stepped.diff(dim=1) > 0).any()
    assert (opposed[:, -1, ::2] < -math.log(torch.finfo(torch.float32).max)).all()
    assert (opposed[..., 1::2].diff(dim=1) > 0).all()


def test_cost_counts_live_rows_and_rows_of_the_pool_in_use() -> None:
    workload = shape(3, states=9, size=2)
    inputs = dict(draw(workload, "nominal"))
    # In the first chunk the first row adds to heads 0 and 1 alone; the last rows always add.
    inputs["g"] = torch.tensor([[[0.0, -1.0, -2.0, -2.0], [-1.0] * 4, [-3.0] * 4]])
    cost = PROBLEM.cost(workload, inputs)
    state = 4 * 8 * 4

    assert cost.flops == {
        ArithmeticPath.BF16_MATRIX: 2 * (12 + 10) * 8 * 4,
        ArithmeticPath.FP32_VECTOR: 2 * (4 + 1) + 2 * state,
    }
    assert cost.read_bytes == 2 * 3 * (2 * 8 + 4 * 8 + 4 * 4) + 4 * 3 * 4 + 4 * state + 4
    assert cost.write_bytes == 2 * (2 * state + 3 * 4 * 4) + 4 * state
    assert PROBLEM.cost(workload).flops[ArithmeticPath.BF16_MATRIX] == 2 * (12 + 10) * 8 * 4
