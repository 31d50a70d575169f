"""How a row of the tables is written: figures in the units of data sheets, grouped by source."""

from __future__ import annotations

from typing import Final

from atrex_core import ArithmeticPath, Confidence, DeviceMatch, Figure, HardwareProfile

Peaks = dict[ArithmeticPath, Figure]

HIGH: Final = Confidence.HIGH
MEDIUM: Final = Confidence.MEDIUM
LOW: Final = Confidence.LOW

_GENERIC_NAMES: Final = ("AMD Radeon Graphics", "AMD Instinct", "AMD", "")
"""What drivers print when they do not know the product, or the container hides it."""


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
    """Return a size of memory: sheets print GB, and these parts hold as many GiB."""
    return Figure(value=value * 2**30, source=source, confidence=confidence)


def mib(value: float, source: str, confidence: Confidence = MEDIUM) -> Figure:
    """Return the size of the last-level cache."""
    return Figure(value=value * 2**20, source=source, confidence=confidence)


def cus(count: int, source: str, confidence: Confidence = MEDIUM) -> Figure:
    """Return a number of compute units."""
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
    memory: Figure,
    cache: Figure,
    units: Figure,
    clock: Figure,
    is_generic: bool = True,
    has_twin: bool = False,
    is_card: bool = False,
    notes: tuple[str, ...] = (),
) -> HardwareProfile:
    """Describe one product.

    Args:
        is_generic: Target and CU count tell it apart under a generic name.
        has_twin: They leave two products, which the size of the memory tells apart.
        is_card: A graphics card, whose CUs torch counts in pairs: the name alone decides.
    """
    return HardwareProfile(
        name=name,
        match=DeviceMatch(
            vendor="amd",
            names=driver_names,
            brand_words=("Instinct",),
            arch=arch,
            compute_units=None if is_card else int(units.value),
            memory_bytes=int(memory.value) if has_twin else None,
            generic_names=_GENERIC_NAMES if is_generic and not is_card else (),
        ),
        peak_flops={path: peak[path] for path in ArithmeticPath if path in peak},
        bandwidth_bytes_per_s=bandwidth,
        last_level_cache_bytes=cache,
        memory_bytes=memory,
        compute_units=units,
        clock_hz=clock,
        notes=notes,
    )
