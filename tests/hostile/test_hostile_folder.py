"""Every broken candidate of the folder, in one run: each is charged to the right gate.

A candidate says itself, in its first lines, which gate it must fail, what the reason must look
like, and which layer must have caught it. `a_first_honest` and `z_last_honest` stand at both ends
of the run.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

pytest.importorskip("numba", reason="the hostile candidates are written in it")

_FOLDER = Path(__file__).parent / "rms_norm"
_WORKLOAD = "smoke-7x1152"
_TIMEOUT_S = 10
_MEMORY_BYTES = 1 << 30
_GATES = ["compile", "correctness", "performance", "authenticity"]


@frozen
class Expected:
    """What a candidate says about itself."""

    gate: str
    reason: str
    flags: frozenset[str]
    caught_by: str = ""

    @classmethod
    def of(cls, path: Path) -> Expected:
        said: dict[str, str] = {}
        for line in path.read_text().splitlines():
            if not line.startswith("# "):
                break
            key, _, value = line[2:].partition(": ")
            if line.startswith("#  "):
                said["reason"] += f" {line[1:].strip()}"
            else:
                said[key] = value
        flags = frozenset(said.get("flags", "").split())
        return cls(
            gate=said["gate"],
            reason=said.get("reason", ""),
            flags=flags,
            caught_by=said.get("caught_by", ""),
        )


@frozen
class Run:
    """The one run."""

    code: int
    err: str
    by_name: dict[str, Any]
    leftovers: tuple[dict[int, str], list[str]]
    journal: Path
    cli: Any


@pytest.fixture(scope="module")
def run(make_cli: Callable[[], Any]) -> Run:
    cli = make_cli()
    journal = cli.folder / "hostile.jsonl"
    ran = cli.run(
        *("run", _FOLDER, "--backend", "numba", "--workload", _WORKLOAD),
        *("--timeout", str(_TIMEOUT_S), "--memory-limit", str(_MEMORY_BYTES)),
        *("--journal", journal, "--format", "json"),
        timeout_s=280,
    )
    by_name = {e["submission"]: e for e in ran.document["evaluations"]}
    return Run(ran.code, ran.err, by_name, cli.leftovers(), journal, cli)


def _names() -> list[str]:
    return sorted(path.stem for path in _FOLDER.glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", _names())
def test_candidate_is_charged_to_the_gate_it_names(run: Run, name: str) -> None:
    expected = Expected.of(_FOLDER / f"{name}.py")

    found = run.by_name[name]

    outcomes = {gate: result["outcome"] for gate, result in found["gates"].items()}
    said = {gate: result["reason"] for gate, result in found["gates"].items()}
    assert said.pop(expected.gate, "") or expected.gate == "passed", (outcomes, said)
    if expected.gate == "passed":
        assert outcomes == dict.fromkeys(_GATES, "passed"), said
    else:
        passed = _GATES[: _GATES.index(expected.gate)]
        assert outcomes == {**dict.fromkeys(passed, "passed"), expected.gate: "failed"}
        assert re.search(expected.reason, found["gates"][expected.gate]["reason"])
    assert expected.flags <= set(found["flags"])
    if expected.caught_by:
        gate = "performance" if expected.gate == "passed" else expected.gate
        assert found["gates"][gate]["details"]["caught_by"] == expected.caught_by


@pytest.mark.slow
def test_run_goes_on_to_the_end(run: Run) -> None:
    assert list(run.by_name) == _names()
    assert len(_names()) > 60
    assert run.code == 1
    assert run.err == ""


@pytest.mark.slow
def test_nothing_is_left_behind(run: Run) -> None:
    assert run.leftovers == ({}, [])


@pytest.mark.slow
def test_whoever_slows_the_clock_gains_nothing(run: Run) -> None:
    timing = run.by_name["slow_clock"]["timing"]

    assert timing["reason"].startswith("the process claimed ")
    assert timing["device_us"] > 2 * min(timing["samples_us"])


@pytest.mark.slow
def test_failure_shows_where_and_by_how_much(run: Run) -> None:
    details = run.by_name["one_wrong_element"]["gates"]["correctness"]["details"]

    assert details["first_wrong"]["index"] == [3, 700]
    assert details["first_wrong"]["actual"] == 42.0
    assert abs(details["first_wrong"]["expected"]) < 5
    assert sum(details["histogram"]["counts"]) == 8064
    assert details["histogram"]["counts"][-1] == 1


@pytest.mark.slow
def test_report_resumes_from_the_journal_in_printable_lines(run: Run) -> None:
    before = run.journal.read_bytes()

    shown = run.cli.run(
        *("run", _FOLDER, "--backend", "numba", "--workload", _WORKLOAD),
        *("--journal", run.journal, "--resume", "--format", "table"),
        *("--timeout", str(_TIMEOUT_S), "--memory-limit", str(_MEMORY_BYTES)),
    )

    assert shown.code == 1
    assert run.journal.read_bytes() == before
    assert set(filter(_is_control, shown.out)) == {"\n"}
    reasons = [line for line in shown.out.splitlines() if line.startswith("failed: ")]
    broken = [name for name in _names() if Expected.of(_FOLDER / f"{name}.py").gate != "passed"]
    assert len(reasons) == len(broken)
    assert shown.out.splitlines()[-2].startswith(f"{len(_names())} evaluations: ")


def _is_control(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
