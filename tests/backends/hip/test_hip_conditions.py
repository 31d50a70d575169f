"""What AMD SMI says of a GPU, against bindings that answer as they are told."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from atrex_accelerator_common.sharing import UNLISTED
from atrex_accelerator_hip import conditions
from atrex_accelerator_hip.conditions import Reader, throttle_reasons

from atrex_core import Conditions

BUS_ID = "0000:c1:00.0"
NOT_SUPPORTED, IO, NO_PERMISSION = 2, 12, 10
TEXTS = {
    NOT_SUPPORTED: "AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported",
    IO: "AMDSMI_STATUS_IO - I/O Error",
    NO_PERMISSION: "AMDSMI_STATUS_NO_PERM - Permission Denied",
}
COUNTERS = (
    *("ppt_residency_acc", "socket_thm_residency_acc", "hbm_thm_residency_acc"),
    *("vr_thm_residency_acc", "prochot_residency_acc"),
)


class FakeSmi:
    """The functions of `amdsmi` that are used, on one Instinct that is hard at work."""

    class AmdSmiLibraryException(Exception):
        def __init__(self, code: int) -> None:
            super().__init__(f"Error code:\n\t{code}")
            self.code = code

        def get_error_code(self) -> int:
            return self.code

        def get_error_info(self) -> str:
            return TEXTS[self.code]

    AmdSmiClkType = SimpleNamespace(GFX="core", MEM="memory")
    AmdSmiTemperatureType = SimpleNamespace(JUNCTION="junction")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="now")

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failing: dict[str, int] = {}
        self.missing: set[str] = set()
        self.hanging: threading.Event | None = None
        self.metrics: dict[str, Any] = {
            "indep_throttle_status": "N/A",
            **dict.fromkeys(COUNTERS, 100),
        }
        self.answers: dict[str, Callable[..., Any]] = {
            "clock_info": lambda kind: {"clk": {"core": 2100, "memory": 1300}[kind]},
            "gpu_perf_level": lambda: "AMDSMI_DEV_PERF_LEVEL_AUTO",
            "power_info": lambda: {
                "current_socket_power": 412,
                "average_socket_power": "N/A",
            },
            "power_cap_info": lambda: {"power_cap": 750_000_000},
            "temp_metric": lambda kind, metric: {("junction", "now"): 51}[kind, metric],
            "gpu_activity": lambda: {"gfx_activity": 87},
            "gpu_metrics_info": lambda: dict(self.metrics),
            "gpu_process_list": lambda: [{"pid": 11}, {"pid": 12}],
        }

    def amdsmi_init(self) -> None:
        self._check("init")

    def amdsmi_get_processor_handle_from_bdf(self, bus_id: str) -> str:
        self._check("handle")
        return f"handle of {bus_id}"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        short = name.removeprefix("amdsmi_get_")
        if short == name or short in self.__dict__["missing"]:
            raise AttributeError(name)

        def call(handle: str, *arguments: Any) -> Any:
            assert handle == f"handle of {BUS_ID}"
            self._check(short)
            return self.answers[short](*arguments)

        return call

    def _check(self, name: str) -> None:
        self.asked.append(name)
        if self.hanging is not None:
            self.hanging.wait()
        if name in self.failing:
            raise self.AmdSmiLibraryException(self.failing[name])


@pytest.fixture
def smi() -> Iterator[FakeSmi]:
    smi = FakeSmi()
    yield smi
    if smi.hanging is not None:
        smi.hanging.set()


def nobody(listed: Collection[int]) -> tuple[int | None, str | None]:
    assert set(listed) == {11, 12}
    return 0, None


def reader(smi: FakeSmi, **changes: Any) -> Reader:
    return Reader(BUS_ID, **{"load": lambda: smi, "others": nobody, **changes})


def test_every_figure_comes_in_its_unit(smi: FakeSmi) -> None:
    watch = reader(smi)
    watch.read()

    assert watch.read() == Conditions(
        clock_mhz=2100.0,
        memory_clock_mhz=1300.0,
        performance_state="AUTO",
        throttle_reasons=(),
        power_w=412.0,
        power_limit_w=750.0,
        temperature_c=51.0,
        utilization_percent=87.0,
        other_processes=0,
    )


def test_nothing_is_ever_set_and_the_library_is_started_once(smi: FakeSmi) -> None:
    watch = reader(smi)

    watch.read()
    watch.read()

    assert smi.asked.count("init") == 1
    assert set(smi.asked) - {"init", "handle"} <= set(smi.answers)


@pytest.mark.parametrize(
    ("grown", "expected"),
    [
        ([], []),
        (["ppt_residency_acc"], ["power_cap"]),
        (["socket_thm_residency_acc", "hbm_thm_residency_acc"], ["thermal"]),
        (["vr_thm_residency_acc", "ppt_residency_acc"], ["power_cap", "hardware_thermal"]),
        (["prochot_residency_acc"], ["hardware_thermal"]),
    ],
)
def test_counters_that_went_up_since_the_last_reading_are_reasons(
    smi: FakeSmi, grown: list[str], expected: list[str]
) -> None:
    watch = reader(smi)
    first = watch.read()
    for name in grown:
        smi.metrics[name] += 7
    second, third = watch.read(), watch.read()

    assert (first.throttle_reasons, first.reason) == (None, conditions._FIRST)
    assert [str(reason) for reason in second.throttle_reasons or ()] == expected
    assert third.throttle_reasons == ()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, []),
        (1 << 0, ["power_cap"]),
        (1 << 7 | 1 << 22, ["power_cap", "hardware"]),
        (1 << 36, ["thermal"]),
        (1 << 38 | 1 << 47, ["hardware_thermal"]),
        (1 << 57, ["other"]),
        (True, ["other"]),
        (False, []),
    ],
)
def test_a_status_of_the_moment_is_put_in_words(
    smi: FakeSmi, status: int, expected: list[str]
) -> None:
    smi.metrics["indep_throttle_status"] = status

    assert [str(reason) for reason in throttle_reasons(status)] == expected
    assert reader(smi).read().throttle_reasons == throttle_reasons(status)


def test_a_part_that_counts_nothing_is_said(smi: FakeSmi) -> None:
    smi.metrics = dict.fromkeys(smi.metrics, "N/A")

    found = reader(smi).read()

    assert (found.throttle_reasons, found.reason) == (
        None,
        "throttle_reasons: this GPU does not tell",
    )


def test_what_is_not_supported_or_permitted_is_none_and_said(smi: FakeSmi) -> None:
    smi.failing = {
        "power_info": NOT_SUPPORTED,
        "gpu_activity": NOT_SUPPORTED,
        "gpu_process_list": NO_PERMISSION,
    }
    smi.missing = {"gpu_perf_level"}
    smi.metrics["indep_throttle_status"] = 0

    found = reader(smi).read()

    assert (found.power_w, found.utilization_percent) == (None, None)
    assert (found.performance_state, found.other_processes) == (None, None)
    assert (found.clock_mhz, found.temperature_c) == (2100.0, 51.0)
    assert found.reason == (
        "performance_state: this amdsmi does not ask for it; "
        f"power_w, utilization_percent: {TEXTS[NOT_SUPPORTED]}; "
        f"other_processes: {TEXTS[NO_PERMISSION]}"
    )


def test_power_that_is_only_averaged_is_taken(smi: FakeSmi) -> None:
    smi.answers["power_info"] = lambda: {
        "current_socket_power": "N/A",
        "average_socket_power": 220,
    }

    assert reader(smi).read().power_w == 220.0


def test_company_that_cannot_be_counted_is_none_and_said(smi: FakeSmi) -> None:
    smi.metrics["indep_throttle_status"] = 0

    found = reader(smi, others=lambda _: (None, UNLISTED)).read()

    assert (found.other_processes, found.reason) == (None, UNLISTED)


@pytest.mark.parametrize("step", ["init", "handle", "clock_info"])
def test_after_one_failure_nothing_is_asked_again(smi: FakeSmi, step: str) -> None:
    smi.failing[step] = IO
    watch = reader(smi)

    first = watch.read()
    asked = list(smi.asked)
    smi.failing.clear()

    assert first == Conditions(reason=f"AMD SMI fails: Error code: {IO}")
    assert watch.read() == first
    assert smi.asked == asked


def test_a_driver_that_hangs_costs_its_limit_once(smi: FakeSmi) -> None:
    smi.hanging = threading.Event()
    watch = reader(smi, first_limit_s=0.05)

    first, second = watch.read(), watch.read()

    assert first == second == Conditions(reason="the AMD driver did not answer within 0.05 s")


def test_missing_bindings_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> Any:
        raise ModuleNotFoundError("No module named 'amdsmi'")

    monkeypatch.setattr(importlib, "import_module", missing)

    assert Reader(BUS_ID).read() == Conditions(
        reason="clocks and power need amdsmi, in the version of the installed ROCm: "
        "No module named 'amdsmi'; pip install 'atrex-eval[hip]'"
    )


def test_bindings_without_their_library_are_a_reason_and_print_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def half(_name: str) -> Any:
        print("Unable to find libamd_smi.so library")
        raise KeyError("libamd_smi.so")

    monkeypatch.setattr(importlib, "import_module", half)

    found = Reader(BUS_ID).read()

    assert "AMD SMI's library is not installed ('libamd_smi.so')" in str(found.reason)
    assert capsys.readouterr().out == ""


def test_who_has_the_kernel_driver_open_is_one_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Path] = []

    def count(listed: Collection[int], *, opened: Path) -> tuple[int | None, str | None]:
        asked.append(opened)
        return len(listed), None

    monkeypatch.setattr(conditions, "count_others", count)

    assert conditions.count_company({11, 12}) == (2, None)
    assert asked == [Path("/dev/kfd")]
