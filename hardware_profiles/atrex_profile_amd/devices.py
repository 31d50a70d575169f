"""The table. To add a device, append a row: driver names, CU count, dense peaks.

One target (gfx942) covers products whose peaks differ by a factor of six, and drivers in
containers or virtual machines often print only a generic name. There the number of compute
units decides, so every row states it.
"""

from __future__ import annotations

from typing import Final

from atrex_profile_amd.sources import (
    AITER,
    ARITHMETIC,
    ATREX_XPU_A,
    CDNA3_PAPER,
    COMPUTE_PROFILER,
    GPU_DATABASE,
    MI300X_SHEET,
    MI308X_ARITHMETIC,
    ML_ENGINEERING,
    PRODUCT_PAGE,
    ROCM_SPECS,
    cite,
)
from atrex_profile_amd.table import (
    HIGH,
    LOW,
    cus,
    gb_per_s,
    gib,
    mhz,
    mib,
    peaks,
    profile,
)

_PACKED: Final = (
    "fp32 vector is the packed rate; code without packed instructions reaches half of it."
)
_PACKED_CDNA2: Final = (
    "fp32 vector is the packed rate; pages print half of it as the vector peak, and this as that "
    "of the matrix units."
)
_CACHE: Final = (
    "The last-level cache is the 256 MiB Infinity Cache, not the 4 MiB L2 that drivers report."
)
_TWIN: Final = (
    "MI300X and MI325X have target and CU count in common: under a generic name the size of the "
    "memory decides, and one that reports none matches neither."
)
_CDNA2: Final = "No fp8 and no tf32."
_CDNA4: Final = "No tf32. fp64 on the matrix units is no faster than on the vector units."
_MI350: Final = "MI350X and MI355X differ in clock alone: under a generic name neither matches."
_DUAL_ISSUE: Final = "fp32 vector is the dual-issue rate."
_CUS: Final = cite(ROCM_SPECS, COMPUTE_PROFILER)
_CLOCKED: Final = cite(ML_ENGINEERING, ARITHMETIC)

PROFILES: Final = (
    profile(
        "mi210",
        "AMD Instinct MI210",
        arch="gfx90a",
        peak=peaks(cite(PRODUCT_PAGE, GPU_DATABASE), HIGH, fp64_vector=22.6)
        | peaks(PRODUCT_PAGE, fp64_matrix=45.3, fp32_vector=45.3, int8_matrix=181)
        | peaks(cite(PRODUCT_PAGE, ARITHMETIC), HIGH, fp16_matrix=181, bf16_matrix=181),
        bandwidth=gb_per_s(1638, cite(ROCM_SPECS, GPU_DATABASE), HIGH),
        memory=gib(64, ROCM_SPECS, HIGH),
        cache=mib(8, ROCM_SPECS, HIGH),
        units=cus(104, ROCM_SPECS, HIGH),
        clock=mhz(1700, GPU_DATABASE),
        notes=(_CDNA2, _PACKED_CDNA2, "L2: a database prints the 16 MB of two dies."),
    ),
    profile(
        "mi250x",
        "AMD Instinct MI250X",
        arch="gfx90a",
        peak=peaks(cite(ML_ENGINEERING, GPU_DATABASE), HIGH, fp64_vector=23.95)
        | peaks(PRODUCT_PAGE, fp64_matrix=47.85, fp32_vector=47.85)
        | peaks(_CLOCKED, HIGH, fp16_matrix=191.5, bf16_matrix=191.5)
        | peaks(ML_ENGINEERING, HIGH, int8_matrix=191.5),
        bandwidth=gb_per_s(1638.5, cite(ML_ENGINEERING, GPU_DATABASE), HIGH),
        memory=gib(64, cite(ML_ENGINEERING, GPU_DATABASE), HIGH),
        cache=mib(8, ROCM_SPECS, HIGH),
        units=cus(110, ROCM_SPECS, HIGH),
        clock=mhz(1700, GPU_DATABASE),
        notes=(
            "One of the two dies: drivers show each as a device, sheets print both together.",
            _CDNA2,
            _PACKED_CDNA2,
        ),
    ),
    profile(
        "mi300a",
        "AMD Instinct MI300A",
        arch="gfx942",
        peak=peaks(PRODUCT_PAGE, fp64_vector=61.3, fp64_matrix=122.6, fp32_vector=122.6)
        | peaks(cite(PRODUCT_PAGE, ARITHMETIC), HIGH, tf32_matrix=490.3)
        | peaks(ARITHMETIC, fp16_matrix=980.6, bf16_matrix=980.6)
        | peaks(ARITHMETIC, fp8_matrix=1961.2, int8_matrix=1961.2),
        bandwidth=gb_per_s(5300, ROCM_SPECS, HIGH),
        memory=gib(128, ROCM_SPECS, HIGH),
        cache=mib(256, ROCM_SPECS, HIGH),
        units=cus(228, _CUS, HIGH),
        clock=mhz(2100, ARITHMETIC),
        notes=(
            _PACKED,
            _CACHE,
            "The memory is shared with the CPU. A database repeats the MI300X for it.",
        ),
    ),
    profile(
        "mi300x",
        "AMD Instinct MI300X",
        "AMD Instinct MI300X OAM",
        "AMD Instinct MI300X VF",
        arch="gfx942",
        peak=peaks(MI300X_SHEET, HIGH, fp64_vector=81.7, fp32_vector=163.4, tf32_matrix=653.7)
        | peaks(MI300X_SHEET, fp64_matrix=163.4)
        | peaks(MI300X_SHEET, HIGH, fp16_matrix=1307.4, bf16_matrix=1307.4)
        | peaks(MI300X_SHEET, HIGH, fp8_matrix=2614.9, int8_matrix=2614.9),
        bandwidth=gb_per_s(5300, cite(MI300X_SHEET, CDNA3_PAPER), HIGH),
        memory=gib(192, cite(ML_ENGINEERING, ROCM_SPECS), HIGH),
        cache=mib(256, cite(ML_ENGINEERING, ROCM_SPECS), HIGH),
        units=cus(304, _CUS, HIGH),
        clock=mhz(2100, GPU_DATABASE),
        has_twin=True,
        notes=(
            _PACKED,
            _CACHE,
            _TWIN,
            "bf16: tables print 1300, 1336 and 383; a database prints 10.3 TB/s.",
        ),
    ),
    profile(
        "mi308x",
        "AMD Instinct MI308X",
        "AMD Instinct MI308X OAM",
        "AMD Instinct MI308X VF",
        arch="gfx942",
        peak=peaks(MI308X_ARITHMETIC, fp64_vector=14.5, fp64_matrix=29.1, int8_matrix=465.3)
        | peaks(MI308X_ARITHMETIC, LOW, tf32_matrix=116.3)
        | peaks(cite(ATREX_XPU_A, MI308X_ARITHMETIC), HIGH, fp32_vector=29.1)
        | peaks(ATREX_XPU_A, fp16_matrix=232.65, bf16_matrix=232.65, fp8_matrix=465.3),
        bandwidth=gb_per_s(5300, ATREX_XPU_A, HIGH),
        memory=gib(192, COMPUTE_PROFILER),
        cache=mib(256, COMPUTE_PROFILER),
        units=cus(80, cite(AITER, COMPUTE_PROFILER), HIGH),
        clock=mhz(1420, ARITHMETIC),
        notes=(
            _PACKED,
            _CACHE,
            "Other public tables print 206 or 188 TFLOP/s for bf16; they fit lower clocks.",
            "A database repeats the MI300X for it; a wiki prints 43 TFLOP/s fp32 and 128 GB.",
        ),
    ),
    profile(
        "mi325x",
        "AMD Instinct MI325X",
        "AMD Instinct MI325 OAM",
        arch="gfx942",
        peak=peaks(PRODUCT_PAGE, fp64_vector=81.7, fp64_matrix=163.4)
        | peaks(ML_ENGINEERING, HIGH, fp32_vector=163.4, tf32_matrix=653.7)
        | peaks(_CLOCKED, HIGH, fp16_matrix=1307.4, bf16_matrix=1307.4)
        | peaks(_CLOCKED, HIGH, fp8_matrix=2614.9, int8_matrix=2614.9),
        bandwidth=gb_per_s(6000, ML_ENGINEERING, HIGH),
        memory=gib(256, ML_ENGINEERING, HIGH),
        cache=mib(256, ML_ENGINEERING, HIGH),
        units=cus(304, ROCM_SPECS, HIGH),
        clock=mhz(2100, GPU_DATABASE),
        has_twin=True,
        notes=(_PACKED, _CACHE, _TWIN, "A database prints 288 GB and 10.3 TB/s."),
    ),
    profile(
        "mi350x",
        "AMD Instinct MI350X",
        arch="gfx950",
        peak=peaks(cite(GPU_DATABASE, PRODUCT_PAGE), HIGH, fp64_vector=72.1)
        | peaks(PRODUCT_PAGE, fp64_matrix=72.1)
        | peaks(ML_ENGINEERING, HIGH, fp32_vector=144.2)
        | peaks(_CLOCKED, HIGH, fp16_matrix=2306.9, bf16_matrix=2306.9)
        | peaks(_CLOCKED, HIGH, fp8_matrix=4613.8, int8_matrix=4613.8)
        | peaks(_CLOCKED, HIGH, fp6_matrix=9227.6, fp4_matrix=9227.6),
        bandwidth=gb_per_s(8000, ML_ENGINEERING, HIGH),
        memory=gib(288, ML_ENGINEERING, HIGH),
        cache=mib(256, ML_ENGINEERING, HIGH),
        units=cus(256, _CUS, HIGH),
        clock=mhz(2200, cite(GPU_DATABASE, ML_ENGINEERING), HIGH),
        is_generic=False,
        notes=(_PACKED, _CACHE, _CDNA4, _MI350, "Bandwidth: a database prints 8190 GB/s."),
    ),
    profile(
        "mi355x",
        "AMD Instinct MI355X",
        "AMD Instinct MI355 OAM",
        arch="gfx950",
        peak=peaks(cite(GPU_DATABASE, PRODUCT_PAGE), HIGH, fp64_vector=78.6)
        | peaks(PRODUCT_PAGE, fp64_matrix=78.6)
        | peaks(ML_ENGINEERING, HIGH, fp32_vector=157.3)
        | peaks(_CLOCKED, HIGH, fp16_matrix=2516.6, bf16_matrix=2516.6)
        | peaks(_CLOCKED, HIGH, fp8_matrix=5033.2, int8_matrix=5033.2)
        | peaks(_CLOCKED, HIGH, fp6_matrix=10066.4, fp4_matrix=10066.4),
        bandwidth=gb_per_s(8000, ML_ENGINEERING, HIGH),
        memory=gib(288, ML_ENGINEERING, HIGH),
        cache=mib(256, ML_ENGINEERING, HIGH),
        units=cus(256, _CUS, HIGH),
        clock=mhz(2400, cite(GPU_DATABASE, ML_ENGINEERING), HIGH),
        is_generic=False,
        notes=(
            _PACKED,
            _CACHE,
            _CDNA4,
            _MI350,
            "bf16: tables print 2300 and 2500.",
        ),
    ),
    profile(
        "rx7900xtx",
        "AMD Radeon RX 7900 XTX",
        arch="gfx1100",
        peak=peaks(GPU_DATABASE, fp64_vector=1.92, fp32_vector=61.4)
        | peaks(ARITHMETIC, fp16_matrix=122.8, bf16_matrix=122.8, int8_matrix=122.8),
        bandwidth=gb_per_s(960, GPU_DATABASE),
        memory=gib(24, GPU_DATABASE),
        cache=mib(96, ROCM_SPECS, HIGH),
        units=cus(96, ROCM_SPECS, HIGH),
        clock=mhz(2500, GPU_DATABASE),
        is_card=True,
        notes=(_DUAL_ISSUE, "No fp8 and no tf32. CUs: a database prints 192."),
    ),
    profile(
        "rx9070xt",
        "AMD Radeon RX 9070 XT",
        arch="gfx1201",
        peak=peaks(GPU_DATABASE, fp64_vector=1.52, fp32_vector=48.7)
        | peaks(ARITHMETIC, fp16_matrix=194.6, bf16_matrix=194.6)
        | peaks(ARITHMETIC, fp8_matrix=389.3, int8_matrix=389.3),
        bandwidth=gb_per_s(644.6, GPU_DATABASE),
        memory=gib(16, GPU_DATABASE),
        cache=mib(64, ROCM_SPECS, HIGH),
        units=cus(64, ROCM_SPECS, HIGH),
        clock=mhz(2970, GPU_DATABASE),
        is_card=True,
        notes=(
            _DUAL_ISSUE,
            "Bandwidth: the sheet prints 640 GB/s. 1557 TOPS on the box are sparse int4.",
        ),
    ),
)
