"""Ctrl-C, and SIGKILL for any of our processes: nothing judged is lost, nothing keeps running."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_COUNT = 8
_KERNEL = '''
"""Submission {number}: right, and slow enough to be interrupted."""

import time

import torch

from atrex_acme import hammer


@hammer.kernel
def scaled_sum(row, x, y, out):
    out[row] = 2 * x[row] + y[row]


class Model(torch.nn.Module):
    def forward(self, x, y):
        time.sleep(0.03)
        out = torch.empty_like(x)
        scaled_sum[x.shape[0]](x, y, out)
        return out
'''


@pytest.fixture
def folder(cli: Any) -> Path:
    """Return a folder of candidates that differ in nothing but their digest."""
    folder = Path(cli.folder) / "acme_scaled_sum"
    folder.mkdir()
    for number in range(_COUNT):
        (folder / f"c{number}.py").write_text(_KERNEL.format(number=number))
    return folder


@pytest.fixture
def start(cli: Any, folder: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    every: list[subprocess.Popen[bytes]] = []

    def start(*more: str) -> subprocess.Popen[bytes]:
        options = ("--backend", "hammer", "--until", "correctness", "--journal", "j.jsonl")
        every.append(cli.start("run", folder, *options, *more))
        return every[-1]

    yield start
    for running in every:
        with running:  # closes its pipes
            running.kill()


def _evaluations(cli: Any) -> list[dict[str, Any]]:
    path = Path(cli.folder) / "j.jsonl"
    whole = [line for line in path.read_text().split("\n")[:-1] if line] if path.exists() else []
    records = [json.loads(line) for line in whole]
    return [record for record in records if record["kind"] == "evaluation"]


def _wait_for(cli: Any, running: subprocess.Popen[bytes], count: int) -> None:
    deadline = time.monotonic() + 60
    while len(_evaluations(cli)) < count:
        assert running.poll() is None, "the run has ended"
        assert time.monotonic() < deadline, "the run makes no progress"
        time.sleep(0.005)


def _kill(cli: Any, role: str) -> bool:
    """Send SIGKILL to the process of that role, and say whether it was there."""
    for pid, command in cli.processes().items():
        in_scratch = "atrex-worker-" in str(_cwd(pid))
        if role in command and not in_scratch:
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def _cwd(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/cwd").readlink()
    except OSError:
        return None


def _resume(cli: Any, folder: Path) -> Any:
    options = ("--backend", "hammer", "--until", "correctness", "--journal", "j.jsonl")
    return cli.run("run", folder, *options, "--resume", "--format", "json")


def test_ctrl_c_keeps_what_was_judged_and_resume_goes_on(
    cli: Any, folder: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    running = start("--format", "json")
    _wait_for(cli, running, 2)

    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)

    assert running.returncode == 130
    assert err.decode().splitlines() == [
        "error: interrupted",
        "hint: what is in the journal is kept; --resume goes on from there",
    ]
    before = _evaluations(cli)
    assert 2 <= len(before) < _COUNT
    reported = [e["id"] for e in json.loads(out)["evaluations"]]
    assert reported in ([e["id"] for e in before], [e["id"] for e in before[:-1]])
    assert cli.leftovers() == ({}, [])

    resumed = _resume(cli, folder)

    assert resumed.code == 0
    after = _evaluations(cli)
    assert after[: len(before)] == before
    assert sorted(e["submission"] for e in after) == [f"c{n}" for n in range(_COUNT)]
    assert len(resumed.document["evaluations"]) == _COUNT


@pytest.mark.slow
def test_killed_runs_lose_nothing_and_judge_nothing_twice(
    cli: Any, folder: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    chance = random.Random(20)
    reached = 0
    for _ in range(3):
        running = start("--resume")
        _wait_for(cli, running, min(reached + 1, _COUNT))
        time.sleep(chance.uniform(0, 0.4))
        running.kill()
        running.communicate(timeout=60)
        left = cli.leftovers()
        judged = [e["id"] for e in _evaluations(cli)]

        assert left[0] == {}
        assert len(judged) > reached
        reached = len(judged)

    resumed = _resume(cli, folder)

    assert resumed.code == 0
    after = _evaluations(cli)
    assert [e["id"] for e in after][:reached] == judged
    assert sorted(e["submission"] for e in after) == [f"c{n}" for n in range(_COUNT)]


@pytest.mark.slow
def test_lost_referee_is_an_error_of_one_evaluation(
    cli: Any, folder: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    running = start("--format", "json")
    _wait_for(cli, running, 2)
    time.sleep(0.1)
    killed = _kill(cli, "atrex_core.referee.main")
    out, err = running.communicate(timeout=120)

    assert killed
    assert running.returncode == 3
    found = json.loads(out)["evaluations"]
    errored = [e for e in found if e["outcome"] == "errored"]
    assert len(found) == _COUNT
    assert [e["gates"] for e in errored] == [
        {
            "compile": {
                "outcome": "errored",
                "reason": "the referee was killed by signal 9",
                "details": {},
            }
        }
    ]
    assert sum(e["gates"]["compile"]["outcome"] == "passed" for e in found) == _COUNT - 1
    assert err == b""
    assert cli.leftovers()[0] == {}

    resumed = _resume(cli, folder)

    assert resumed.code == 0
    again = [e["submission"] for e in _evaluations(cli)[_COUNT:]]
    assert again == [errored[0]["submission"]]


@pytest.mark.slow
def test_lost_server_is_not_held_against_the_candidate(
    cli: Any, folder: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    chance = random.Random(7)
    running = start("--format", "json")
    kills = 0
    for count in (1, 4):
        _wait_for(cli, running, count)
        time.sleep(chance.uniform(0, 0.2))
        kills += _kill(cli, "atrex_core.processes.server")
    out, err = running.communicate(timeout=120)

    assert kills == 2
    assert (running.returncode, err) == (0, b"")
    found = json.loads(out)["evaluations"]
    assert [e["gates"]["correctness"]["outcome"] for e in found] == ["passed"] * _COUNT
    assert cli.leftovers() == ({}, [])
