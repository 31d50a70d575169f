"""The table. To add a device, append one `HardwareProfile`: driver names, CU count, dense peaks.

One target (gfx942) covers products whose peaks differ by a factor of six, and drivers in
containers or virtual machines often print only a generic name. There the number of compute
units decides, so every row states it.
"""

from __future__ import annotations

from typing import Final

from atrex_core import ArithmeticPath, Confidence, DeviceMatch, Figure, HardwareProfile

_TERA: Final = 1e12
_MIB: Final = 2**20

_GENERIC_NAMES: Final = ("AMD Radeon Graphics", "AMD Instinct", "AMD", "")
"""What drivers print when they do not know the product, or the container hides it."""

MI300X_SHEET: Final = "AMD Instinct MI300X Accelerator data sheet, peak performance table (dense)"
CDNA3_PAPER: Final = "Introducing AMD CDNA 3 Architecture, white paper, table of peak rates"
MI308X_ARITHMETIC: Final = (
    "80 CUs at 1420 MHz times the CDNA 3 rate per CU and clock (white paper); "
    "AMD offers no public sheet"
)
ATREX_XPU_A: Final = (
    "alibaba/atrex-bench, configs/hardware/XPU-A.yaml, a gfx942 part whose figures fit "
    "80 CUs at 1420 MHz and no other product"
)


def profile(
    name: str,
    products: tuple[str, ...],
    peaks: dict[ArithmeticPath, Figure],
    bandwidth: Figure,
    *,
    arch: str,
    compute_units: int,
    cache_mib: int,
    partitioned: tuple[str, ...] = (),
    notes: tuple[str, ...] = (),
) -> HardwareProfile:
    """Describe one product. `partitioned` names may stand for a slice: the CU count decides."""
    return HardwareProfile(
        name=name,
        match=DeviceMatch(
            vendor="amd",
            names=products,
            brand_words=("Instinct",),
            arch=arch,
            compute_units=compute_units,
            generic_names=(*partitioned, *_GENERIC_NAMES),
        ),
        peak_flops=peaks,
        bandwidth_bytes_per_s=bandwidth,
        last_level_cache_bytes=cache_mib * _MIB,
        notes=notes,
    )


def tera(value: float, source: str, confidence: Confidence = Confidence.HIGH) -> Figure:
    """Convert a figure printed in TFLOP/s, TOP/s or TB/s."""
    return Figure(value=value * _TERA, source=source, confidence=confidence)


_PACKED = "fp32 vector is the packed rate; code without packed instructions reaches half of it."
_CACHE = "The last-level cache is the 256 MiB Infinity Cache, not the 4 MiB L2 that drivers report."
_LIKE_MI325X = (
    "MI325X has the same target and CU count: under a generic name it reads as MI300X, and its "
    "6.0 TB/s make memory-bound shares up to 13% too high."
)

PROFILES: Final = (
    profile(
        "mi300x",
        ("AMD Instinct MI300X", "AMD Instinct MI300X OAM"),
        {
            ArithmeticPath.FP64_VECTOR: tera(81.7, MI300X_SHEET),
            ArithmeticPath.FP64_MATRIX: tera(163.4, MI300X_SHEET, Confidence.MEDIUM),
            ArithmeticPath.FP32_VECTOR: tera(163.4, MI300X_SHEET),
            ArithmeticPath.TF32_MATRIX: tera(653.7, MI300X_SHEET),
            ArithmeticPath.FP16_MATRIX: tera(1307.4, MI300X_SHEET),
            ArithmeticPath.BF16_MATRIX: tera(1307.4, MI300X_SHEET),
            ArithmeticPath.FP8_MATRIX: tera(2614.9, MI300X_SHEET),
            ArithmeticPath.INT8_MATRIX: tera(2614.9, MI300X_SHEET),
        },
        tera(5.3, f"{MI300X_SHEET}; {CDNA3_PAPER}"),
        arch="gfx942",
        compute_units=304,
        cache_mib=256,
        partitioned=("AMD Instinct MI300X VF",),
        notes=(
            _PACKED,
            _CACHE,
            _LIKE_MI325X,
        ),
    ),
    profile(
        "mi308x",
        ("AMD Instinct MI308X", "AMD Instinct MI308X OAM"),
        {
            ArithmeticPath.FP64_VECTOR: tera(14.5, MI308X_ARITHMETIC, Confidence.MEDIUM),
            ArithmeticPath.FP64_MATRIX: tera(29.1, MI308X_ARITHMETIC, Confidence.MEDIUM),
            ArithmeticPath.FP32_VECTOR: tera(29.1, f"{ATREX_XPU_A}; {MI308X_ARITHMETIC}"),
            ArithmeticPath.TF32_MATRIX: tera(116.3, MI308X_ARITHMETIC, Confidence.LOW),
            ArithmeticPath.FP16_MATRIX: tera(232.65, ATREX_XPU_A, Confidence.MEDIUM),
            ArithmeticPath.BF16_MATRIX: tera(232.65, ATREX_XPU_A, Confidence.MEDIUM),
            ArithmeticPath.FP8_MATRIX: tera(465.3, ATREX_XPU_A, Confidence.MEDIUM),
            ArithmeticPath.INT8_MATRIX: tera(465.3, MI308X_ARITHMETIC, Confidence.MEDIUM),
        },
        tera(5.3, ATREX_XPU_A),
        arch="gfx942",
        compute_units=80,
        cache_mib=256,
        partitioned=("AMD Instinct MI308X VF",),
        notes=(
            _PACKED,
            _CACHE,
            "Other public tables print 206 or 188 TFLOP/s for bf16; they fit lower clocks.",
        ),
    ),
)
