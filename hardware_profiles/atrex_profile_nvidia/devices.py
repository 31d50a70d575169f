"""The table. To add a device, append one `HardwareProfile`: exact driver names, dense peaks.

Peaks are dense: NVIDIA's data sheets since Ampere print figures with 2:4 sparsity first, twice
the rate that an ordinary product can reach. They are also at the sheet's typical boost clock;
where a part may clock higher, a note says by how much an honest kernel can exceed the sheet.
"""

from __future__ import annotations

from typing import Final

from atrex_core import ArithmeticPath, Confidence, DeviceMatch, Figure, HardwareProfile

_TERA: Final = 1e12
_MIB: Final = 2**20

HOPPER_PAPER: Final = (
    "NVIDIA H100 Tensor Core GPU Architecture, white paper V1.04, table of H100 SXM5 peak rates"
)
H100_SHEET: Final = "NVIDIA H100 Tensor Core GPU data sheet, H100 SXM column"
H200_SHEET: Final = "NVIDIA H200 Tensor Core GPU data sheet, H200 SXM column, sparse figures halved"
ATREX_H20: Final = (
    "alibaba/atrex-bench, configs/hardware/H20.yaml; ai-dynamo/aiconfigurator prints the same"
)
RESELLER_H20: Final = (
    "H20 product brief as reprinted by resellers and the press; NVIDIA offers no public sheet"
)


def profile(
    name: str,
    driver_name: str,
    peaks: dict[ArithmeticPath, Figure],
    bandwidth: Figure,
    *,
    cache_mib: int,
    notes: tuple[str, ...] = (),
) -> HardwareProfile:
    """Describe one product as its driver names it."""
    return HardwareProfile(
        name=name,
        match=DeviceMatch(vendor="nvidia", names=(driver_name,), brand_words=("Tesla",)),
        peak_flops=peaks,
        bandwidth_bytes_per_s=bandwidth,
        last_level_cache_bytes=cache_mib * _MIB,
        notes=notes,
    )


def tera(value: float, source: str, confidence: Confidence = Confidence.HIGH) -> Figure:
    """Convert a figure printed in TFLOP/s, TOP/s or TB/s."""
    return Figure(value=value * _TERA, source=source, confidence=confidence)


def _gh100_sxm(source: str) -> dict[ArithmeticPath, Figure]:
    """Return the rates of the full SXM part, which H100 and H200 share (132 SMs, 1830 MHz)."""
    return {
        ArithmeticPath.FP64_VECTOR: tera(33.5, source, Confidence.MEDIUM),
        ArithmeticPath.FP64_MATRIX: tera(66.9, source, Confidence.MEDIUM),
        ArithmeticPath.FP32_VECTOR: tera(66.9, source),
        ArithmeticPath.TF32_MATRIX: tera(494.7, source),
        ArithmeticPath.FP16_MATRIX: tera(989.4, source),
        ArithmeticPath.BF16_MATRIX: tera(989.4, source),
        ArithmeticPath.FP8_MATRIX: tera(1978.9, source),
        ArithmeticPath.INT8_MATRIX: tera(1978.9, source),
    }


_BURST = (
    "Matrix peaks assume 1830 MHz; the part may run at 1980 MHz, 8% above the sheet, until "
    "its power limit holds it back."
)

PROFILES: Final = (
    profile(
        "h20",
        "NVIDIA H20",
        {
            ArithmeticPath.FP64_VECTOR: tera(1.0, RESELLER_H20, Confidence.MEDIUM),
            ArithmeticPath.FP32_VECTOR: tera(44.0, ATREX_H20, Confidence.MEDIUM),
            ArithmeticPath.TF32_MATRIX: tera(74.0, ATREX_H20),
            ArithmeticPath.FP16_MATRIX: tera(148.0, ATREX_H20),
            ArithmeticPath.BF16_MATRIX: tera(148.0, ATREX_H20),
            ArithmeticPath.FP8_MATRIX: tera(296.0, ATREX_H20, Confidence.MEDIUM),
            ArithmeticPath.INT8_MATRIX: tera(296.0, RESELLER_H20, Confidence.MEDIUM),
        },
        tera(4.0, ATREX_H20),
        cache_mib=60,
        notes=(
            "The 96 GB part. H20-3e (141 GB, 4.8 TB/s) is another product with another name.",
            "fp32: the vendor's 44; 78 SMs at 1980 MHz come to 39.5 by arithmetic.",
            "fp8: aiconfigurator prints 294.",
            "At 1980 MHz the matrix units come to 158 TFLOP/s, 7% above the sheet.",
        ),
    ),
    profile(
        "h100-sxm",
        "NVIDIA H100 80GB HBM3",
        _gh100_sxm(HOPPER_PAPER),
        tera(3.35, H100_SHEET),
        cache_mib=50,
        notes=(
            _BURST,
            "H100 PCIe (2.0 TB/s) and H100 NVL (3.9 TB/s) are other products with other names.",
        ),
    ),
    profile(
        "h200",
        "NVIDIA H200",
        _gh100_sxm(f"{H200_SHEET}; unrounded in: {HOPPER_PAPER}"),
        tera(4.8, H200_SHEET),
        cache_mib=50,
        notes=(
            _BURST,
            "H200 NVL ('NVIDIA H200 NVL') has lower matrix peaks and does not match.",
        ),
    ),
)
