"""The table. To add a device, append a row: exact driver names, dense peaks."""

from __future__ import annotations

from typing import Final

from atrex_core import ArithmeticPath, Confidence, DeviceMatch, Figure, HardwareProfile

GPU_DATABASE: Final = "reox007/RightNow-GPU-Database, data/intel/all.json, taken from TechPowerUp"
ARITHMETIC: Final = "Xe-cores x operations per core and clock x clock, as this profile gives them"
HALF: Final = "; half of what is printed for the package of two"

_BRAND_WORDS: Final = ("Intel(R)",)


def peaks(
    source: str, confidence: Confidence = Confidence.MEDIUM, /, **tflops: float
) -> dict[ArithmeticPath, Figure]:
    """Return dense peaks in TFLOP/s, or TOP/s, that one source gives; keywords name paths."""
    return {
        ArithmeticPath(path): Figure(value=value * 1e12, source=source, confidence=confidence)
        for path, value in tflops.items()
    }


PROFILES: Final = (
    HardwareProfile(
        name="max1550",
        match=DeviceMatch(
            vendor="intel",
            names=("Intel(R) Data Center GPU Max 1550",),
            brand_words=_BRAND_WORDS,
            arch="pvc",
        ),
        peak_flops={
            **peaks(GPU_DATABASE + HALF, fp64_vector=26.2, fp32_vector=26.2),
            **peaks(ARITHMETIC, tf32_matrix=209.5, fp16_matrix=419.5, bf16_matrix=419.5),
            **peaks(ARITHMETIC, int8_matrix=839),
        },
        bandwidth_bytes_per_s=Figure(value=1638.5e9, source=GPU_DATABASE + HALF),
        last_level_cache_bytes=Figure(value=204 * 2**20, source=GPU_DATABASE + HALF),
        memory_bytes=Figure(value=64 * 2**30, source=GPU_DATABASE + HALF),
        compute_units=Figure(value=64, source=GPU_DATABASE + HALF),
        clock_hz=Figure(value=1600e6, source=GPU_DATABASE),
        notes=(
            "One of the two stacks: by default (flat hierarchy) drivers show each as a device.",
            "Where the package is shown as one device, every figure is twice this one.",
            "bf16: torchtitan takes 340.8 for a stack, at 1300 MHz.",
        ),
    ),
    HardwareProfile(
        name="arc-b580",
        match=DeviceMatch(
            vendor="intel",
            names=("Intel(R) Arc(TM) B580 Graphics",),
            brand_words=_BRAND_WORDS,
            arch="bmg-g21",
        ),
        peak_flops={
            **peaks(GPU_DATABASE, Confidence.LOW, fp64_vector=1.71),
            **peaks(GPU_DATABASE, fp32_vector=13.67),
            **peaks(ARITHMETIC, fp16_matrix=109.4, bf16_matrix=109.4, int8_matrix=218.7),
        },
        bandwidth_bytes_per_s=Figure(value=456e9, source=GPU_DATABASE),
        last_level_cache_bytes=Figure(value=18 * 2**20, source=GPU_DATABASE),
        memory_bytes=Figure(value=12 * 2**30, source=GPU_DATABASE),
        compute_units=Figure(value=20, source=GPU_DATABASE),
        clock_hz=Figure(value=2670e6, source=GPU_DATABASE),
        notes=(
            "Peaks assume 2670 MHz; the part may run at 2850 MHz, 7% above.",
            "int8: Intel prints 233 TOP/s, at 2850 MHz.",
        ),
    ),
)
