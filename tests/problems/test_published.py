"""Every published W, Q and T_sol, reproduced: 440 workloads on two devices.

Two quantities depended on a random draw when they were published: the work of `fused_moe`, and
the bytes written by `moe_align_block_size`. The pack keeps, for each of their shapes, the small
integers that the published figure implies; that they exist, and are plausible, is checked here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import atrex_problems_production
import pytest
from atrex_problems_production import atrex_problems

from atrex_core import ArithmeticPath, Cost, HarnessError, Origin, Problem, Protocol, Workload

FOLDER = Path(atrex_problems_production.__file__).parent
PUBLISHED = json.loads((FOLDER / "published.json").read_text())
PROBLEMS = {problem.name: problem for problem in atrex_problems()}
EACH = pytest.mark.parametrize("name", PROBLEMS)

PEAK_NAMES = {
    ArithmeticPath.BF16_MATRIX: "bf16",
    ArithmeticPath.FP16_MATRIX: "fp16",
    ArithmeticPath.FP8_MATRIX: "fp8_e4m3",
    ArithmeticPath.FP32_VECTOR: "fp32",
}


def facts(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((FOLDER / name / "private.json").read_text())
    return found


def as_published(name: str) -> Problem:
    problem = PROBLEMS[name].under(Protocol.PAPER)
    assert problem is not None
    return problem


def workloads(problem: Problem) -> list[Workload]:
    return [w for w in problem.workloads if w.origin is Origin.PUBLISHED]


def sol_us(cost: Cost, device: Mapping[str, Any]) -> float:
    """The published roofline: work of one dtype over its peak, or bytes over bandwidth."""
    peaks, bandwidth = device["peak_flops"], device["hbm_bytes_per_s"]
    compute_s = sum(work / peaks[PEAK_NAMES[path]] for path, work in cost.flops.items())
    return max(compute_s, cost.total_bytes / bandwidth) * 1e6


@EACH
def test_published_work_and_bytes_are_reproduced_exactly(name: str) -> None:
    problem = as_published(name)
    recorded = facts(name)["published"]

    counted = {w.id: problem.cost(w) for w in workloads(problem)}

    assert {
        id_: (list(cost.flops.values()), cost.read_bytes, cost.write_bytes)
        for id_, cost in counted.items()
    } == {
        id_: (list(entry["flops"].values()), entry["read_bytes"], entry["write_bytes"])
        for id_, entry in recorded.items()
    }
    for id_, cost in counted.items():
        assert [PEAK_NAMES[path] for path in cost.flops] == list(recorded[id_]["flops"])


@EACH
@pytest.mark.parametrize("device", ["XPU-A", "H20"])
def test_published_bounds_are_reproduced(name: str, device: str) -> None:
    problem = as_published(name)
    recorded = facts(name)["published"]

    for workload in workloads(problem):
        bound_us = sol_us(problem.cost(workload), PUBLISHED["devices"][device])
        assert bound_us == pytest.approx(recorded[workload.id]["sol_us"][device], rel=1e-12)


def test_that_is_all_of_it() -> None:
    assert sum(len(facts(name)["published"]) for name in PROBLEMS) == 440
    assert PUBLISHED["weight_sum"] == pytest.approx(sum(p.importance for p in PROBLEMS.values()))


def test_the_drawn_pairs_and_experts_of_fused_moe_are_plausible() -> None:
    """W = pairs x (6HI + 5I + H) + experts x (2Tk - T), for one draw with repetition."""
    recorded = facts("fused_moe")["published"]
    for workload in workloads(PROBLEMS["fused_moe"]):
        a = workload.axes
        tokens, experts, k = a["token_count"], a["num_experts"], a["top_k"]
        hidden, width = a["hidden_size"], a["intermediate_size"]
        (work,) = recorded[workload.id]["flops"].values()
        each = 6 * hidden * width + 5 * width + hidden
        found = [
            ((work - hit * (2 * tokens * k - tokens)) // each, hit)
            for hit in range(1, experts + 1)
            if (work - hit * (2 * tokens * k - tokens)) % each == 0
        ]
        likely = tokens * experts * (1 - (1 - 1 / experts) ** k)
        assert any(abs(pairs - likely) <= 5 * likely**0.5 + 1 for pairs, _ in found)


def test_the_drawn_padding_of_moe_align_block_size_is_plausible() -> None:
    """Qw = 4P + 4P/bs + 4, for the padded length P of one draw."""
    recorded = facts("moe_align_block_size")["published"]
    for workload in workloads(PROBLEMS["moe_align_block_size"]):
        a, size = workload.axes, workload.init["block_size"]
        slots = a["token_count"] * a["top_k"]
        blocks, rest = divmod(recorded[workload.id]["write_bytes"] - 4, 4 * size + 4)
        assert rest == 0
        # Enough for every slot, and at most one partly filled block for each expert.
        assert slots / size <= blocks <= slots / size + min(a["num_experts"], slots)


def test_strict_bounds_differ_where_the_published_ones_are_wrong() -> None:
    """The corrections that the pack makes, by their size at one shape each."""

    def ratio(name: str, id_: str) -> float:
        workload = next(w for w in workloads(PROBLEMS[name]) if w.id == id_)
        published, strict = (p.cost(workload) for p in (as_published(name), PROBLEMS[name]))
        return published.total_bytes / strict.total_bytes

    assert ratio("paged_attention_decode", "1") == pytest.approx(2.9, abs=0.2)
    assert ratio("gated_delta_rule_update", "0") == pytest.approx(2.0, abs=0.1)
    assert ratio("reshape_and_cache", "0") > 10
    assert ratio("mrope", "0") == pytest.approx(1.1, abs=0.03)


def test_what_was_not_published_has_no_published_cost() -> None:
    problem = PROBLEMS["rms_norm"]
    small = next(w for w in problem.workloads if w.id == "smoke-1x128")

    with pytest.raises(HarnessError, match="smoke-1x128"):
        problem.published_cost(small)  # type: ignore[attr-defined]  # the pack's own
    assert as_published("rms_norm").cost(small) == problem.cost(small)
