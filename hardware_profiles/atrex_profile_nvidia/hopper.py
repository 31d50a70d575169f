"""H20 to GH200: target sm_90.

Matrix peaks assume a lower clock than the vector and fp64 ones, and the part may clock higher:
a note says by how much an honest kernel can exceed the sheet.
"""

from __future__ import annotations

from typing import Final

from atrex_profile_nvidia.sources import (
    AICONFIGURATOR,
    ARITHMETIC,
    ATREX_H20,
    DEVICE_QUERY,
    GPU_DATABASE,
    H100_SHEET,
    H200_SHEET,
    HOPPER_PAPER,
    LIGHTNING,
    ML_ENGINEERING,
    RESELLER_H20,
    SHEET,
    UNCONFIRMED,
    VERL,
    cite,
)
from atrex_profile_nvidia.table import (
    HIGH,
    LOW,
    Peaks,
    gb_per_s,
    gib,
    mhz,
    mib,
    peaks,
    profile,
    sms,
)


def _gh100_sxm(source: str) -> Peaks:
    """Return the rates of the full SXM part, which H100 and H200 share."""
    return {
        **peaks(source, fp64_vector=33.5, fp64_matrix=66.9),
        **peaks(source, HIGH, fp32_vector=66.9, tf32_matrix=494.7),
        **peaks(source, HIGH, fp16_matrix=989.4, bf16_matrix=989.4),
        **peaks(source, HIGH, fp8_matrix=1978.9, int8_matrix=1978.9),
    }


_GH200: Final[Peaks] = {
    **peaks(SHEET, fp64_vector=33.5, fp64_matrix=66.9),
    **peaks(ML_ENGINEERING, HIGH, fp32_vector=66.9, tf32_matrix=494.7),
    **peaks(ML_ENGINEERING, HIGH, fp16_matrix=989.4, bf16_matrix=989.4),
    **peaks(ML_ENGINEERING, HIGH, fp8_matrix=1978.9, int8_matrix=1978.9),
}
_H20: Final[Peaks] = {
    **peaks(RESELLER_H20, fp64_vector=1.0, int8_matrix=296),
    **peaks(ATREX_H20, fp32_vector=44, fp8_matrix=296),
    **peaks(ATREX_H20, HIGH, tf32_matrix=74, fp16_matrix=148, bf16_matrix=148),
}
_SMS: Final = sms(132, GPU_DATABASE)
_CLOCK: Final = mhz(1980, GPU_DATABASE)
_MATRIX_CLOCK: Final = mhz(1830, ML_ENGINEERING, HIGH)
_L2: Final = mib(50, GPU_DATABASE)

_BURST: Final = (
    "Matrix peaks assume 1830 MHz; the part may run at 1980 MHz, 8% above the sheet, until "
    "its power limit holds it back."
)
_H100_TABLES: Final = (
    "Tables print 1979 for bf16 and 3958 for fp8 (with sparsity), 156 for tf32 (an A100's) and "
    "2.0 TB/s (the PCIe part's)."
)
_H20_NOTES: Final = (
    "fp32: the vendor's 44; 78 SMs at 1980 MHz come to 39.5 by arithmetic.",
    "fp64 was cut for export: no arithmetic gives it.",
    "fp8: aiconfigurator prints 294.",
    "At 1980 MHz the matrix units come to 158 TFLOP/s, 7% above the sheet.",
)
_GRACE: Final = "The size in the driver's name of a GH200 is not that of its HBM."

PROFILES: Final = (
    profile(
        "h20",
        "NVIDIA H20",
        arch="sm_90",
        peak=_H20,
        bandwidth=gb_per_s(4000, ATREX_H20, HIGH),
        memory=gib(96, cite(RESELLER_H20, AICONFIGURATOR)),
        cache=mib(60, RESELLER_H20),
        units=sms(78, RESELLER_H20),
        clock=mhz(1980, UNCONFIRMED, LOW),
        notes=(
            "The 96 GB part. H20-3e (141 GB, 4.8 TB/s) is another product with another name.",
            *_H20_NOTES,
            "Another table prints 4022 GB/s, and aiconfigurator the memory of the H20-3e.",
        ),
    ),
    profile(
        "h20-3e",
        "NVIDIA H20-3e",
        arch="sm_90",
        peak=_H20,
        bandwidth=gb_per_s(4800, cite(RESELLER_H20, AICONFIGURATOR)),
        memory=gib(141, cite(RESELLER_H20, AICONFIGURATOR)),
        cache=mib(60, RESELLER_H20),
        units=sms(78, RESELLER_H20),
        clock=mhz(1980, UNCONFIRMED, LOW),
        notes=("Peaks are those of the H20 with 96 GB.", *_H20_NOTES),
    ),
    profile(
        "h100-sxm",
        "NVIDIA H100 80GB HBM3",
        arch="sm_90",
        peak=_gh100_sxm(HOPPER_PAPER),
        bandwidth=gb_per_s(3350, H100_SHEET, HIGH),
        memory=gib(80, H100_SHEET, HIGH),
        cache=mib(50, cite(GPU_DATABASE, ML_ENGINEERING), HIGH),
        units=_SMS,
        clock=_CLOCK,
        matrix_clock=_MATRIX_CLOCK,
        notes=(
            _BURST,
            "H100 PCIe (2.0 TB/s) and H100 NVL (3.9 TB/s) are other products with other names.",
            _H100_TABLES,
        ),
    ),
    profile(
        "h100-pcie",
        "NVIDIA H100 PCIe",
        arch="sm_90",
        peak=peaks(GPU_DATABASE, fp64_vector=25.6)
        | peaks(SHEET, fp64_matrix=51.2)
        | peaks(cite(GPU_DATABASE, ML_ENGINEERING), HIGH, fp32_vector=51.2)
        | peaks(ML_ENGINEERING, HIGH, tf32_matrix=378, fp8_matrix=1513, int8_matrix=1513)
        | peaks(cite(ML_ENGINEERING, LIGHTNING), HIGH, fp16_matrix=756, bf16_matrix=756),
        bandwidth=gb_per_s(2039, GPU_DATABASE),
        memory=gib(80, GPU_DATABASE),
        cache=_L2,
        units=sms(114, GPU_DATABASE),
        clock=mhz(1755, GPU_DATABASE),
        matrix_clock=mhz(1620, ML_ENGINEERING),
        notes=(
            "Matrix peaks assume 1620 MHz; at 1755 MHz they are 8% higher.",
            "Its 350 W sustain about 1395 MHz.",
            "Bandwidth: the sheet prints 2 TB/s.",
        ),
    ),
    profile(
        "h100-nvl",
        "NVIDIA H100 NVL",
        arch="sm_90",
        peak=peaks(cite(GPU_DATABASE, SHEET), HIGH, fp64_vector=30, fp32_vector=60)
        | peaks(SHEET, fp64_matrix=60, tf32_matrix=417.5, fp8_matrix=1671, int8_matrix=1671)
        | peaks(cite(SHEET, ARITHMETIC), fp16_matrix=835.5, bf16_matrix=835.5),
        bandwidth=gb_per_s(3938, GPU_DATABASE),
        memory=gib(94, GPU_DATABASE),
        cache=_L2,
        units=_SMS,
        clock=mhz(1785, GPU_DATABASE),
        matrix_clock=mhz(1545, ML_ENGINEERING),
        notes=(
            "One of the pair that the sheet describes.",
            "Matrix peaks assume 1545 MHz; at 1785 MHz they are 15% higher.",
            "bf16: mmapeak measured 977 TFLOP/s on operands of zeros, 17% above the sheet.",
            "A table of nanochat gives it the peaks of the SXM part.",
        ),
    ),
    profile(
        "h200",
        "NVIDIA H200",
        arch="sm_90",
        peak=_gh100_sxm(f"{H200_SHEET}; unrounded in: {HOPPER_PAPER}"),
        bandwidth=gb_per_s(4800, H200_SHEET, HIGH),
        memory=gib(141, H200_SHEET, HIGH),
        cache=_L2,
        units=_SMS,
        clock=_CLOCK,
        matrix_clock=_MATRIX_CLOCK,
        notes=(
            _BURST,
            "H200 NVL ('NVIDIA H200 NVL') has lower matrix peaks and does not match.",
            "Bandwidth: a database prints 4890 GB/s, another list 3360.",
        ),
    ),
    profile(
        "h800-sxm",
        "NVIDIA H800",
        arch="sm_90",
        peak=peaks(SHEET, fp64_vector=1.0, fp32_vector=66.9, tf32_matrix=494.7)
        | peaks(cite(VERL, ARITHMETIC), HIGH, fp16_matrix=989.4, bf16_matrix=989.4)
        | peaks(SHEET, fp8_matrix=1978.9, int8_matrix=1978.9),
        bandwidth=gb_per_s(3350, GPU_DATABASE),
        memory=gib(80, GPU_DATABASE),
        cache=_L2,
        units=_SMS,
        clock=mhz(1980, SHEET),
        matrix_clock=_MATRIX_CLOCK,
        notes=(
            _BURST,
            "fp64 was cut for export: no arithmetic gives it.",
            "fp32: a database prints 59.3, at 1755 MHz. nanochat gives it the H100 PCIe's bf16.",
            "H800 PCIe is another product (756 TFLOP/s bf16, 2.0 TB/s) and does not match.",
        ),
    ),
    profile(
        "gh200-96",
        "NVIDIA GH200 480GB",
        arch="sm_90",
        peak=_GH200,
        bandwidth=gb_per_s(4000, cite(ML_ENGINEERING, SHEET), HIGH),
        memory=gib(96, cite(ML_ENGINEERING, SHEET), HIGH),
        cache=mib(50, ML_ENGINEERING),
        units=sms(132, DEVICE_QUERY, HIGH),
        clock=mhz(1980, DEVICE_QUERY, HIGH),
        matrix_clock=_MATRIX_CLOCK,
        notes=(_BURST, _GRACE),
    ),
    profile(
        "gh200-144",
        "NVIDIA GH200 144G HBM3e",
        arch="sm_90",
        peak=_GH200,
        bandwidth=gb_per_s(4900, cite(ML_ENGINEERING, SHEET)),
        memory=gib(144, cite(ML_ENGINEERING, SHEET)),
        cache=mib(50, ML_ENGINEERING),
        units=sms(132, DEVICE_QUERY, HIGH),
        clock=mhz(1980, DEVICE_QUERY, HIGH),
        matrix_clock=_MATRIX_CLOCK,
        notes=(_BURST, "Another table prints 141 GB and 4.8 TB/s for the part with HBM3e."),
    ),
)
