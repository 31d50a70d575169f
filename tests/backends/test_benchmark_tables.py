"""What the benchmarks of accuracy and speed read and conclude, on samples; no device is needed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NAMES = ("empty", "add 1 MiB x 3")

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream",'
    '"Block Size","Grid Size","Device","CC"'
)


def launch(number: int, name: str) -> str:
    return (
        f'"{number}","108","python3.12","127.0.0.1","{name}","1","7",'
        f'"(256, 1, 1)","(1, 1, 1)","0","9.0"'
    )


def wide(unit: str, *kernels: tuple[str, str]) -> str:
    """Return what `--page raw` prints, with what the tool says around it."""
    lines = [
        "==PROF== Connected to process 108 (/usr/bin/python3.12)",
        f'{HEADER},"gpu__time_duration.sum"',
        f'"","","","","","","","","","","","{unit}"',
        *(f'{launch(i, name)},"{value}"' for i, (name, value) in enumerate(kernels)),
        "==PROF== Disconnected from process 108",
    ]
    return "\n".join(lines)


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what imports a benchmark as its own process would."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


@pytest.fixture
def ncu(benchmark: Any) -> Any:
    return benchmark("nsight_compute")


# -- Nsight Compute's table ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "value", "us"),
    [
        ("nsecond", "1,440", 1.44),
        ("ns", "864", 0.864),
        ("us", "12.5", 12.5),
        ("usecond", "12.5", 12.5),
        ("msecond", "2.25", 2250.0),
        ("second", "0.5", 5e5),
    ],
)
def test_durations_are_read_in_the_tables_unit(ncu: Any, unit: str, value: str, us: float) -> None:
    found = ncu.durations(wide(unit, ("saxpy(int, float *)", value)))

    assert found == [("saxpy", pytest.approx(us))]


def test_a_row_for_each_metric_is_read_too(ncu: Any) -> None:
    text = "\n".join(
        [
            f'{HEADER},"Section Name","Metric Name","Metric Unit","Metric Value"',
            f'{launch(0, "a")},"Command line profiler metrics","launch__waves","","5"',
            f'{launch(0, "a")},"Command line profiler metrics","gpu__time_duration.sum","us","1.5"',
            f'{launch(1, "b")},"Command line profiler metrics","gpu__time_duration.sum","ms","2"',
        ]
    )

    assert ncu.durations(text) == [("a", 1.5), ("b", 2000.0)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("==WARNING== No kernels were profiled.", "it printed no table"),
        (wide("cycle", ("a", "5")), "in 'cycle', which is no unit of time"),
        (wide("ns", ("a", "n/a")), "'n/a', which is no number"),
        (f"{HEADER}\n{launch(0, 'a')}", "no gpu__time_duration.sum"),
    ],
    ids=["no table", "unit", "number", "metric"],
)
def test_a_table_that_tells_no_durations_is_a_reason(ncu: Any, text: str, reason: str) -> None:
    with pytest.raises(ncu.NoDurations, match=reason):
        ncu.durations(text)


def test_a_call_is_what_lies_between_its_markers(ncu: Any) -> None:
    rounds = [
        [("void at::native::reduce_kernel<512, 1>", 40.0), ("call_begins_0", 1.0), ("nothing", us)]
        + [("call_ends", 1.0), ("call_begins_1", 1.0)]
        + [("add", 3 * us)] * 3
        + [("call_ends", 1.0)]
        for us in (2.0, 1.0, 9.0)
    ]
    launched = [("warm up", 5.0), *(kernel for found in rounds for kernel in found)]

    found = ncu.by_call([*launched, ("call_begins_1", 1.0)], NAMES)  # and then it was stopped

    assert found == {
        "empty": ncu.Duration(us=2.0, launches=1, calls=3),
        "add 1 MiB x 3": ncu.Duration(us=18.0, launches=3, calls=3),
    }


def tool(folder: Path, body: str) -> str:
    """Return the path of a program that stands in for the profiler."""
    path = folder / "ncu"
    path.write_text(f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\n{body}")
    path.chmod(0o755)
    return str(path)


def test_the_profiler_is_told_to_leave_clocks_and_caches_alone(ncu: Any, tmp_path: Path) -> None:
    table = wide("ns", ("call_begins_0", "900"), ("nothing", "1,100"), ("call_ends", "900"))
    body = f"""
log = Path(sys.argv[sys.argv.index("--log-file") + 1])
log.write_text({table!r})
Path({str(tmp_path / "told")!r}).write_text(" ".join(sys.argv[1:]))
"""
    found = ncu.measure(tool(tmp_path, body), ["python", "x.py"], NAMES, limit_s=30)
    told = (tmp_path / "told").read_text()

    assert found == {"empty": ncu.Duration(us=pytest.approx(1.1), launches=1, calls=1)}
    assert "--clock-control none --cache-control none" in told
    assert "--profile-from-start off" in told
    assert told.endswith(" python x.py")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('print("==ERROR== ERR_NVGPUCTRPERM"); sys.exit(1)', "exit 1: ==ERROR== ERR_NVGPUCTRPERM"),
        ('sys.exit("out of memory")', "exit 1: out of memory"),
        ("import time; time.sleep(60)", "not through after 0.5 s"),
    ],
    ids=["permission", "crash", "slow"],
)
def test_a_profiler_that_fails_is_a_reason(
    ncu: Any, tmp_path: Path, body: str, reason: str
) -> None:
    with pytest.raises(ncu.NoDurations, match=reason):
        ncu.measure(tool(tmp_path, body), ["python", "x.py"], NAMES, limit_s=0.5)


# -- accuracy --------------------------------------------------------------------------------------


def ours(us: float, **more: Any) -> dict[str, Any]:
    return {"us": us, "iqr": 0.004, "n": 64, "method": "records", "reason": None, **more}


@pytest.mark.parametrize(
    ("name", "times_us", "records_us", "ncu_us", "verdict"),
    [
        ("empty", [0.60, 0.60, 0.60], 0.85, 1.55, ""),
        ("empty", [0.60, 0.60, 0.60], 0.95, 1.55, "WRONG: records"),
        ("empty", [0.60, 0.60, 0.60], 0.85, 1.65, "WRONG: ncu"),
        ("spin 1 ms", [1000.0, 1000.0, 1000.0], 1019.0, 1049.0, ""),
        ("spin 1 ms", [1000.0, 1000.0, 1000.0], 1021.0, 1060.0, "WRONG: records, ncu"),
        ("spin 1 ms", [1000.0, 1000.0, 1024.0], 1000.0, 1000.0, "WRONG: cv"),
        ("spin 5 us", [5.0, 5.1, 5.2], 5.1, 5.1, ""),
        ("spin 5 us", [5.0, 5.2, 5.4], 5.2, 5.2, "WRONG: cv"),
        ("spin 5 us", [5.0, 5.0, 5.0], 5.0, None, "WRONG: ncu missing"),
    ],
)
def test_a_claim_that_does_not_hold_is_named(
    benchmark: Any,
    ncu: Any,
    capsys: pytest.CaptureFixture[str],
    name: str,
    times_us: list[float],
    records_us: float,
    ncu_us: float | None,
    verdict: str,
) -> None:
    seen = {} if ncu_us is None else {name: ncu.Duration(us=ncu_us, launches=1, calls=5)}
    runs = [{name: ours(us)} for us in times_us]

    bad = benchmark("timer_accuracy").print_table([name], runs, {name: {"us": records_us}}, seen)
    row = capsys.readouterr().out.splitlines()[1]

    assert bad == bool(verdict)
    assert row.endswith(verdict or " 64")
    assert "0.40%" in row


def test_gaps_between_launches_are_no_fault_of_nsight_computes(
    benchmark: Any, ncu: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "add 1 MiB x 3"
    seen = {name: ncu.Duration(us=9.0, launches=4, calls=5)}

    bad = benchmark("timer_accuracy").print_table(
        [name], [{name: ours(14.0)}], {name: {"us": 14.1}}, seen
    )
    row = capsys.readouterr().out.splitlines()[1]

    assert bad == 0
    assert "9.00" in row
    assert row.endswith("(ncu saw 4 launches)")


def test_a_kernel_that_one_process_could_not_time_is_wrong(
    benchmark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [{"empty": ours(0.6)}, {"empty": {"us": None, "reason": "records are missing"}}]

    bad = benchmark("timer_accuracy").print_table(["empty"], runs, {"empty": {"us": 0.6}}, None)

    assert bad == 1
    assert "WRONG: records are missing" in capsys.readouterr().out


def test_the_spread_within_a_process_is_that_of_the_middle_half(benchmark: Any) -> None:
    interquartile = benchmark("timer_accuracy").interquartile

    assert interquartile([9.0, 10.0, 11.0] * 30 + [500.0]) == pytest.approx(0.2)
    assert interquartile([1.0, 2.0, 3.0]) is None


# -- speed -----------------------------------------------------------------------------------------


def evaluation(seconds: float, t_sol_us: float = 5.0, **stages: float) -> dict[str, Any]:
    return {
        "problem": "rms_norm",
        "workload": "2500x1024",
        "device": "cuda:0",
        "device_name": "a GPU",
        "environment": {"torch": "2.13"},
        "protocol": "strict",
        "scale": "full",
        "isolation": "process",
        "request": {"cases": "5"},
        "outcome": "passed",
        "bound": {"t_sol_us": t_sol_us},
        "seconds": seconds,
        "stage_seconds": stages,
        "compile_seconds": 0.7,
    }


def ran(benchmark: Any, *evaluations: Any, wall_s: float = 10.0, **more: Any) -> Any:
    fields = {"problem": "rms_norm", "exit_code": 0, "wall_s": wall_s, **more}
    document = fields.pop("document", {})
    return benchmark("evaluation_speed").Run(
        **fields, document={"evaluations": list(evaluations), **document}
    )


def test_what_a_workload_costs_leaves_out_starting_and_compiling(benchmark: Any) -> None:
    short = evaluation(1.0, start=0.3, compile=0.4, wait=0.1, hold=0.1, evidence=0.1)
    found = ran(benchmark, short, evaluation(9.0, t_sol_us=1000.0, hold=9.0))

    claims = {c.what: c.found_s for c in benchmark("evaluation_speed").claims(found)}

    assert claims == {
        "rms_norm, start to table": 10.0,
        "a short workload, amortised": pytest.approx(0.2),
        "its evidence of authenticity": 0.1,
    }


def test_without_stages_only_compilation_is_left_out(benchmark: Any) -> None:
    found = ran(benchmark, evaluation(0.8), problem="silu*")

    claims = {c.what: c.found_s for c in benchmark("evaluation_speed").claims(found)}

    assert claims == {"a short workload, amortised": pytest.approx(0.1)}


@pytest.mark.parametrize(
    ("seconds", "more", "holds"),
    [
        (0.14, {}, True),
        (0.16, {}, False),
        (0.14, {"wall_s": 15.1}, False),
        (0.14, {"exit_code": 1}, False),
    ],
    ids=["all hold", "a slow workload", "a slow run", "a failed run"],
)
def test_a_missed_limit_is_said(
    benchmark: Any,
    capsys: pytest.CaptureFixture[str],
    seconds: float,
    more: dict[str, Any],
    holds: bool,
) -> None:
    device = {"device": "cuda:0", "startup_seconds": {"open": 0.4}, "busy_s": 8}
    cost = {"wall_s": 9.5, "devices": [device]}
    found = ran(benchmark, evaluation(seconds, hold=0.1), document={"cost": cost}, **more)

    assert benchmark("evaluation_speed").print_run(found) is holds
    assert "cuda:0: startup_seconds.open 0.4, busy_s 8" in capsys.readouterr().out
