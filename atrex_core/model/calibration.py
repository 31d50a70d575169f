"""What one device reached when it was measured, beside what its profile prints."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from statistics import median
from typing import Final

from attrs import field, frozen
from attrs.validators import gt, min_len

from atrex_core.model.hardware import (
    ArithmeticPath,
    Ceiling,
    Confidence,
    Device,
    DeviceMatch,
    Figure,
    HardwareProfile,
)

MOST_MEMORY_SHARE: Final = 1.05
"""Of a published bandwidth: what is above it came from a cache, or the profile is wrong."""
MOST_ARITHMETIC_SHARE: Final = 1.2
"""Of a published peak, which may assume a clock below the one that a device reaches."""

NO_TIME: Final = "the time given was spent before its turn came; see --minutes"
"""Why a figure is missing that was never begun."""


class Load(StrEnum):
    """A way to use memory. Bytes are those read plus those written."""

    READ = "read"
    """The sum of an array."""
    WRITE = "write"
    """An array filled with one value."""
    COPY = "copy"
    TRIAD = "triad"
    """`a = b + s * c`."""


class Regime(StrEnum):
    """Where the arrays of a load lie."""

    CACHED = "cached"
    """Together a quarter of the last-level cache."""
    MEMORY = "memory"
    """Together at least four times the last-level cache."""


class FloorMethod(StrEnum):
    """How the smallest operation was timed."""

    DEVICE = "device"
    """As a candidate's `device_us`: the operation alone."""
    HELD = "held"
    """As the referee's own clock: the slope of queues that wait, with the gaps between launches."""
    CALL = "call"
    """As `call_us`: the slope of wall time over back-to-back calls."""


@frozen(kw_only=True)
class Measured:
    """One figure, in the unit of what holds it."""

    value: float = field(validator=gt(0.0))
    """Median of the repetitions' medians."""
    low: float | None = None
    high: float | None = None
    """The widest of the repetitions' 95 % intervals; None where the samples are not known."""
    samples_us: tuple[tuple[float, ...], ...] = ()
    """Times of one operation, in a tuple for each repetition: of many, evenly spaced ones."""
    method: str

    @property
    def spread(self) -> float | None:
        """How far the repetitions' medians lie apart, as a share of the middle one."""
        middles = sorted(median(samples) for samples in self.samples_us if samples)
        if len(middles) < 2 or median(middles) <= 0:
            return None
        return (middles[-1] - middles[0]) / median(middles)


@frozen(kw_only=True)
class StreamReading:
    """What a load reached, in bytes/s, or why that is not known."""

    load: Load
    regime: Regime
    moved_bytes: int | None = None
    """By one operation."""
    measured: Measured | None = None
    reason: str | None = None


@frozen(kw_only=True)
class ProductReading:
    """What products of square matrices reached on one path, in FLOP/s, or why not."""

    path: ArithmeticPath
    edge: int | None = None
    """Rows and columns of each matrix; None where a measured profile gives the figure."""
    measured: Measured | None = None
    reason: str | None = None


@frozen(kw_only=True)
class FloorReading:
    """How long the smallest operation takes, in microseconds, or why that is not known."""

    method: FloorMethod
    measured: Measured | None = None
    reason: str | None = None


@frozen(kw_only=True)
class DeviceIdentity:
    """What a calibration is kept by: with any of it changed, the figures may be others."""

    accelerator: str
    name: str
    arch: str
    compute_units: int | None
    """Of which a host's processes, or a part of a device, may have fewer than the whole has."""
    uuid: str = field(validator=min_len(1))
    """Of this very device; where its driver tells none, the device's id."""
    driver: str
    torch: str

    @classmethod
    def of(cls, device: Device, versions: Mapping[str, str], torch: str) -> DeviceIdentity:
        """Return the identity of `device`, whose context reports `versions`."""
        uuid = versions.get("device_uuid") or versions.get("device_serial") or device.id
        return cls(
            accelerator=device.accelerator,
            name=device.name,
            arch=device.arch,
            compute_units=device.compute_units,
            uuid=uuid,
            driver=versions.get("driver") or device.driver or "unknown",
            torch=torch,
        )


@frozen(kw_only=True)
class Calibration:
    """Everything that was measured on one device in one go."""

    device: Device
    identity: DeviceIdentity
    versions: Mapping[str, str]
    profile: HardwareProfile | None
    """The profile that described the device then."""
    streams: tuple[StreamReading, ...]
    products: tuple[ProductReading, ...]
    floors: tuple[FloorReading, ...]
    taken_at: str
    """UTC, ISO 8601."""
    seconds: float
    """What it took."""

    @property
    def unbegun(self) -> int:
        """How many figures had no time left."""
        readings: tuple[StreamReading | ProductReading | FloorReading, ...]
        readings = (*self.streams, *self.products, *self.floors)
        return sum(reading.reason == NO_TIME for reading in readings)

    @property
    def bandwidth_bytes_per_s(self) -> Mapping[Load, Mapping[Regime, Measured]]:
        """What each load reached."""
        found: dict[Load, dict[Regime, Measured]] = {}
        for reading in self.streams:
            if reading.measured is not None:
                found.setdefault(reading.load, {})[reading.regime] = reading.measured
        return found

    @property
    def peak_flops(self) -> Mapping[ArithmeticPath, Measured]:
        """The most that each path plausibly reached at any size."""
        found: dict[ArithmeticPath, Measured] = {}
        for reading in self.products:
            if (self.arithmetic_share(reading) or 0.0) > MOST_ARITHMETIC_SHARE:
                continue
            best = found.get(reading.path)
            if reading.measured and (best is None or reading.measured.value > best.value):
                found[reading.path] = reading.measured
        return found

    @property
    def launch_floor_us(self) -> Mapping[FloorMethod, Measured]:
        """How long the smallest operation takes, by each method that could be used."""
        return {r.method: r.measured for r in self.floors if r.measured is not None}

    @property
    def implausible(self) -> tuple[str, ...]:
        """What is so far above the published figure that it is no part of the envelope."""
        found = [
            f"{reading.load}, {reading.regime}: {share:.0%} of the published bandwidth"
            for reading in self.streams
            if (share := self.memory_share(reading)) and share > MOST_MEMORY_SHARE
        ]
        return (
            *found,
            *(
                f"{reading.path}, {reading.edge}: {share:.0%} of the published peak"
                for reading in self.products
                if (share := self.arithmetic_share(reading)) and share > MOST_ARITHMETIC_SHARE
            ),
        )

    def memory_share(self, reading: StreamReading) -> float | None:
        """Return the share of the profile's bandwidth; None inside the cache, or without one."""
        if self.profile is None or reading.measured is None or reading.regime is Regime.CACHED:
            return None
        return reading.measured.value / self.profile.bandwidth_bytes_per_s.value

    def arithmetic_share(self, reading: ProductReading) -> float | None:
        """Return the share of the profile's peak, None without one."""
        peak = self.profile.peak_flops.get(reading.path) if self.profile else None
        return reading.measured.value / peak.value if reading.measured and peak else None

    @property
    def memory_bytes_per_s(self) -> float | None:
        """The most that any load plausibly reached past the cache."""
        rates = [
            reading.measured.value
            for reading in self.streams
            if reading.regime is Regime.MEMORY
            and reading.measured is not None
            and (self.memory_share(reading) or 0.0) <= MOST_MEMORY_SHARE
        ]
        return max(rates, default=None)

    @property
    def envelope(self) -> HardwareProfile | None:
        """The measured ceiling: most of all loads past the cache, and of all sizes on each path.

        None where nothing is known of memory or of arithmetic.
        """
        bandwidth, peaks = self.memory_bytes_per_s, self.peak_flops
        if bandwidth is None or not peaks:
            return None
        source = f"measured on {self.identity.uuid}, {self.taken_at}"
        return HardwareProfile(
            name=f"{self.device.id} as measured",
            match=DeviceMatch(vendor=self.device.vendor, names=(self.device.name,)),
            peak_flops={path: _figure(found.value, source) for path, found in peaks.items()},
            bandwidth_bytes_per_s=_figure(bandwidth, source),
            ceiling=Ceiling.MEASURED,
        )


def _figure(value: float, source: str) -> Figure:
    return Figure(value=value, source=source, confidence=Confidence.HIGH)
