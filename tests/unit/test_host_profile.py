"""The roof of the machine itself: measured, kept, and never below what anybody reaches."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from time import perf_counter

import atrex_profile_host
import pytest
import torch
from atrex_profile_host import calibration, machine, record, stopwatch
from atrex_profile_host.record import Calibration
from atrex_profile_host.stopwatch import Stint

from atrex_core import ArithmeticPath, CalibratedProfile, Ceiling, Confidence, Device

HOST = Device(id="cpu", accelerator="cpu", vendor="host", name="Some CPU", arch="x86_64")


def host_profile() -> CalibratedProfile:
    (profile,) = atrex_profile_host.atrex_hardware_profiles()
    return profile


def calibrated(**changes: object) -> Calibration:
    facts: dict[str, object] = {
        "rates": {"fp32": 100e9, "bf16": 150e9, "fp16": 2e9, "fp64": 40e9, "update": 20e9},
        "typical": {"fp32": 90e9},
        "measured_at": "2026-01-02T03:04:05+00:00",
        "threads": 2,
        "cores": 2,
        "virtual": False,
        "array_bytes": 100 * 2**20,
        "cache_bytes": 32 * 2**20,
        "cpu_share": 0.99,
    }
    return Calibration(**{**facts, **changes})  # type: ignore[arg-type]


def test_host_profile_is_for_the_real_cpu_alone() -> None:
    profile = host_profile()

    assert profile.accepts(HOST)
    assert not profile.accepts(
        Device(
            id="virtual:sm_90", accelerator="cpu", vendor="x", name="x", arch="sm_90", virtual=True
        )
    )
    assert not profile.accepts(
        Device(id="cuda:0", accelerator="cuda", vendor="nvidia", name="NVIDIA H200", arch="sm_90")
    )


def test_measuring_gives_an_envelope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATREX_CACHE_DIR", str(tmp_path))
    threads = torch.get_num_threads()
    profile = host_profile().measure(HOST)
    peaks = {path: figure.value for path, figure in profile.peak_flops.items()}

    assert torch.get_num_threads() == threads
    assert profile.ceiling is Ceiling.MEASURED
    assert set(peaks) == set(ArithmeticPath)
    # One operation a cycle and core is slower than any machine that runs torch.
    assert peaks[ArithmeticPath.FP32_VECTOR] > 1e9
    assert peaks[ArithmeticPath.BF16_MATRIX] >= peaks[ArithmeticPath.TF32_MATRIX]
    assert peaks[ArithmeticPath.FP16_MATRIX] >= peaks[ArithmeticPath.TF32_MATRIX]
    assert 1e9 < profile.bandwidth_bytes_per_s.value < 20e12
    assert len(list((tmp_path / "calibration").iterdir())) == 1


def test_torch_streams_stay_below_the_measured_roof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATREX_CACHE_DIR", str(tmp_path))
    roof = host_profile().measure(HOST)
    assert roof.last_level_cache_bytes is not None
    nbytes = 4 * int(roof.last_level_cache_bytes.value)
    source = torch.ones(nbytes // 4)
    target = torch.ones(nbytes // 4)
    seconds = []
    for _ in range(7):
        start_s = perf_counter()
        target.copy_(source)
        seconds.append(perf_counter() - start_s)
    reached = 2 * nbytes / sorted(seconds)[3]

    assert 0.01 < reached / roof.bandwidth_bytes_per_s.value <= 1


def test_a_calm_calibration_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATREX_CACHE_DIR", str(tmp_path))
    here = machine.describe(str(torch.__version__))
    record.save(tmp_path / "calibration", here, calibrated())
    profile = host_profile().measure(HOST)

    assert profile.bandwidth_bytes_per_s.value == 20e9
    assert profile.bandwidth_bytes_per_s.confidence is Confidence.HIGH
    assert "2026-01-02T03:04:05+00:00" in profile.bandwidth_bytes_per_s.source


def test_a_busy_calibration_is_measured_again_and_only_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATREX_CACHE_DIR", str(tmp_path))
    here = machine.describe(str(torch.__version__))
    impossible = {"fp32": 1.0, "update": 1e18}
    busy = calibrated(rates=impossible, cpu_share=0.4)
    record.save(tmp_path / "calibration", here, busy)
    profile = host_profile().measure(HOST)

    assert profile.bandwidth_bytes_per_s.value == 1e18
    assert profile.peak_flops[ArithmeticPath.FP32_VECTOR].value > 1e9
    kept = record.load(tmp_path / "calibration", here)
    assert kept is not None
    assert kept.runs == 2


def test_enough_busy_runs_are_believed() -> None:
    assert not calibrated(cpu_share=0.4, runs=4).is_final
    assert calibrated(cpu_share=0.4, runs=5).is_final


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": 1}',
        '{"schema": 99}',
        "\udcff",
    ],
    ids=["empty", "cut", "list", "null", "no fields", "newer", "not text"],
)
def test_a_corrupt_cache_is_ignored(tmp_path: Path, text: str) -> None:
    here = machine.describe("1.0")
    (tmp_path / f"{here.identity}.json").write_bytes(text.encode(errors="surrogateescape"))

    assert record.load(tmp_path, here) is None


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("machine", "cpu_model"), "another"),
        (("calibration", "rates"), {"fp32": -1.0}),
        (("calibration", "rates"), {"fp32": float("nan")}),
        (("calibration", "rates"), {}),
        (("calibration", "threads"), None),
    ],
    ids=["foreign", "negative", "nan", "no rates", "wrong type"],
)
def test_a_cache_that_does_not_fit_is_ignored(
    tmp_path: Path, place: tuple[str, str], value: object
) -> None:
    here = machine.describe("1.0")
    record.save(tmp_path, here, calibrated())
    path = tmp_path / f"{here.identity}.json"
    document = json.loads(path.read_text())
    document[place[0]][place[1]] = value
    path.write_text(json.dumps(document))

    assert record.load(tmp_path, here) is None


def test_a_cache_round_trip_keeps_everything(tmp_path: Path) -> None:
    here = machine.describe("1.0")
    record.save(tmp_path / "new" / "folder", here, calibrated(runs=3))

    assert record.load(tmp_path / "new" / "folder", here) == calibrated(runs=3)
    assert [p.name for p in (tmp_path / "new" / "folder").iterdir()] == [f"{here.identity}.json"]


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    here = machine.describe("1.0")
    record.save(blocker / "calibration", here, calibrated())
    record.save(None, here, calibrated())

    assert record.load(blocker / "calibration", here) is None
    assert record.load(None, here) is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"ATREX_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}, "/a/calibration"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/atrex-eval/calibration"),
        ({"XDG_CACHE_HOME": "b"}, "{home}/.cache/atrex-eval/calibration"),
        ({}, "{home}/.cache/atrex-eval/calibration"),
    ],
    ids=["override", "xdg", "relative xdg", "home"],
)
def test_where_the_cache_is(environment: dict[str, str], expected: str) -> None:
    assert record.cache_folder(environment) == Path(expected.format(home=Path.home()))


def test_identity_tells_machines_apart() -> None:
    here = machine.describe("2.9")

    assert here.usable_cpus >= 1
    assert here.memory_bytes > 2**28
    assert machine.describe("2.9").identity == here.identity
    assert machine.describe("3.0").identity != here.identity


def test_usable_cpus_are_those_of_the_affinity_mask() -> None:
    cpus = machine.usable_cpus()

    assert set(cpus.order) <= os.sched_getaffinity(0)
    assert 1 <= cpus.cores <= len(cpus.order)
    assert machine.last_level_cache_bytes(cpus) >= 2**18


def test_each_16_bit_peak_is_its_own_or_fp32s_whichever_is_higher() -> None:
    profile = calibration.to_profile(calibrated(), HOST)
    peaks = {path: figure.value for path, figure in profile.peak_flops.items()}

    assert peaks == {
        ArithmeticPath.FP32_VECTOR: 100e9,
        ArithmeticPath.TF32_MATRIX: 100e9,
        ArithmeticPath.BF16_MATRIX: 150e9,
        ArithmeticPath.FP16_MATRIX: 100e9,
        ArithmeticPath.FP8_MATRIX: 150e9,
        ArithmeticPath.FP6_MATRIX: 150e9,
        ArithmeticPath.FP4_MATRIX: 150e9,
        ArithmeticPath.INT8_MATRIX: 150e9,
        ArithmeticPath.FP64_VECTOR: 50e9,
        ArithmeticPath.FP64_MATRIX: 50e9,
    }


@pytest.mark.parametrize(
    ("virtual", "cores", "alone", "expected"),
    [
        (False, 2, 19e9, 20e9),
        (True, 2, 19e9, 38e9),
        (True, 2, 9e9, 20e9),
        (True, 16, 19e9, 20e9),
        (True, 1, 19e9, 20e9),
    ],
    ids=["bare metal", "placed apart", "alone is slow", "many share", "one CPU"],
)
def test_cpus_of_a_virtual_machine_may_be_placed_apart(
    virtual: bool, cores: int, alone: float, expected: float
) -> None:
    rates = {"fp32": 1e9, "update": 20e9, "update_alone": alone}
    found = calibration.to_profile(calibrated(virtual=virtual, cores=cores, rates=rates), HOST)

    assert found.bandwidth_bytes_per_s.value == expected


def test_a_busy_machine_is_said_in_the_notes() -> None:
    profile = calibration.to_profile(calibrated(cpu_share=0.5), HOST)

    assert profile.bandwidth_bytes_per_s.confidence is Confidence.LOW
    assert any("had a CPU for 50% of the time" in note for note in profile.notes)


# -- its stopwatch -----------------------------------------------------------------------------


def stints(amount: float, *spans_ms: tuple[float, float]) -> list[Stint]:
    return [Stint(start_s=a / 1e3, end_s=b / 1e3, amount=amount) for a, b in spans_ms]


def test_joint_rate_is_of_the_best_window_over_all_threads() -> None:
    first = stints(1.0, (0, 1), (1, 2), (2, 3), (3, 4))
    second = stints(1.0, (2, 3), (3, 4))

    assert stopwatch.joint_rate([first, second]) == pytest.approx(2000.0)


def test_joint_rate_does_not_add_what_was_not_simultaneous() -> None:
    first = stints(1.0, (0, 1), (1, 2))
    second = stints(1.0, (4, 5), (5, 6))

    assert stopwatch.joint_rate([first, second]) == pytest.approx(1000.0)


def test_joint_rate_spreads_a_repetition_over_its_time() -> None:
    assert stopwatch.joint_rate([stints(10.0, (0, 10))]) == pytest.approx(1000.0)


def test_summed_rate_takes_each_threads_best() -> None:
    threads = [stints(1.0, (0, 1), (1, 3)), stints(1.0, (0, 4), (4, 6))]

    assert stopwatch.summed_rate(threads, 2) == pytest.approx(1000.0 + 500.0)
    assert stopwatch.summed_rate(threads[:1], 2) == pytest.approx(2000.0)


class Spin:
    """Ten units of work in at least a fifth of a millisecond."""

    figure = "spin"
    is_shared = True

    def __init__(self, threads: int, *, fails: bool = False) -> None:
        self.threads = threads
        self.fails = fails
        self.seen: set[int] = set()

    def prepare(self, thread: int) -> stopwatch.Operation | None:
        if self.fails:
            raise MemoryError("no memory for the arrays")

        def work() -> float:
            self.seen.add(threading.get_ident())
            end_s = perf_counter() + 2e-4
            while perf_counter() < end_s:
                pass
            return 10.0

        return work


def test_run_gives_each_load_its_threads() -> None:
    for _ in range(20):  # on a busy machine a thread may get no CPU in a slice
        both, one = Spin(2), Spin(1)
        one.figure = "one"
        outcome = stopwatch.run([both, one], (0, 0), stop_s=0.0, start_thread=lambda: None)
        if len(both.seen) == 2:
            break

    assert (len(both.seen), len(one.seen)) == (2, 1)
    assert {figure: len(rates) for figure, rates in outcome.rounds.items()} == {
        "spin": 1,
        "one": 1,
    }
    assert 1e3 < outcome.rounds["one"][0] <= 50e3


def test_run_passes_a_threads_failure_on() -> None:
    with pytest.raises(RuntimeError) as caught:
        stopwatch.run([Spin(2, fails=True)], (0, 0), stop_s=0.0, start_thread=lambda: None)

    assert str(caught.value.__cause__) == "no memory for the arrays"
