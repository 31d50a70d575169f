"""`atrex-eval repro`: a script that shows a failure again, without atrex-eval."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba", reason="the candidate is judged on its backend")

_CANDIDATE = Path(__file__).parents[1] / "hostile" / "rms_norm" / "one_wrong_element.py"


@pytest.fixture(scope="module")
def identity(shared_cli: Any) -> str:
    """Judge a candidate that is wrong at [3, 700], and return the evaluation's id."""
    ran = shared_cli.run(
        *("run", _CANDIDATE, "--backend", "numba", "--workload", "smoke-7x1152"),
        *("--until", "correctness", "--journal", "j.jsonl", "--format", "json"),
    )
    (found,) = ran.document["evaluations"]
    assert ran.code == 1
    return str(found["id"])


def test_script_runs_alone_and_prints_the_wrong_index(shared_cli: Any, identity: str) -> None:
    written = shared_cli.run("repro", "j.jsonl", identity[:8])
    script = Path(shared_cli.folder) / f"repro_{identity[:10]}.py"
    assert (written.code, written.out) == (0, f"{script.name}\n")

    shown = subprocess.run(
        [sys.executable, "-I", str(script)],
        cwd=shared_cli.folder,
        env={"PATH": shared_cli.environment["PATH"]},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    lines = shown.stdout.splitlines()
    assert lines[0].startswith("rms_norm/smoke-7x1152 on ")
    assert lines[1].startswith("recorded: correctness: case 0 (nominal): output 'out': 1 of 8064 ")
    assert re.match(r"out: \d+ of 8064 elements differ from the reference; rms of the ", lines[2])
    assert re.match(r"    \(3, 700\): got 42, want -?\d", lines[3])
    assert "import atrex" not in script.read_text()


def test_script_repeats_the_recorded_inputs(shared_cli: Any, identity: str) -> None:
    shown = shared_cli.run("journal", "show", "j.jsonl", identity, "--format", "json")
    recorded = shown.document["gates"]["correctness"]["details"]["first_wrong"]
    script = shared_cli.run("repro", "j.jsonl", identity, "--output", "again.py").out.strip()

    ran = subprocess.run(
        [sys.executable, "-I", script],
        cwd=shared_cli.folder,
        env={"PATH": shared_cli.environment["PATH"]},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    found = re.search(r"\(3, 700\): got 42, want (-?[\d.e-]+)", ran.stdout)
    assert found is not None
    # the script compares with the bf16 reference, the journal holds the float64 value
    assert float(found[1]) == pytest.approx(recorded["expected"], rel=2**-7)


@pytest.mark.usefixtures("identity")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param(("zzzz",), "no evaluation in 'j.jsonl' has id 'zzzz'", id="unknown id"),
        pytest.param(
            ("", "--output", "/dev/full"),
            "cannot write '/dev/full': no space left on device",
            id="full disk",
        ),
        pytest.param(
            ("", "--output", "nowhere/x.py"),
            "cannot write 'nowhere/x.py': no such file or directory",
            id="missing folder",
        ),
    ],
)
def test_what_cannot_be_written_is_one_error(
    shared_cli: Any, arguments: tuple[str, ...], error: str
) -> None:
    ran = shared_cli.run("repro", "j.jsonl", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[0] == f"error: {error}"
    assert ran.err.splitlines()[1].startswith("hint: ")


def test_problem_without_a_public_half_says_so(shared_cli: Any) -> None:
    shared_cli.run("--backend", "hammer", "--until", "compile", "--journal", "acme.jsonl")

    ran = shared_cli.run("repro", "acme.jsonl", "")

    assert ran.code == 2
    assert ran.err.splitlines() == [
        "error: problem 'acme_scaled_sum' has no public inputs.py and reference.py to run alone",
        "hint: its pack's author can add them",
    ]
