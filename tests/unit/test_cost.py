"""What a run cost, as a program and as a person reads it."""

from __future__ import annotations

from typing import Any

import pytest

from atrex_core.model import DeviceCost, RunCost
from atrex_core.report import cost as costs
from atrex_core.report import document
from atrex_core.scoring import Selection, summarise

COST = RunCost(
    wall_s=40.0,
    devices=(
        DeviceCost(
            device="acme:0",
            startup_s=5.0,
            startup_seconds={"imports": 4.5, "device": 0.25},
            busy_s=30.0,
            evaluations=7,
        ),
        DeviceCost(device="acme:1", startup_s=6.0, busy_s=10.0, evaluations=2),
    ),
    stage_seconds={"draw": 2.0, "build": 20.0, "call": 9.0, "judge": 1.0, "open": 5.0},
)


def test_document_has_the_cost_of_the_run_and_of_each_device(
    evaluation: Any, whole: Selection
) -> None:
    found = [evaluation("norm", "n1")]

    plain = document.document(found, summarise(found, whole), COST)

    assert set(plain) == {"schema", "evaluations", "summary", "cost"}
    assert plain["cost"] == {
        "wall_s": 40.0,
        "devices": [
            {
                "device": "acme:0",
                "startup_s": 5.0,
                "startup_seconds": {"imports": 4.5, "device": 0.25},
                "busy_s": 30.0,
                "evaluations": 7,
                "utilisation": 0.75,
            },
            {
                "device": "acme:1",
                "startup_s": 6.0,
                "startup_seconds": {},
                "busy_s": 10.0,
                "evaluations": 2,
                "utilisation": 0.25,
            },
        ],
        "stage_seconds": {"draw": 2.0, "build": 20.0, "call": 9.0, "judge": 1.0, "open": 5.0},
    }


def test_two_lines_say_how_long_how_busy_and_what_took_most() -> None:
    assert list(costs.lines(COST)) == [
        "40.0 s: acme:0 75% busy, acme:1 25% busy",
        "spent on: build 20.0 s, call 9.0 s, open 5.0 s, draw 2.0 s, other 4.0 s, start-up 11.0 s",
    ]


@pytest.mark.parametrize(
    ("cost", "lines"),
    [
        pytest.param(RunCost(), [], id="no run"),
        pytest.param(
            RunCost(wall_s=0.25, devices=(DeviceCost(device="a"),)), [], id="nothing to evaluate"
        ),
        pytest.param(
            RunCost(wall_s=250.0, devices=(DeviceCost(device="a", busy_s=245.0, evaluations=1),)),
            ["250 s: a 98% busy", "spent on: evaluations 245 s"],
            id="referees that tell nothing",
        ),
        pytest.param(
            RunCost(
                wall_s=2.0,
                devices=tuple(
                    DeviceCost(device=f"a:{n}", busy_s=1, evaluations=1) for n in range(9)
                ),
                stage_seconds={"call": 8.96},
            ),
            [
                "2.0 s: " + ", ".join(f"a:{n} 50% busy" for n in range(8)) + ", 1 more",
                "spent on: call 9.0 s",
            ],
            id="many devices",
        ),
    ],
)
def test_lines_say_no_more_than_is_known(cost: RunCost, lines: list[str]) -> None:
    assert list(costs.lines(cost)) == lines


def test_a_run_of_no_time_kept_nothing_busy() -> None:
    assert RunCost().utilisation(DeviceCost(device="a", busy_s=1.0)) == 0.0
