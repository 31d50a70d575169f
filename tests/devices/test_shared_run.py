"""Several devices take work from one queue: all of it is done once, whatever happens to one."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

_CANDIDATES, _WORKLOADS = 3, 4
_ALL = {(f"c{c}", f"w{w}") for c in range(_CANDIDATES) for w in range(_WORKLOADS)}
_JOURNAL = ("--journal", "j.jsonl")
_QUICK = ("--until", "correctness")

Kernels = Callable[..., Path]


def _recorded(cli: Any) -> list[dict[str, Any]]:
    path = Path(cli.folder) / "j.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    records = [json.loads(line) for line in lines if line]
    return [record for record in records if record["kind"] == "evaluation"]


def _wait_for(cli: Any, running: Any, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(_recorded(cli)) < count:
        assert running.poll() is None, "the run has ended"
        assert time.monotonic() < deadline, "the run makes no progress"
        time.sleep(0.005)


def _referees(cli: Any) -> list[int]:
    return sorted(pid for pid, said in cli.processes().items() if "atrex_core.referee" in said)


def _pairs(evaluations: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(e["submission"], e["workload"]) for e in evaluations]


def _device(evaluation: Mapping[str, Any]) -> str:
    device = evaluation["device"]
    return str(device["id"] if isinstance(device, dict) else device)


@pytest.mark.slow
def test_devices_share_the_work_and_each_job_is_done_once(forge_cli: Any, kernels: Kernels) -> None:
    folder = kernels(Path(forge_cli.folder), seconds=0.1)

    ran = forge_cli.run(
        "run", folder, "--device", "forge:*", *_QUICK, *_JOURNAL, "--format", "json"
    )

    assert (ran.code, ran.err) == (0, "")
    found = ran.document["evaluations"]
    assert sorted(_pairs(found)) == sorted(_ALL)
    assert [e["id"] for e in found] == [e["id"] for e in _recorded(forge_cli)]
    cost = ran.document["cost"]
    made = {part["device"]: part["evaluations"] for part in cost["devices"]}
    assert made == Counter(map(_device, found))
    assert set(made) == {"forge:0", "forge:1", "forge:2"}
    assert min(made.values()) >= 1
    # Asleep most of the time: at least two were at work at once, though they start from nothing.
    busy_s = sum(part["busy_s"] for part in cost["devices"])
    working_s = cost["wall_s"] - min(part["startup_s"] for part in cost["devices"])
    assert busy_s > 1.5 * working_s
    for part in cost["devices"]:
        assert part["utilisation"] == pytest.approx(part["busy_s"] / cost["wall_s"])
        assert part["startup_s"] > 0
    # A device goes on with the candidate that it has: at most one more each, to help out.
    for device in made:
        own = [e["submission"] for e in found if _device(e) == device]
        assert len(list(groupby(own))) <= 1 + _CANDIDATES - 1
    assert forge_cli.leftovers() == ({}, [])


def test_one_device_goes_through_the_work_in_order(forge_cli: Any, kernels: Kernels) -> None:
    folder = kernels(Path(forge_cli.folder), count=2, seconds=0)

    named = ("--device", "forge", "--device", "forge:0,forge:[0]")  # thrice the same
    ran = forge_cli.run("run", folder, *named, *_QUICK, *_JOURNAL, "--format", "json")

    assert (ran.code, ran.err) == (0, "")
    assert _pairs(ran.document["evaluations"]) == sorted(p for p in _ALL if p[0] != "c2")
    (part,) = ran.document["cost"]["devices"]
    assert (part["device"], part["evaluations"]) == ("forge:0", 8)
    assert 0 < part["busy_s"] < ran.document["cost"]["wall_s"]


def test_table_ends_with_what_the_run_cost(forge_cli: Any, kernels: Kernels) -> None:
    folder = kernels(Path(forge_cli.folder), count=1, seconds=0.01)
    (Path(forge_cli.folder) / "atrex.toml").write_text('device = ["forge:0", "forge:1"]\n')

    ran = forge_cli.run("run", folder, *_QUICK, *_JOURNAL)
    again = forge_cli.run("run", folder, *_QUICK, *_JOURNAL, "--resume")

    took, spent = ran.out.splitlines()[-2:]
    assert took.split(": ")[1].count("% busy") == 2
    assert "forge:0 " in took
    assert "forge:1 " in took
    assert spent.startswith("spent on: ")
    assert "start-up " in spent
    assert (ran.code, again.code) == (0, 0)
    assert "spent on" not in again.out  # it did nothing


@pytest.mark.slow
def test_lost_referee_costs_its_evaluation_and_nothing_else(
    forge_cli: Any, kernels: Kernels
) -> None:
    folder = kernels(Path(forge_cli.folder), seconds=0.1)
    command = ("run", folder, *_QUICK, *_JOURNAL, "--format", "json")
    running = forge_cli.start(*command, "--device", "forge:*")
    with running:
        _wait_for(forge_cli, running, 2)
        time.sleep(0.2)
        os.kill(_referees(forge_cli)[0], signal.SIGKILL)
        out, err = running.communicate(timeout=120)

    assert (running.returncode, err) == (3, b"")
    found = json.loads(out)["evaluations"]
    assert sorted(_pairs(found)) == sorted(_ALL)
    (errored,) = [e for e in found if e["outcome"] == "errored"]
    assert errored["gates"]["compile"]["reason"] == "the referee was killed by signal 9"
    good = [e for e in found if e is not errored]
    assert all(e["gates"]["correctness"]["outcome"] == "passed" for e in good)
    assert [e["id"] for e in _recorded(forge_cli)] == [e["id"] for e in found]
    parts = {p["device"]: p for p in json.loads(out)["cost"]["devices"]}
    assert sum(p["evaluations"] for p in parts.values()) == len(_ALL)
    assert forge_cli.leftovers() == ({}, [])

    before = len(found)
    resumed = forge_cli.run(*command, "--resume", "--device", "forge:1")  # whoever had it before

    assert (resumed.code, resumed.err) == (0, "")
    assert _pairs(_recorded(forge_cli)[before:]) == [(errored["submission"], errored["workload"])]
    assert len(resumed.document["evaluations"]) == len(_ALL)


@pytest.mark.slow
def test_device_that_cannot_start_leaves_the_work_to_the_others(
    forge_cli: Any, kernels: Kernels
) -> None:
    folder = kernels(Path(forge_cli.folder), seconds=0.05)
    broken = forge_cli.with_variables(FORGE_COLD="1", ATREX_DEVICE="forge:0, forge:1, forge:2")

    ran = broken.run("run", folder, *_QUICK, *_JOURNAL, "--format", "json")

    assert sorted(_pairs(ran.document["evaluations"])) == sorted(_ALL)
    assert {_device(e) for e in ran.document["evaluations"]} == {"forge:0", "forge:2"}
    assert len(_recorded(broken)) == len(_ALL)
    assert (ran.code, ran.err.splitlines()) == (
        4,
        [
            "WARNING: device 'forge:1' takes no part: the fire is out",
            "error: device 'forge:1' takes no part: the fire is out",
            "hint: light it",
        ],
    )
    assert broken.leftovers() == ({}, [])


def test_where_no_device_can_start_there_is_one_error(forge_cli: Any, kernels: Kernels) -> None:
    folder = kernels(Path(forge_cli.folder), count=1)
    broken = forge_cli.with_variables(FORGE_COLD="0,1")

    ran = broken.run("run", folder, "--device", "forge:0,forge:1", *_QUICK, *_JOURNAL)

    assert (ran.code, ran.out) == (4, "")
    assert len([line for line in ran.err.splitlines() if line.startswith("error: ")]) == 1
    assert ran.err.splitlines()[-1] == "hint: light it"
    assert _recorded(broken) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill"])
def test_ended_run_loses_nothing_judged(
    forge_cli: Any, kernels: Kernels, number: signal.Signals
) -> None:
    folder = kernels(Path(forge_cli.folder), seconds=0.05)
    command = ("run", folder, *_QUICK, *_JOURNAL, "--format", "json")
    running = forge_cli.start(*command, "--device", "forge:*")
    with running:
        _wait_for(forge_cli, running, 3)
        os.kill(running.pid, number)
        out, err = running.communicate(timeout=60)

    assert forge_cli.leftovers()[0] == {}
    before = _recorded(forge_cli)
    assert 3 <= len(before) < len(_ALL)
    if number is signal.SIGINT:
        assert running.returncode == 130
        assert err.decode().splitlines() == [
            "error: interrupted",
            "hint: what is in the journal is kept; --resume goes on from there",
        ]
        reported = {e["id"] for e in json.loads(out)["evaluations"]}
        assert reported <= {e["id"] for e in before}
        assert len(reported) >= len(before) - 1
        assert forge_cli.scratch() == []

    resumed = forge_cli.run(*command, "--resume", "--device", "forge:2")

    assert resumed.code == 0
    after = _recorded(forge_cli)
    assert after[: len(before)] == before
    assert sorted(_pairs(after)) == sorted(_ALL)
    assert {_device(e) for e in after[len(before) :]} == {"forge:2"}


@pytest.mark.parametrize(
    ("devices", "variables", "code", "error", "hint"),
    [
        pytest.param(
            "forge:0,forge:2",
            {"FORGE_ODD": "2"},
            2,
            "error: devices 'forge:0' and 'forge:2' are not alike: "
            "name 'Acme Anvil 2' against 'Acme Anvil 1'",
            "hint: run each by itself with a --journal, then set the results side by side",
            id="unlike",
        ),
        pytest.param(
            "forge:7*",
            {},
            4,
            "error: no device that backend 'tongs' runs on matches 'forge:7*' here: "
            "there is only forge:0, forge:1, forge:2",
            "hint: see `atrex-eval list devices`; a virtual device is named in full",
            id="glob that matches nothing",
        ),
        pytest.param(
            "*",
            {"FORGE_COUNT": "0"},
            4,
            "error: no device that backend 'tongs' runs on matches '*' here: the forge is empty",
            "hint: see `atrex-eval list devices`; a virtual device is named in full",
            id="glob over nothing",
        ),
        pytest.param(
            "forge:0,forge:9",
            {},
            4,
            "error: device 'forge:9' is not available here: there is only forge:0, forge:1, "
            "forge:2",
            "hint: see `atrex-eval list devices`",
            id="absent",
        ),
        pytest.param(
            "forge:0,anvil",
            {},
            4,
            "error: backend 'tongs' does not run on 'anvil:0'",
            "hint: it runs on: forge",
            id="not for this backend",
        ),
        pytest.param(
            " , ",
            {},
            2,
            "error: --device must be one name or more, not (' , ',)",
            "hint: leave it out where none is meant",
            id="none",
        ),
    ],
)
def test_wrong_selection_is_one_error_and_one_hint(
    forge_cli: Any, devices: str, variables: dict[str, str], code: int, error: str, hint: str
) -> None:
    ran = forge_cli.with_variables(**variables).run("--device", devices, *_QUICK)

    assert (ran.code, ran.err.splitlines()) == (code, [error, hint])
