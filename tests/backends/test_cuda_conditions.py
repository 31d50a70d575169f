"""What NVML says of a GPU, against bindings that answer as they are told."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from atrex_accelerator_cuda import conditions, sharing
from atrex_accelerator_cuda.conditions import Reader, throttle_reasons

from atrex_core import Conditions, ThrottleReason

UUID = "GPU-8f6b0000-aaaa"
NOT_SUPPORTED, NO_PERMISSION, FUNCTION_NOT_FOUND, GPU_IS_LOST = 3, 4, 13, 15
TEXTS = {
    NOT_SUPPORTED: "Not Supported",
    NO_PERMISSION: "Insufficient Permissions",
    FUNCTION_NOT_FOUND: "Function Not Found",
    GPU_IS_LOST: "GPU is lost",
}


class FakeNvml:
    """The functions of `pynvml` that are used, on one GPU that is hard at work."""

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(TEXTS[value])
            self.value = value

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failing: dict[str, int] = {}
        self.hanging: threading.Event | None = None
        self.answers: dict[str, Any] = {
            "ClockInfo": {1: 1980, 2: 3201},
            "PowerUsage": 412_500,
            "EnforcedPowerLimit": 700_000,
            "PerformanceState": 0,
            "Temperature": 51,
            "UtilizationRates": SimpleNamespace(gpu=87, memory=40),
            "CurrentClocksEventReasons": 0x4,
            "CurrentClocksThrottleReasons": 0x8,
            "ComputeRunningProcesses": [SimpleNamespace(pid=11), SimpleNamespace(pid=12)],
        }

    def nvmlInit(self) -> None:
        self._check("Init")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self._check("HandleByUUID")
        return f"handle of {uuid}"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        short = name.removeprefix("nvmlDeviceGet")
        if short == name:
            raise AttributeError(name)

        def call(handle: str, *arguments: int) -> Any:
            assert handle == f"handle of {UUID}"
            self._check(short)
            answer = self.answers[short]
            return answer[arguments[0]] if isinstance(answer, dict) else answer

        return call

    def _check(self, name: str) -> None:
        self.asked.append(name)
        if self.hanging is not None:
            self.hanging.wait()
        if name in self.failing:
            raise self.NVMLError(self.failing[name])


@pytest.fixture
def nvml() -> Iterator[FakeNvml]:
    nvml = FakeNvml()
    yield nvml
    if nvml.hanging is not None:
        nvml.hanging.set()


def nobody(listed: Collection[int]) -> tuple[int | None, str | None]:
    assert set(listed) == {11, 12}
    return 0, None


def reader(nvml: FakeNvml, **changes: Any) -> Reader:
    return Reader(UUID, **{"load": lambda: nvml, "others": nobody, **changes})


# -- NVML ------------------------------------------------------------------------------------------


def test_every_figure_comes_in_its_unit(nvml: FakeNvml) -> None:
    assert reader(nvml).read() == Conditions(
        clock_mhz=1980.0,
        memory_clock_mhz=3201.0,
        performance_state="P0",
        throttle_reasons=(ThrottleReason.POWER_CAP,),
        power_w=412.5,
        power_limit_w=700.0,
        temperature_c=51.0,
        utilization_percent=87.0,
        other_processes=0,
    )


def test_nothing_is_ever_set_and_the_library_is_started_once(nvml: FakeNvml) -> None:
    watch = reader(nvml)

    watch.read()
    watch.read()

    assert nvml.asked.count("Init") == 1
    assert set(nvml.asked) - {"Init", "HandleByUUID"} <= set(nvml.answers)


def test_nothing_is_loaded_before_the_first_reading() -> None:
    def load() -> Any:
        raise AssertionError("too early")

    Reader(UUID, load=load)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (0x0, []),
        (0x1, ["idle"]),
        (0x2, ["clock_setting"]),
        (0x102, ["clock_setting"]),
        (0x4 | 0x20, ["power_cap", "thermal"]),
        (0x8 | 0x40 | 0x80, ["hardware", "hardware_thermal", "power_brake"]),
        (0x10, ["synchronised"]),
        (0x200, ["other"]),
    ],
)
def test_throttle_bits_become_words(mask: int, expected: list[str]) -> None:
    assert [str(reason) for reason in throttle_reasons(mask)] == expected


def test_an_older_driver_is_asked_for_its_reasons_by_their_older_name(nvml: FakeNvml) -> None:
    nvml.failing["CurrentClocksEventReasons"] = FUNCTION_NOT_FOUND

    found = reader(nvml).read()

    assert found.throttle_reasons == (ThrottleReason.HARDWARE,)
    assert found.reason is None


def test_what_is_not_supported_or_permitted_is_none_and_said(nvml: FakeNvml) -> None:
    nvml.failing = {
        "PowerUsage": NOT_SUPPORTED,
        "UtilizationRates": NOT_SUPPORTED,
        "CurrentClocksEventReasons": NO_PERMISSION,
        "ComputeRunningProcesses": NO_PERMISSION,
    }

    found = reader(nvml).read()

    assert (found.power_w, found.utilization_percent) == (None, None)
    assert (found.throttle_reasons, found.other_processes) == (None, None)
    assert (found.clock_mhz, found.temperature_c) == (1980.0, 51.0)
    assert found.reason == (
        "power_w, utilization_percent: Not Supported; "
        "throttle_reasons, other_processes: Insufficient Permissions"
    )


def test_an_unknown_performance_state_is_none(nvml: FakeNvml) -> None:
    nvml.answers["PerformanceState"] = 32

    assert reader(nvml).read().performance_state is None


def test_company_that_cannot_be_counted_is_none_and_said(nvml: FakeNvml) -> None:
    found = reader(nvml, others=lambda _: (None, sharing.UNLISTED)).read()

    assert found.other_processes is None
    assert found.reason == sharing.UNLISTED


@pytest.mark.parametrize("step", ["Init", "HandleByUUID", "ClockInfo"])
def test_after_one_failure_nothing_is_asked_again(nvml: FakeNvml, step: str) -> None:
    nvml.failing[step] = GPU_IS_LOST
    watch = reader(nvml)

    first = watch.read()
    asked = list(nvml.asked)
    nvml.failing.clear()

    assert first == Conditions(reason="NVML fails: GPU is lost")
    assert watch.read() == first
    assert nvml.asked == asked


def test_missing_bindings_are_a_reason() -> None:
    def load() -> Any:
        raise ModuleNotFoundError("No module named 'pynvml'")

    found = Reader(UUID, load=load).read()

    assert found == Conditions(
        reason="clocks and power need nvidia-ml-py: No module named 'pynvml'; "
        "pip install 'atrex-eval[cuda]'"
    )


def test_a_missing_library_is_a_reason(nvml: FakeNvml) -> None:
    def load() -> Any:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    found = Reader(UUID, load=load).read()

    assert found.reason == "NVML fails: libnvidia-ml.so.1: cannot open shared object file"


def test_a_driver_that_hangs_costs_its_limit_once(nvml: FakeNvml) -> None:
    nvml.hanging = threading.Event()
    watch = reader(nvml, first_limit_s=0.05)

    first = watch.read()
    started = time.perf_counter()
    second = watch.read()

    assert first == second == Conditions(reason="the NVIDIA driver did not answer within 0.05 s")
    assert time.perf_counter() - started < 0.05


def test_a_driver_that_hangs_later_has_a_shorter_limit(nvml: FakeNvml) -> None:
    watch = reader(nvml, limit_s=0.02)
    assert watch.read().reason is None

    nvml.hanging = threading.Event()

    assert watch.read().reason == "the NVIDIA driver did not answer within 0.02 s"


def test_the_bindings_are_nvidias(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[str] = []
    monkeypatch.setattr(conditions.importlib, "import_module", named.append)

    conditions.load_nvml()

    assert named == ["pynvml"]


# -- who else --------------------------------------------------------------------------------------


class FakeProc:
    """Processes with a parent each; those in `holding` have the driver open."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, pid: int, parent: int, *, name: str = "python", holds: bool = False) -> None:
        folder = self.root / str(pid)
        (folder / "task" / str(pid)).mkdir(parents=True)
        (folder / "fd").mkdir()
        (folder / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0")
        (folder / "task" / str(pid) / "children").write_text("")
        (folder / "fd" / "0").symlink_to("/dev/null")
        if holds:
            (folder / "fd" / "7").symlink_to("/dev/nvidia-uvm")
        above = self.root / str(parent) / "task" / str(parent) / "children"
        if above.exists():
            above.write_text(f"{above.read_text()}{pid} ")


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """Return a referee, 50, below a shell; its fork server, 51, and that one's worker, 52."""
    proc = FakeProc(tmp_path)
    proc.add(1, 0)
    proc.add(40, 1)
    proc.add(50, 40, holds=True)
    proc.add(51, 50)
    proc.add(52, 51, name="a) S 99 (b", holds=True)
    return proc


@pytest.mark.parametrize(
    ("listed", "expected"),
    [({50}, 0), ({50, 52}, 0), ({50, 52, 40}, 1), ({50, 52, 1, 77}, 2)],
)
def test_our_own_processes_are_not_counted(proc: FakeProc, listed: set[int], expected: int) -> None:
    assert sharing.count_others(listed, own=50, proc=proc.root) == (expected, None)


@pytest.mark.parametrize(("listed", "expected"), [({9001, 9002}, 0), ({9001, 9002, 9003}, 1)])
def test_ids_of_another_namespace_are_compared_by_number(
    proc: FakeProc, listed: set[int], expected: int
) -> None:
    assert sharing.count_others(listed, own=50, proc=proc.root) == (expected, None)


def test_a_process_that_ends_meanwhile_is_not_one_of_ours(proc: FakeProc) -> None:
    children = proc.root / "50" / "task" / "50" / "children"
    children.write_text(f"{children.read_text()} 60")
    (proc.root / "52" / "fd" / "7").unlink()

    assert sharing.count_others({9001, 9002}, own=50, proc=proc.root) == (1, None)


def test_a_process_that_may_not_be_looked_into_leaves_the_number_unknown(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    iterdir = Path.iterdir

    def guarded(path: Path) -> Any:
        if path == proc.root / "52" / "fd":
            raise PermissionError(13, "Permission denied")
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", guarded)

    assert sharing.count_others({9001}, own=50, proc=proc.root) == (None, sharing.UNCOUNTED)


def test_an_empty_list_hides_even_ourselves(proc: FakeProc) -> None:
    assert sharing.count_others([], own=50, proc=proc.root) == (None, sharing.UNLISTED)


def test_the_real_process_file_system_knows_this_process() -> None:
    assert sharing.count_others({os.getpid(), os.getppid()}) == (1, None)
    assert sharing.count_others({2**22 + 1}) == (1, None)
