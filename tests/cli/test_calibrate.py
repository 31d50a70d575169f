"""`calibrate`, as a user runs it: on a vendor's device, and what a run then makes of it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

_ANVIL = ("calibrate", "--device", "anvil", "--minutes", "0.1")
_HAMMER = ("--backend", "hammer", "--device", "anvil", "--format", "json")


def _kept(cli: Any) -> list[Path]:
    return sorted((Path(cli.folder) / "state/atrex-eval/calibrations").glob("*"))


@pytest.fixture(scope="module")
def calibrated(make_cli: Any) -> Any:
    """Return a command line on whose machine the Anvil is calibrated, and what that printed."""
    cli = make_cli()
    return cli, cli.run(*_ANVIL)


def test_it_prints_a_table_and_keeps_the_figures(calibrated: Any) -> None:
    cli, ran = calibrated

    assert ran.code == 0, ran.err
    heading = ran.out.splitlines()[0]
    assert heading.startswith("anvil:0: Acme Anvil 2 (anvil:0), driver unknown, torch ")
    assert heading.endswith("profile acme-anvil-2 (spec)")
    for word in ("read", "write", "copy", "triad", "fp32_vector", "device", "held", "call"):
        assert word in ran.out
    assert "2400 GB/s" in ran.out
    (path,) = _kept(cli)
    assert path.name.startswith("anvil-acme-anvil-2-")
    assert ran.err == f"kept in {path}\n"


def test_show_prints_what_is_kept_and_measures_nothing(calibrated: Any) -> None:
    cli, ran = calibrated
    before = _kept(cli)[0].stat().st_mtime_ns

    shown = cli.run("calibrate", "--device", "anvil", "--show")

    assert (shown.code, shown.out, shown.err) == (0, ran.out, "")
    assert _kept(cli)[0].stat().st_mtime_ns == before


def test_the_document_has_a_figure_or_a_reason_everywhere(calibrated: Any) -> None:
    cli, _ = calibrated

    document = cli.run("calibrate", "--device", "anvil", "--show", "--format", "json").document

    found = document["calibration"]
    assert document["schema"] == 1
    assert found["identity"]["uuid"] == "anvil:0"
    assert (found["profile"], found["ceiling"]) == ("acme-anvil-2", "spec")
    readings = [
        *((r, r["bytes_per_s"]) for r in found["streams"]),
        *((r, r["flops"]) for r in found["products"]),
        *((r, r["launch_floor_us"]) for r in found["floors"]),
    ]
    assert len(readings) == 8 + 2 + 3
    assert all((figure is None) == (reading["reason"] is not None) for reading, figure in readings)
    memory = [r["bytes_per_s"] for r in found["streams"] if r["regime"] == "memory"]
    best = max(figure["value"] for figure in memory if figure)
    assert found["envelope"]["bandwidth_bytes_per_s"] == best


def test_a_run_sets_its_bounds_beside_what_is_kept(calibrated: Any, make_cli: Any) -> None:
    cli, _ = calibrated
    kept = cli.run("calibrate", "--device", "anvil", "--show", "--format", "json").document

    evaluations = cli.run(*_HAMMER).document["evaluations"]
    elsewhere = make_cli().run(*_HAMMER).document["evaluations"]

    envelope = kept["calibration"]["envelope"]
    (floor,) = (f for f in kept["calibration"]["floors"] if f["method"] == "device")
    bounds = [e["bound"] for e in evaluations]
    assert bounds
    for bound in bounds:
        by_memory = bound["t_sol_us"] * 2.4e12 / envelope["bandwidth_bytes_per_s"]
        by_vector = bound["t_sol_us"] * 60e12 / envelope["peak_flops"]["fp32_vector"]
        assert bound["t_sol_us"] < bound["t_sol_measured_us"]
        assert bound["t_sol_measured_us"] <= max(by_memory, by_vector) * 1.000001
    assert {e["gap"]["launch_floor_us"] for e in evaluations} == {floor["launch_floor_us"]["value"]}
    assert all("latency_bound" in e["flags"] for e in evaluations)
    assert {e["bound"]["t_sol_measured_us"] for e in elsewhere} == {None}
    assert {e["gap"]["launch_floor_us"] for e in elsewhere} == {None}


def test_a_damaged_file_is_told_of_and_a_second_calibration_replaces_it(make_cli: Any) -> None:
    cli = make_cli()
    cli.run(*_ANVIL)
    (path,) = _kept(cli)
    path.write_text(path.read_text()[:100])

    shown = cli.run("calibrate", "--device", "anvil", "--show")
    again = cli.run(*_ANVIL)

    assert shown.code == 5
    assert f"the calibration {path} is not used: not valid JSON" in shown.err
    assert again.code == 0
    assert cli.run("calibrate", "--device", "anvil", "--show").code == 0


def test_figures_that_were_not_begun_are_told_of(cli: Any) -> None:
    ran = cli.run("calibrate", "--device", "anvil", "--minutes", "0.001")

    assert ran.code == 0
    assert ran.err.splitlines()[0] == "12 figures not begun: give it more --minutes"


def test_nothing_kept_is_one_error_and_one_hint(cli: Any) -> None:
    ran = cli.run("calibrate", "--device", "anvil", "--show")

    error, hint = ran.err.splitlines()
    assert (ran.code, ran.out) == (5, "")
    assert error.startswith("error: no calibration is kept for 'anvil:0', Acme Anvil 2, with ")
    assert hint == "hint: atrex-eval calibrate --device anvil:0"


@pytest.mark.parametrize(
    ("device", "code", "error"),
    [
        ("anvil:7", 4, "device 'anvil:7' is not available here: there is only anvil:0"),
        ("nonsense", 2, "no device is named 'nonsense'"),
        ("virtual:av2", 4, "device 'virtual:av2' never gives a time"),
    ],
    ids=["missing", "unknown", "virtual"],
)
def test_a_device_that_cannot_be_measured(
    shared_cli: Any, device: str, code: int, error: str
) -> None:
    ran = shared_cli.run("calibrate", "--device", device)

    lines = ran.err.splitlines()
    assert (ran.code, ran.out, len(lines)) == (code, "", 2)
    assert lines[0] == f"error: {error}"
    assert lines[1].startswith("hint: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_calibration_keeps_nothing_and_leaves_nothing(cli: Any, number: int) -> None:
    process = cli.start("calibrate", "--device", "anvil", "--minutes", "5")
    deadline = time.monotonic() + 60
    while not any("calibration.main" in command for command in cli.processes().values()):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    os.kill(process.pid, number)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert err.decode().splitlines() == [
        "error: interrupted",
        "hint: nothing was kept of it; an earlier calibration is as it was",
    ]
    assert _kept(cli) == []
    assert cli.leftovers() == ({}, [])


def test_the_processor_reports_its_measured_profile(cli: Any) -> None:
    ran = cli.run("calibrate", "--device", "cpu", "--minutes", "0.05", "--format", "json")

    assert ran.code == 0, ran.err
    found = ran.document["calibration"]
    assert (found["profile"], found["ceiling"]) == ("host", "measured")
    shares = {r["path"]: r["share_of_profile"] for r in found["products"]}
    assert set(shares) >= {"fp32_vector", "bf16_matrix"}
    assert set(shares.values()) == {1.0}
