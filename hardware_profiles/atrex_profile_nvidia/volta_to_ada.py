"""V100 to RTX 4090: targets sm_70 to sm_89."""

from __future__ import annotations

from typing import Final

from atrex_profile_nvidia.sources import (
    ARITHMETIC,
    DEVICE_QUERY,
    GPU_DATABASE,
    LIGHTNING,
    LLM_ANALYSIS,
    ML_ENGINEERING,
    NSIGHT,
    SHEET,
    cite,
)
from atrex_profile_nvidia.table import (
    HIGH,
    LOW,
    MEDIUM,
    Peaks,
    gb_per_s,
    gib,
    mhz,
    mib,
    peaks,
    profile,
    sms,
)

_VOLTA: Final = (
    "No bf16, tf32 or fp8. int8 runs on the vector units (dp4a, four times fp32).",
    "Sold with 16 and with 32 GB under two driver names.",
)
_HALF_RATE: Final = (
    "fp16, bf16 and fp8 are the rates with fp32 accumulation, half of those with fp16 "
    "accumulation that headlines print."
)
_GA102_FP64: Final = "CUDA gives this target 4 fp64 operations per SM and clock: 0.49 TFLOP/s."
_A100_POWER: Final = "250 to 300 W: it sustains less than the SXM part of the same sheet."
_A100_CACHE: Final = "L2: the driver reports 41,943,040 B; a database prints 80 MB for this part."
_A100_80_BANDWIDTH: Final = "Bandwidth: tables print 1935 or 2000 GB/s for any A100 with 80 GB."

_A100: Final[Peaks] = {
    **peaks(GPU_DATABASE, fp64_vector=9.7),
    **peaks(SHEET, fp64_matrix=19.5),
    **peaks(cite(ML_ENGINEERING, GPU_DATABASE), HIGH, fp32_vector=19.5),
    **peaks(ML_ENGINEERING, HIGH, tf32_matrix=156, int8_matrix=624),
    **peaks(cite(ML_ENGINEERING, ARITHMETIC), HIGH, fp16_matrix=312, bf16_matrix=312),
}
_A100_L2: Final = mib(40, cite(GPU_DATABASE, NSIGHT), HIGH)
_A100_SMS: Final = sms(108, GPU_DATABASE)
_A100_CLOCK: Final = mhz(1410, cite(GPU_DATABASE, NSIGHT), HIGH)

PROFILES: Final = (
    profile(
        "v100-sxm2",
        "Tesla V100-SXM2-16GB",
        "Tesla V100-SXM2-32GB",
        arch="sm_70",
        peak=peaks(GPU_DATABASE, fp64_vector=7.8)
        | peaks(cite(GPU_DATABASE, LIGHTNING), HIGH, fp32_vector=15.7)
        | peaks(cite(LIGHTNING, ARITHMETIC), HIGH, fp16_matrix=125),
        bandwidth=gb_per_s(900, SHEET),
        cache=mib(6, GPU_DATABASE),
        units=sms(80, GPU_DATABASE),
        clock=mhz(1530, GPU_DATABASE),
        notes=(*_VOLTA, "Bandwidth: a database prints 898 GB/s."),
    ),
    profile(
        "v100-pcie",
        "Tesla V100-PCIE-16GB",
        "Tesla V100-PCIE-32GB",
        arch="sm_70",
        peak=peaks(SHEET, fp64_vector=7.0)
        | peaks(LIGHTNING, fp32_vector=14.0)
        | peaks(cite(LIGHTNING, ARITHMETIC), HIGH, fp16_matrix=112),
        bandwidth=gb_per_s(900, GPU_DATABASE),
        cache=mib(6, GPU_DATABASE),
        units=sms(80, GPU_DATABASE),
        clock=mhz(1380, GPU_DATABASE),
        notes=(*_VOLTA, "V100S is another product (130 TFLOP/s fp16, 1134 GB/s), not matched."),
    ),
    profile(
        "t4",
        "Tesla T4",
        arch="sm_75",
        peak=peaks(GPU_DATABASE, fp64_vector=0.25)
        | peaks(cite(GPU_DATABASE, LIGHTNING), HIGH, fp32_vector=8.1)
        | peaks(cite(LIGHTNING, ARITHMETIC), HIGH, fp16_matrix=65)
        | peaks(LIGHTNING, int8_matrix=130),
        bandwidth=gb_per_s(320, GPU_DATABASE),
        memory=gib(16, GPU_DATABASE),
        cache=mib(4, GPU_DATABASE),
        units=sms(40, GPU_DATABASE),
        clock=mhz(1590, GPU_DATABASE),
        notes=(
            "A card of 70 W: sustained clocks are well under 1590 MHz.",
            "Bandwidth: KernelBench and an older sheet print 300 GB/s.",
        ),
    ),
    profile(
        "a10",
        "NVIDIA A10",
        arch="sm_86",
        peak=peaks(GPU_DATABASE, LOW, fp64_vector=0.98)
        | peaks(GPU_DATABASE, fp32_vector=31.2)
        | peaks(SHEET, tf32_matrix=62.5, int8_matrix=250)
        | peaks(cite(ARITHMETIC, SHEET), HIGH, fp16_matrix=125, bf16_matrix=125),
        bandwidth=gb_per_s(600, GPU_DATABASE),
        memory=gib(24, GPU_DATABASE),
        cache=mib(6, cite(GPU_DATABASE, DEVICE_QUERY), HIGH),
        units=sms(72, GPU_DATABASE),
        clock=mhz(1695, cite(GPU_DATABASE, DEVICE_QUERY), HIGH),
        notes=(_GA102_FP64,),
    ),
    profile(
        "a10g",
        "NVIDIA A10G",
        arch="sm_86",
        peak=peaks(LLM_ANALYSIS, fp32_vector=35, fp16_matrix=70, bf16_matrix=70, int8_matrix=140),
        bandwidth=gb_per_s(600, GPU_DATABASE),
        memory=gib(24, GPU_DATABASE),
        cache=mib(6, GPU_DATABASE),
        units=sms(80, LLM_ANALYSIS, LOW),
        clock=mhz(1710, GPU_DATABASE),
        notes=(
            "bf16: KernelBench, Lightning and Composer print 125, which is the A10's.",
            "SMs: a database prints 72.",
            "No figure for tf32 or fp64 was found.",
        ),
    ),
    profile(
        "a100-sxm4-40",
        "NVIDIA A100-SXM4-40GB",
        arch="sm_80",
        peak=_A100,
        bandwidth=gb_per_s(1555, cite(SHEET, GPU_DATABASE), HIGH),
        memory=gib(40, cite(SHEET, GPU_DATABASE), HIGH),
        cache=_A100_L2,
        units=_A100_SMS,
        clock=_A100_CLOCK,
    ),
    profile(
        "a100-pcie-40",
        "NVIDIA A100-PCIE-40GB",
        arch="sm_80",
        peak=_A100,
        bandwidth=gb_per_s(1555, cite(SHEET, GPU_DATABASE), HIGH),
        memory=gib(40, cite(SHEET, GPU_DATABASE), HIGH),
        cache=_A100_L2,
        units=_A100_SMS,
        clock=_A100_CLOCK,
        notes=(_A100_POWER,),
    ),
    profile(
        "a100-sxm4-80",
        "NVIDIA A100-SXM4-80GB",
        arch="sm_80",
        peak=_A100,
        bandwidth=gb_per_s(2039, cite(ML_ENGINEERING, NSIGHT), HIGH),
        memory=gib(80, cite(ML_ENGINEERING, NSIGHT), HIGH),
        cache=_A100_L2,
        units=_A100_SMS,
        clock=_A100_CLOCK,
        notes=(_A100_80_BANDWIDTH,),
    ),
    profile(
        "a800-sxm4-80",
        "NVIDIA A800-SXM4-80GB",
        arch="sm_80",
        peak=_A100,
        bandwidth=gb_per_s(2039, cite(ML_ENGINEERING, NSIGHT)),
        memory=gib(80, ML_ENGINEERING),
        cache=_A100_L2,
        units=_A100_SMS,
        clock=_A100_CLOCK,
        notes=("The A100 SXM 80 GB with a slower NVLink: the figures are that part's.",),
    ),
    profile(
        "a100-pcie-80",
        "NVIDIA A100 80GB PCIe",
        arch="sm_80",
        peak=_A100,
        bandwidth=gb_per_s(1935, cite(SHEET, GPU_DATABASE), HIGH),
        memory=gib(80, cite(SHEET, GPU_DATABASE), HIGH),
        cache=_A100_L2,
        units=_A100_SMS,
        clock=_A100_CLOCK,
        notes=(_A100_POWER, _A100_CACHE, _A100_80_BANDWIDTH),
    ),
    profile(
        "a30",
        "NVIDIA A30",
        arch="sm_80",
        peak=peaks(GPU_DATABASE, fp64_vector=5.2, fp32_vector=10.3)
        | peaks(SHEET, fp64_matrix=10.3, tf32_matrix=82, int8_matrix=330)
        | peaks(cite(ARITHMETIC, SHEET), HIGH, fp16_matrix=165, bf16_matrix=165),
        bandwidth=gb_per_s(933, GPU_DATABASE),
        memory=gib(24, GPU_DATABASE),
        cache=mib(24, GPU_DATABASE),
        units=sms(56, GPU_DATABASE),
        clock=mhz(1440, GPU_DATABASE),
    ),
    profile(
        "l4",
        "NVIDIA L4",
        arch="sm_89",
        peak=peaks(GPU_DATABASE, fp64_vector=0.47, fp32_vector=30.3)
        | peaks(ARITHMETIC, tf32_matrix=60.5, fp8_matrix=242.5, int8_matrix=242.5)
        | peaks(cite(ARITHMETIC, LIGHTNING), HIGH, fp16_matrix=121, bf16_matrix=121),
        bandwidth=gb_per_s(300, GPU_DATABASE),
        memory=gib(24, GPU_DATABASE),
        cache=mib(48, GPU_DATABASE),
        units=sms(58, cite(SHEET, "7424 lanes at 128 an SM"), HIGH),
        clock=mhz(2040, GPU_DATABASE),
        notes=(
            "The sheet's 120, 242 and 485 are with sparsity; torch's Inductor takes them as dense.",
            "SMs: a database prints 60. A card of 72 W: sustained clocks are far lower.",
        ),
    ),
    profile(
        "l40s",
        "NVIDIA L40S",
        arch="sm_89",
        peak=peaks(GPU_DATABASE, fp64_vector=1.43)
        | peaks(cite(ML_ENGINEERING, GPU_DATABASE), HIGH, fp32_vector=91.6)
        | peaks(ML_ENGINEERING, HIGH, tf32_matrix=183, fp8_matrix=733, int8_matrix=733)
        | peaks(cite(ML_ENGINEERING, ARITHMETIC), HIGH, fp16_matrix=362, bf16_matrix=362),
        bandwidth=gb_per_s(864, GPU_DATABASE),
        memory=gib(48, GPU_DATABASE),
        cache=mib(96, DEVICE_QUERY, HIGH),
        units=sms(142, GPU_DATABASE),
        clock=mhz(2520, cite(GPU_DATABASE, DEVICE_QUERY), HIGH),
        notes=(
            "L2: the driver reports 100,663,296 B; a database and resellers print 48 MB.",
            "The L40 has half of these matrix peaks and another name.",
        ),
    ),
    profile(
        "rtx3090",
        "NVIDIA GeForce RTX 3090",
        arch="sm_86",
        peak=peaks(GPU_DATABASE, fp64_vector=0.56, fp32_vector=35.6)
        | peaks(ARITHMETIC, tf32_matrix=35.6, fp16_matrix=71.2, bf16_matrix=71.2)
        | peaks(ARITHMETIC, int8_matrix=284.6),
        bandwidth=gb_per_s(936.2, GPU_DATABASE),
        memory=gib(24, GPU_DATABASE),
        cache=mib(6, GPU_DATABASE),
        units=sms(82, GPU_DATABASE),
        clock=mhz(1695, GPU_DATABASE),
        notes=(_HALF_RATE,),
    ),
    profile(
        "rtx4090",
        "NVIDIA GeForce RTX 4090",
        arch="sm_89",
        peak=peaks(GPU_DATABASE, MEDIUM, fp64_vector=1.29, fp32_vector=82.6)
        | peaks(ARITHMETIC, HIGH, tf32_matrix=82.6, fp16_matrix=165.2, bf16_matrix=165.2)
        | peaks(ARITHMETIC, HIGH, fp8_matrix=330.3, int8_matrix=660.6),
        bandwidth=gb_per_s(1008, GPU_DATABASE),
        memory=gib(24, GPU_DATABASE),
        cache=mib(72, GPU_DATABASE),
        units=sms(128, GPU_DATABASE),
        clock=mhz(2520, GPU_DATABASE),
        notes=(_HALF_RATE, "It boosts to about 2700 MHz, 7% above the sheet."),
    ),
)
