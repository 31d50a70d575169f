"""What a calibration adds up to, and how it is kept on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from atrex_core import (
    ArithmeticPath,
    Ceiling,
    Device,
    DeviceMatch,
    Figure,
    HardwareProfile,
    HarnessError,
)
from atrex_core.calibration import cache
from atrex_core.model.calibration import (
    Calibration,
    DeviceIdentity,
    FloorMethod,
    FloorReading,
    Load,
    Measured,
    ProductReading,
    Regime,
    StreamReading,
)
from atrex_core.referee.main import _envelope, _launch_floor_us

DEVICE = Device(
    id="anvil:0", accelerator="anvil", vendor="acme", name="Anvil 2", arch="av2", driver="7.1"
)
IDENTITY = DeviceIdentity.of(DEVICE, {"device_uuid": "U-1"}, "2.9.0")
PROFILE = HardwareProfile(
    name="acme-anvil-2",
    match=DeviceMatch(vendor="acme", names=("Anvil 2",)),
    peak_flops={ArithmeticPath.FP32_VECTOR: Figure(value=100.0, source="a sheet")},
    bandwidth_bytes_per_s=Figure(value=1000.0, source="a sheet"),
)


def stream(load: Load, regime: Regime, value: float | None) -> StreamReading:
    if value is None:
        return StreamReading(load=load, regime=regime, reason="no room")
    measured = Measured(value=value, method="m")
    return StreamReading(load=load, regime=regime, moved_bytes=8, measured=measured)


def product(edge: int, value: float) -> ProductReading:
    measured = Measured(value=value, method="m")
    return ProductReading(path=ArithmeticPath.FP32_VECTOR, edge=edge, measured=measured)


def calibration(**changes: Any) -> Calibration:
    given: dict[str, Any] = {
        "device": DEVICE,
        "identity": IDENTITY,
        "versions": {"torch": "2.9.0"},
        "profile": PROFILE,
        "streams": (
            stream(Load.READ, Regime.CACHED, 5000.0),
            stream(Load.READ, Regime.MEMORY, 900.0),
            stream(Load.COPY, Regime.MEMORY, 800.0),
            stream(Load.TRIAD, Regime.MEMORY, None),
        ),
        "products": (product(4096, 70.0), product(8192, 80.0)),
        "floors": (
            FloorReading(
                method=FloorMethod.DEVICE,
                measured=Measured(
                    value=1.5, low=1.4, high=1.6, samples_us=((1.5,), (1.4,), (1.6,)), method="m"
                ),
            ),
            FloorReading(method=FloorMethod.HELD, reason="no queue"),
        ),
        "taken_at": "2026-11-30T10:00:00+00:00",
        "seconds": 12.5,
    }
    return Calibration(**given | changes)


def test_the_envelope_is_the_most_of_all_loads_past_the_cache_and_of_all_sizes() -> None:
    envelope = calibration().envelope

    assert envelope is not None
    assert envelope.ceiling is Ceiling.MEASURED
    assert envelope.bandwidth_bytes_per_s.value == 900.0
    assert {p: f.value for p, f in envelope.peak_flops.items()} == {
        ArithmeticPath.FP32_VECTOR: 80.0
    }


def test_what_cannot_be_is_no_part_of_the_envelope() -> None:
    too_fast = calibration(
        streams=(
            stream(Load.READ, Regime.MEMORY, 1100.0),
            stream(Load.COPY, Regime.MEMORY, 1040.0),
        ),
        products=(product(4096, 130.0), product(8192, 110.0)),
    )

    envelope = too_fast.envelope
    assert envelope is not None
    assert envelope.bandwidth_bytes_per_s.value == 1040.0
    assert envelope.peak_flops[ArithmeticPath.FP32_VECTOR].value == 110.0
    assert too_fast.implausible == (
        "read, memory: 110% of the published bandwidth",
        "fp32_vector, 4096: 130% of the published peak",
    )


def test_without_a_figure_of_memory_there_is_no_envelope() -> None:
    assert calibration(streams=(stream(Load.READ, Regime.MEMORY, None),)).envelope is None
    assert calibration(products=()).envelope is None


def test_only_published_figures_get_a_measured_ceiling_beside_them() -> None:
    measured = evolve(PROFILE, ceiling=Ceiling.MEASURED)

    assert _envelope(calibration(), PROFILE) == calibration().envelope
    assert _envelope(calibration(), measured) is None
    assert _envelope(None, PROFILE) is None
    assert _launch_floor_us(calibration()) == 1.5
    assert _launch_floor_us(calibration(floors=())) is None


def test_spread_is_between_repetitions() -> None:
    floor = calibration().launch_floor_us[FloorMethod.DEVICE]

    assert floor.spread == pytest.approx(0.2 / 1.5)


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "calibrations"

    path = cache.save(folder, calibration())

    assert path.parent == folder
    assert path.name.startswith("anvil-anvil-2-")
    assert cache.load(folder, IDENTITY) == calibration()
    assert [p.name for p in folder.iterdir()] == [path.name]


def test_a_second_calibration_replaces_the_first(tmp_path: Path) -> None:
    cache.save(tmp_path, calibration())

    cache.save(tmp_path, calibration(seconds=99.0))

    kept = cache.load(tmp_path, IDENTITY)
    assert kept is not None
    assert kept.seconds == 99.0
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("field", ["uuid", "driver", "torch", "name", "arch", "accelerator"])
def test_another_device_driver_or_torch_has_no_part_in_it(tmp_path: Path, field: str) -> None:
    changed: dict[str, Any] = {field: "another"}
    cache.save(tmp_path, calibration())

    assert cache.load(tmp_path, evolve(IDENTITY, **changed)) is None


def test_a_device_that_tells_no_uuid_is_known_by_serial_number_or_id() -> None:
    by_serial = DeviceIdentity.of(DEVICE, {"device_serial": "S-9", "driver": "8"}, "2.9.0")
    by_id = DeviceIdentity.of(evolve(DEVICE, driver=None), {}, "2.9.0")

    assert (by_serial.uuid, by_serial.driver) == ("S-9", "8")
    assert (by_id.uuid, by_id.driver) == ("anvil:0", "unknown")


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda _: "",
        lambda _: "\0\0",
        lambda _: "[]",
        lambda text: text.replace('"value": 900.0', '"value": NaN'),
        lambda text: text.replace('"value": 900.0', '"value": -900.0'),
        lambda text: text.replace('"schema": 1', '"schema": 2'),
        lambda text: text.replace('"uuid": "U-1"', '"uuid": "U-2"'),
    ],
    ids=["cut", "empty", "binary", "list", "nan", "negative", "newer", "of another device"],
)
def test_a_damaged_file_is_told_of_left_alone_and_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Any
) -> None:
    path = cache.save(tmp_path, calibration())
    damaged = damage(path.read_text())
    path.write_text(damaged)

    assert cache.load(tmp_path, IDENTITY) is None

    assert f"the calibration {path} is not used" in caplog.text
    assert path.read_text() == damaged


def test_nothing_kept_is_no_reason_to_complain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert cache.load(tmp_path / "missing", IDENTITY) is None
    assert cache.load(None, IDENTITY) is None
    assert caplog.text == ""


def test_a_folder_that_cannot_be_written_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(HarnessError, match="cannot be kept") as caught:
        cache.save(tmp_path / "file" / "below", calibration())

    assert caught.value.hint == "set XDG_STATE_HOME to a folder that can be written"


def test_the_state_folder_follows_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    by_home = tmp_path / ".local/state/atrex-eval/calibrations"
    assert cache.state_folder({"XDG_STATE_HOME": "/s"}) == Path("/s/atrex-eval/calibrations")
    assert cache.state_folder({}) == by_home
    assert cache.state_folder({"XDG_STATE_HOME": "relative"}) == by_home
