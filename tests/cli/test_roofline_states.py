"""Times above the roofline, for real: a workload that costs too much, and a profile too slow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba", reason="the candidates are written in it")

_ROWS = 20_000

_PACK = f"""
class Large(Sum):
    rows = ({_ROWS},)

class Overcounted(Large):
    '''As Large, but it claims a million times the bytes, and no arithmetic.'''

    name = "odd_overcounted"

    def cost(self, w, inputs=None):
        n = w.axes["rows"] * 8
        return Cost(flops={{}}, read_bytes=8e6 * n, write_bytes=4e6 * n)

PROBLEMS = (Large(), Overcounted())
"""

_CANDIDATE = """
import numba
import torch

@numba.njit
def add(x, y, out):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] + y[i, j]

class Model(torch.nn.Module):
    calls = 0

    def forward(self, x, y):
        out = torch.empty_like(x)
        add(x.numpy(), y.numpy(), out.numpy())
        NOISE
        return out
"""
_NOISE = """self.calls += 1
        if self.calls % 2:  # one unit in the last place, of one element
            out[3, 3] = torch.nextafter(out[3, 3], torch.tensor(float("inf")))
"""

_SLOW = """
name = "slow"
source = "planted: a thousand times slower than a device with 1 TB/s"
bandwidth_bytes_per_s = 1e9
[peak_flops]
fp32_vector = 1e9
"""
_CAUSES = [
    *("work_elsewhere", "constant_inputs", "cache_resident", "work_overcounted"),
    *("profile_too_small", "lower_precision", "timer_resolution"),
]

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def run(make_cli: Callable[[], Any], install_pack: Callable[[Any, str], Any]) -> Run:
    """Return what evaluates a candidate on a problem of the planted pack, with a journal."""
    cli = install_pack(make_cli(), _PACK)

    def run(problem: str, *options: str, noise: str = "") -> Any:
        candidate = Path(cli.folder) / f"{problem}.py"
        candidate.write_text(_CANDIDATE.replace("NOISE", noise))
        (Path(cli.folder) / "slow.toml").write_text(_SLOW)
        return cli.run(candidate, "--backend", "numba", *options)

    return run


def test_work_that_is_counted_a_million_times_over_is_withheld(run: Run) -> None:
    ran = run("odd_overcounted", "--format", "json", noise=_NOISE)

    assert ran.code == 0, ran.err
    (found,) = ran.document["evaluations"]
    assert (found["outcome"], found["gates"]["performance"]["outcome"]) == ("unmeasured", "skipped")
    assert {"roofline_violation", "remeasured", "no_arithmetic"} <= set(found["flags"])
    assert found["share_of_roofline"]["device"] > 10
    assert found["timing"]["device_us"] > 0
    assert found["gap"]["device"] < 0
    assert found["gap"]["limiter"] == found["bound"]["limiter"] == "memory"
    above = found["gates"]["performance"]["details"]["above_roofline"]
    assert [cause["name"] for cause in above["causes"]] == _CAUSES
    assert all(cause["speaks_for"] or cause["speaks_against"] for cause in above["causes"])
    assert len(above["measurements"]) == 2
    assert above["needs"]["bandwidth"] > 10
    assert found["gates"]["authenticity"]["outcome"] == "passed"
    assert ran.document["summary"]["by_operator"]["odd_overcounted"]["withheld"] == 1
    assert ran.document["summary"]["by_operator"]["odd_overcounted"]["s_device"] is None
    # Right both times, and different by a bit: reported, not judged.
    correctness = found["gates"]["correctness"]
    assert correctness["outcome"] == "passed"
    assert correctness["details"]["deterministic"] is False


def test_a_profile_that_is_too_slow_is_found_out(run: Run) -> None:
    ran = run("odd_sum", "--profile", "slow.toml", "--journal", "slow.jsonl")

    assert ran.code == 0, ran.err
    row = ran.out.splitlines()[1]
    assert row.split()[2:6] == ["pass", "pass", "S>1", "pass"]
    assert "check profile_too_small first: profile 'slow' was asked for" in ran.out
    assert "  5. profile_too_small: " in ran.out
    assert "1 evaluation: 1 unmeasured" in ran.out
    assert "1 time above the roofline: withheld from every score" in ran.out


def test_an_honest_time_below_the_roof_is_only_split(run: Run) -> None:
    ran = run("odd_sum", "--format", "json")

    assert ran.code == 0, ran.err
    (found,) = ran.document["evaluations"]
    assert not {"roofline_violation", "remeasured", "no_arithmetic"} & set(found["flags"])
    assert "above_roofline" not in found["gates"]["performance"]["details"]
    timing, bound, gap = found["timing"], found["bound"], found["gap"]
    assert gap["device"] == pytest.approx(timing["device_us"] - bound["t_sol_us"])
    assert gap["launch"] == pytest.approx(max(0.0, timing["call_us"] - timing["device_us"]))
    assert gap["fallback"] is None
    assert set(gap["unmeasured"]) >= {"fallback"}
    details = found["gates"]["correctness"]["details"]
    assert details["deterministic"] is True
    assert set(details["relative_l2"]) == set(details["relative_l2_honest"]) == {"out"}
    assert details["relative_l2"]["out"] == pytest.approx(details["relative_l2_honest"]["out"])
    assert found["peak_memory_bytes"] is None or found["peak_memory_bytes"] > 0
    assert json.loads(json.dumps(found)) == found
