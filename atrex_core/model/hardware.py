"""Devices as an accelerator reports them, and profiles as a vendor publishes them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from attrs import field, frozen
from attrs.validators import gt, min_len

_MEMORY_TOLERANCE: Final = 0.08


class Pipe(StrEnum):
    """An execution unit; work on different pipes overlaps, work on one pipe adds up."""

    MATRIX = "matrix"
    VECTOR = "vector"


class ArithmeticPath(StrEnum):
    """A way of computing that has its own peak rate. tf32 and fp32 are two paths, one dtype."""

    FP64_MATRIX = "fp64_matrix"
    TF32_MATRIX = "tf32_matrix"
    FP16_MATRIX = "fp16_matrix"
    BF16_MATRIX = "bf16_matrix"
    FP8_MATRIX = "fp8_matrix"
    FP6_MATRIX = "fp6_matrix"
    FP4_MATRIX = "fp4_matrix"
    INT8_MATRIX = "int8_matrix"
    FP64_VECTOR = "fp64_vector"
    FP32_VECTOR = "fp32_vector"

    @property
    def pipe(self) -> Pipe:
        """The pipe this path runs on."""
        return Pipe.MATRIX if self.value.endswith("_matrix") else Pipe.VECTOR


class Confidence(StrEnum):
    """How far a published figure is to be trusted."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Ceiling(StrEnum):
    """Where a roof comes from. Scores against different ceilings are never aggregated."""

    SPEC = "spec"
    MEASURED = "measured"


@frozen(kw_only=True)
class Device:
    """One device of this machine, or a stand-in for one that is absent."""

    id: str = field(validator=min_len(1))
    """What `--device` takes: an accelerator's name, or `accelerator:index`."""
    accelerator: str
    vendor: str
    name: str
    """As the driver reports it; profiles match it exactly."""
    arch: str
    """The compilation target this device executes."""
    index: int = 0
    virtual: bool = False
    """True when code is compiled for `arch` but executed elsewhere: times mean nothing."""
    memory_bytes: int | None = None
    last_level_cache_bytes: int | None = None
    compute_units: int | None = None
    driver: str | None = None


@frozen(kw_only=True)
class DeviceMatch:
    """Which devices a profile describes.

    A name matches exactly once case, spaces, underscores and leading brand words are
    normalised, never by prefix or substring. Where a driver reports only a generic name
    (listed in `generic_names`), `arch` and `compute_units` together decide, and `memory_bytes`
    where it is given. A device that reports another number of compute units than
    `compute_units` is a part of the product, as a partition is, and never matches.
    """

    vendor: str
    names: tuple[str, ...] = field(validator=min_len(1))
    brand_words: tuple[str, ...] = ()
    """Leading words, beside the vendor's, that some drivers print and others leave out."""
    arch: str | None = None
    compute_units: int | None = None
    memory_bytes: int | None = None
    """Give it where `arch` and `compute_units` leave two products to choose from."""
    generic_names: tuple[str, ...] = ()

    def accepts(self, device: Device) -> bool:
        """Return whether this profile describes `device`."""
        if device.virtual or device.vendor != self.vendor:
            return False
        units = {device.compute_units, self.compute_units} - {None}
        if len(units) > 1:
            return False
        name = self._normalised(device.name)
        if any(name == self._normalised(known) for known in self.names):
            return True
        if self.arch is None or self.compute_units is None:
            return False
        return (
            any(name == self._normalised(known) for known in self.generic_names)
            and device.arch == self.arch
            and device.compute_units == self.compute_units
            and self._fits(device.memory_bytes)
        )

    def _fits(self, memory_bytes: int | None) -> bool:
        if self.memory_bytes is None:
            return True
        # Drivers keep a part for themselves, and sellers count in either kind of gigabyte.
        spread = _MEMORY_TOLERANCE * self.memory_bytes
        return memory_bytes is not None and abs(memory_bytes - self.memory_bytes) <= spread

    def _normalised(self, name: str) -> str:
        brands = {self.vendor.lower(), *(word.lower() for word in self.brand_words)}
        words = name.replace("_", " ").lower().split()
        while len(words) > 1 and words[0] in brands:
            words = words[1:]
        return " ".join(words)


@frozen(kw_only=True)
class Figure:
    """A published or measured number in SI units, with where it comes from."""

    value: float = field(validator=gt(0.0))
    source: str = field(validator=min_len(1))
    confidence: Confidence = Confidence.MEDIUM


@frozen(kw_only=True)
class HardwareProfile:
    """The peaks of one device model: everything hardware-specific that core may know."""

    name: str = field(validator=min_len(1))
    match: DeviceMatch
    peak_flops: Mapping[ArithmeticPath, Figure] = field(validator=min_len(1))
    """Dense peak per path, FLOP/s (OP/s for integers)."""
    bandwidth_bytes_per_s: Figure
    """Peak device-memory bandwidth."""
    last_level_cache_bytes: Figure | None = None
    memory_bytes: Figure | None = None
    """Nominal size; what a driver reports is a few per cent less."""
    compute_units: Figure | None = None
    clock_hz: Figure | None = None
    """The boost clock, which the peaks assume unless a note says otherwise."""
    matrix_clock_hz: Figure | None = None
    """The clock that the matrix peaks assume, where it is another. fp64 keeps to `clock_hz`."""
    ceiling: Ceiling = Ceiling.SPEC
    notes: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Identify the numbers that a bound was computed from."""
        peaks = sorted((str(path), figure.value) for path, figure in self.peak_flops.items())
        text = repr((self.name, peaks, self.bandwidth_bytes_per_s.value, str(self.ceiling)))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
