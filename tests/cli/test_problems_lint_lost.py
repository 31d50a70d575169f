"""Ctrl-C, SIGKILL, full disks and `--resume`: nothing found is lost, nothing keeps running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CLEAN = "PROBLEMS = [Sum()]"

_BROKEN = """
    def fail(w, i):
        raise KeyError("no such table")

    class Broken(Sum):
        name = "odd_broken"

        def more_mutants(self):
            return {"fail": fail}

    PROBLEMS = [Broken()]
"""

_SLOW = """
    class Slow(Sum):
        name = "odd_slow"
        rows = (1, 2, 3, 4, 5, 6)

        def more_variants(self):
            def slow(w, i):
                time.sleep(0.05)
                return {"out": i["x"] + i["y"]}
            return {"slow": slow}

    PROBLEMS = [Slow()]
"""


def _lint(cli: Any, *arguments: str | Path) -> Any:
    return cli.run("problems", "lint", *arguments, "--format", "json")


def _records(path: Path) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


# -- interruptions ---------------------------------------------------------------------------------


def _start(cli: Any, *arguments: str) -> subprocess.Popen[bytes]:
    options = ("--jobs", "1", "--journal", "j.jsonl", "--format", "json", *arguments)
    running: subprocess.Popen[bytes] = cli.start("problems", "lint", "odd_slow", *options)
    return running


def _wait_for(cli: Any, running: subprocess.Popen[bytes], count: int) -> None:
    path, deadline = Path(cli.folder) / "j.jsonl", time.monotonic() + 60
    while not path.exists() or len(_records(path)) < count:
        assert running.poll() is None, "the lint has ended"
        assert time.monotonic() < deadline, "the lint makes no progress"
        time.sleep(0.01)


def _linters(cli: Any) -> list[int]:
    return [pid for pid, command in cli.processes().items() if "lint_main" in command]


def test_ctrl_c_keeps_what_was_found_and_resume_goes_on(with_pack: Any) -> None:
    cli = with_pack(_SLOW)
    running = _start(cli)
    _wait_for(cli, running, 2)

    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)

    assert running.returncode == 130
    assert err.decode().splitlines()[0] == "error: interrupted"
    assert cli.leftovers() == ({}, [])
    before = _records(Path(cli.folder) / "j.jsonl")
    assert 2 <= len(before) < 7
    shown = {f["workload"] for f in json.loads(out)["findings"]}
    assert shown <= {record["task"]["workload"] for record in before}

    resumed = _lint(cli, "odd_slow", "--journal", "j.jsonl", "--resume")

    after = _records(Path(cli.folder) / "j.jsonl")
    assert resumed.code == 0
    assert after[: len(before)] == before
    tasks = [(r["task"]["workload"], r["task"]["protocol"]) for r in after]
    assert len(tasks) == len(set(tasks)) == 7
    assert resumed.document["summary"]["mutants"]["strict"]["right"] == 5


def test_killed_orchestrator_leaves_no_process_and_whole_lines(with_pack: Any) -> None:
    cli = with_pack(_SLOW)
    running = _start(cli)
    _wait_for(cli, running, 2)
    assert _linters(cli) != []

    running.kill()
    running.communicate(timeout=60)

    assert cli.leftovers() == ({}, [])
    path = Path(cli.folder) / "j.jsonl"
    with path.open("ab") as file:
        file.write(b'{"schema": 1, "kind": "lint", "pack": {"na')  # as a power cut leaves it
    resumed = _lint(cli, "odd_slow", "--journal", "j.jsonl", "--resume")
    assert resumed.code == 0
    assert len(_records(path)) == 7
    assert resumed.document["summary"]["by_problem"]["odd_slow"]["workloads"] == 6


def test_killed_linter_is_replaced_and_nobody_is_charged(with_pack: Any) -> None:
    cli = with_pack(_SLOW)
    running = _start(cli)
    _wait_for(cli, running, 2)
    (linter,) = _linters(cli)

    os.kill(linter, signal.SIGKILL)
    out, err = running.communicate(timeout=60)

    assert (running.returncode, err) == (0, b"")
    summary = json.loads(out)["summary"]
    assert summary["by_problem"]["odd_slow"]["workloads"] == 6
    assert summary["mutants"]["strict"] == {"total": 5, "right": 5, "killed": 5}
    assert cli.leftovers() == ({}, [])


# -- the journal -----------------------------------------------------------------------------------


def test_record_says_what_it_was_made_of(with_pack: Any) -> None:
    cli = with_pack(_CLEAN)

    _lint(cli, "odd_sum", "--spread", "1", "--journal", "j.jsonl", "--seed", "1")

    whole, part = sorted(
        _records(Path(cli.folder) / "j.jsonl"), key=lambda r: str(r["task"]["workload"])
    )
    assert (whole["schema"], whole["kind"], whole["seed"], whole["cases"]) == (3, "lint", 1, 5)
    assert part["task"] == {"problem": "odd_sum", "workload": "r1", "protocol": "strict"}
    assert part["pack"] == {"name": "odd", "version": "1", "digest": "d"}
    assert part["device"]["id"] == "cpu"
    assert part["environment"]["torch"]
    assert len(part["findings"]) == 11 + 3 + 5


def test_resume_tries_again_what_was_broken(with_pack: Any) -> None:
    cli = with_pack(_BROKEN)
    arguments = ("odd_broken", "--journal", "j.jsonl", "--workload", "r1")

    _lint(cli, *arguments)
    again = _lint(cli, *arguments, "--resume")

    tasks = [r["task"]["workload"] for r in _records(Path(cli.folder) / "j.jsonl")]
    assert again.code == 3
    assert sorted(tasks, key=str) == [None, "r1", "r1"]


def test_full_journal_is_one_error_and_shows_what_was_found(with_pack: Any) -> None:
    cli = with_pack(_CLEAN)

    ran = _lint(cli, "odd_sum", "--journal", "/dev/full")

    assert ran.code == 3
    assert ran.err.splitlines() == [
        "error: cannot write journal '/dev/full': no space left on device",
        "hint: free some space and run again with --resume: earlier lines are safe",
    ]
    assert len({f["workload"] for f in ran.document["findings"]}) == 1
    assert cli.leftovers() == ({}, [])
