"""How a row of the tables is written: figures in the units of data sheets, grouped by source."""

from __future__ import annotations

from typing import Final

from atrex_core import ArithmeticPath, Confidence, DeviceMatch, Figure, HardwareProfile

Peaks = dict[ArithmeticPath, Figure]

HIGH: Final = Confidence.HIGH
MEDIUM: Final = Confidence.MEDIUM
LOW: Final = Confidence.LOW


def peaks(source: str, confidence: Confidence = MEDIUM, /, **tflops: float) -> Peaks:
    """Return dense peaks in TFLOP/s, or TOP/s, that one source gives; keywords name paths."""
    return {
        ArithmeticPath(path): Figure(value=value * 1e12, source=source, confidence=confidence)
        for path, value in tflops.items()
    }


def gb_per_s(value: float, source: str, confidence: Confidence = MEDIUM) -> Figure:
    """Return a bandwidth, which is always decimal."""
    return Figure(value=value * 1e9, source=source, confidence=confidence)


def gib(value: float, source: str, confidence: Confidence = MEDIUM) -> Figure:
    """Return a size of memory: sheets print GB, and most parts hold as many GiB."""
    return Figure(value=value * 2**30, source=source, confidence=confidence)


def mib(value: float, source: str, confidence: Confidence = MEDIUM) -> Figure:
    """Return the size of the L2 cache, the last level of all these parts."""
    return Figure(value=value * 2**20, source=source, confidence=confidence)


def sms(count: int, source: str, confidence: Confidence = MEDIUM) -> Figure:
    """Return a number of streaming multiprocessors."""
    return Figure(value=count, source=source, confidence=confidence)


def mhz(value: float, source: str, confidence: Confidence = MEDIUM) -> Figure:
    """Return a clock."""
    return Figure(value=value * 1e6, source=source, confidence=confidence)


def profile(
    name: str,
    *driver_names: str,
    arch: str,
    peak: Peaks,
    bandwidth: Figure,
    cache: Figure,
    units: Figure,
    clock: Figure,
    matrix_clock: Figure | None = None,
    memory: Figure | None = None,
    notes: tuple[str, ...] = (),
) -> HardwareProfile:
    """Describe one product as its driver names it."""
    return HardwareProfile(
        name=name,
        match=DeviceMatch(vendor="nvidia", names=driver_names, brand_words=("Tesla",), arch=arch),
        peak_flops={path: peak[path] for path in ArithmeticPath if path in peak},
        bandwidth_bytes_per_s=bandwidth,
        last_level_cache_bytes=cache,
        memory_bytes=memory,
        compute_units=units,
        clock_hz=clock,
        matrix_clock_hz=matrix_clock,
        notes=notes,
    )
