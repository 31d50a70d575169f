"""The table of evaluations: compact, and open about times that beat their bounds."""

from __future__ import annotations

import io
from typing import Any

import pytest
from attrs import evolve
from rich.console import Console

from atrex_core import Gap, Gate, GateResult, Limiter, Outcome, Share, Timing
from atrex_core.report import document, table

CAUSES = [
    {"name": "work_elsewhere", "means": "not here", "speaks_for": [], "speaks_against": ["seen"]},
    {"name": "profile_too_small", "means": "low", "speaks_for": ["a file"], "speaks_against": []},
]


def printed(evaluations: list[Any]) -> list[str]:
    console = Console(file=io.StringIO(), width=240, highlight=False)
    with console.capture() as capture:
        console.print(table.evaluations_table(evaluations))
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.fixture
def timed(evaluation: Any) -> Any:
    """Return what makes an evaluation with times: `timed(problem, workload, **changes)`."""

    def timed(problem: str = "norm", workload: str = "n1", **changes: Any) -> Any:
        fields = {
            "timing": Timing(device_us=1234.5, call_us=2345.6, method="records"),
            "gap": Gap(
                launch_us=1111.1, device_us=1233.5, fallback_us=None, limiter=Limiter.MEMORY
            ),
        }
        return evaluation(problem, workload, **{**fields, **changes})

    return timed


@pytest.fixture
def beyond(timed: Any) -> Any:
    """Return what makes an evaluation whose time beats its bound."""

    def beyond(workload: str = "n1") -> Any:
        gates = {gate: GateResult(outcome=Outcome.PASSED) for gate in Gate}
        gates[Gate.PERFORMANCE] = GateResult(
            outcome=Outcome.SKIPPED,
            reason="5 us is 2 of the roofline",
            details={"above_roofline": {"causes": CAUSES}},
        )
        share = Share(device=2.0, call=0.5)
        flags = ("roofline_violation",)
        found = timed(workload=workload, share_of_roofline=share, flags=flags)
        return evolve(found, gates=gates)

    return beyond


def test_a_row_has_both_times_the_bound_and_the_parts_between(timed: Any) -> None:
    header, row = printed([timed()])

    assert header.split() == [
        *("problem", "workload", "comp", "corr", "perf", "auth"),
        *("call", "us", "dev", "us", "bound", "us", "by", "launch", "kernel", "share", "flags"),
    ]
    assert row.split() == [
        *("norm", "n1", "pass", "pass", "pass", "pass"),
        *("2,346", "1,234", "1", "mem", "1,111", "1,234", "50.0%"),
    ]


def test_time_outside_the_dsl_has_a_column_once_it_is_known(timed: Any) -> None:
    gap = Gap(launch_us=1.0, device_us=2.0, fallback_us=3.0, limiter=Limiter.LATENCY)
    header, row = printed([timed(gap=gap)])

    assert header.split()[12:] == ["by", "launch", "kernel", "other", "share", "flags"]
    assert row.split()[9:] == ["lat", "1", "2", "3", "50.0%"]


def test_long_names_and_many_flags_are_folded(timed: Any) -> None:
    flags = ("clock_unchecked", "latency_bound", "no_arithmetic", "unstable", "warm")
    lines = printed([timed("a_problem_whose_name_is_rather_long", "smoke-1024x4096", flags=flags)])

    assert max(map(len, lines)) <= 110
    for number in ("2,346", "1,234", "1,111", "50.0%"):
        assert number in lines[1]
    for flag in flags:
        assert any(flag in line for line in lines)


def test_short_names_make_a_narrow_table(timed: Any) -> None:
    assert max(map(len, printed([timed()]))) < 100


def test_a_time_above_the_roof_is_marked_and_its_causes_listed(beyond: Any) -> None:
    row = printed([beyond()])[1]

    assert row.split()[2:6] == ["pass", "pass", "S>1", "pass"]
    assert row.split()[-1] == "200.0%"  # the mark says what the flag does
    assert list(table.reasons([beyond()])) == [
        "withheld: mine/norm [n1] performance: 5 us is 2 of the roofline",
        "  1. work_elsewhere: not here",
        "     - seen",
        "  2. profile_too_small: low",
        "     + a file",
    ]


def test_of_many_times_above_the_roof_a_few_are_listed(beyond: Any) -> None:
    said = list(table.reasons([beyond(f"n{n}") for n in range(5)]))

    assert sum(line.startswith("withheld: mine/norm [") for line in said) == 3
    assert sum(line.startswith("  1. ") for line in said) == 1
    assert said[-1].startswith("withheld: 2 more times above the roofline")


@pytest.mark.parametrize(
    "details",
    [{}, {"above_roofline": 3}, {"above_roofline": {"causes": "x"}}]
    + [{"above_roofline": {"causes": [1, {"name": "\x1b[2J", "speaks_for": "y"}]}}],
    ids=str,
)
def test_details_of_somebody_elses_journal_break_nothing(
    beyond: Any, details: dict[str, Any]
) -> None:
    found = beyond()
    result = GateResult(outcome=Outcome.SKIPPED, reason="r", details=details)
    said = list(table.reasons([evolve(found, gates={**found.gates, Gate.PERFORMANCE: result})]))

    assert said[0] == "withheld: mine/norm [n1] performance: r"
    assert "\x1b" not in "".join(said)


def test_a_document_has_the_parts_of_the_gap_in_microseconds(timed: Any) -> None:
    gap = Gap(
        launch_us=1.5,
        device_us=2.5,
        fallback_us=None,
        limiter=Limiter.LATENCY,
        launch_floor_us=4.0,
        unmeasured={"fallback": "no evidence"},
    )

    assert document.entry(timed(gap=gap))["gap"] == {
        "launch": 1.5,
        "device": 2.5,
        "fallback": None,
        "limiter": "latency",
        "launch_floor_us": 4.0,
        "unmeasured": {"fallback": "no evidence"},
    }
    assert document.entry(timed(gap=None))["gap"] is None
