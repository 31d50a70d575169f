"""B200 to RTX 5090: targets sm_100, sm_103 and sm_120."""

from __future__ import annotations

from typing import Final

from atrex_profile_nvidia.sources import (
    AICONFIGURATOR,
    ARITHMETIC,
    B300_CACHE,
    GPU_DATABASE,
    ML_ENGINEERING,
    PRODUCT_PAGE,
    SHEET,
    TRACE,
    UNCONFIRMED,
    cite,
)
from atrex_profile_nvidia.table import (
    HIGH,
    LOW,
    gb_per_s,
    gib,
    mhz,
    mib,
    peaks,
    profile,
    sms,
)

_RTX_MEMORY: Final = gib(96, GPU_DATABASE)
_RTX_L2: Final = mib(128, GPU_DATABASE)
_RTX_SMS: Final = sms(188, GPU_DATABASE)
_RTX_SPARSE: Final = "The sheet's 4000 TOPS are fp4 with sparsity."
_HALF_RATE: Final = (
    "fp16, bf16 and fp8 are the rates with fp32 accumulation, half of those with fp16 "
    "accumulation that headlines print; aiconfigurator prints the latter, 419, for bf16."
)
_BLOCK_SCALED: Final = (
    "fp8 is that of the plain instructions. Block-scaled ones (mxfp8) are not halved: mmapeak "
    "measured 732 of 838 TFLOP/s, and a share above 1 is then honest."
)
_SUPERCHIP: Final = "One of the two GPUs of a superchip, which sheets describe as a whole."
_INT8_CUT: Final = "int8 was cut on this part: no arithmetic gives it, and it is the least certain."

PROFILES: Final = (
    profile(
        "b200",
        "NVIDIA B200",
        arch="sm_100",
        peak=peaks(SHEET, fp64_vector=37)
        | peaks(cite(SHEET, GPU_DATABASE), fp32_vector=75)
        | peaks(ML_ENGINEERING, HIGH, tf32_matrix=1125, int8_matrix=4500, fp6_matrix=4500)
        | peaks(cite(ML_ENGINEERING, SHEET), HIGH, fp16_matrix=2250, bf16_matrix=2250)
        | peaks(cite(ML_ENGINEERING, SHEET), HIGH, fp8_matrix=4500, fp4_matrix=9000),
        bandwidth=gb_per_s(8000, ML_ENGINEERING, HIGH),
        memory=gib(180, ML_ENGINEERING, HIGH),
        cache=mib(126, ML_ENGINEERING),
        units=sms(148, cite(GPU_DATABASE, TRACE), HIGH),
        clock=mhz(1965, GPU_DATABASE),
        notes=(
            "Matrix peaks fit 1856 MHz; at 1965 MHz the units come to 6% more (bf16 2382).",
            "fp32: another table prints 80, the GB200's. nvfp4: it prints 10000, the GB200's too.",
            "Bandwidth: the memory clock gives 8184 GB/s; a database describes one of two dies.",
            "L2: NVlabs/SOLAR takes 192 MB.",
        ),
    ),
    profile(
        "b300",
        "NVIDIA B300 SXM6 AC",
        "NVIDIA B300 SXM6 PC",
        arch="sm_103",
        peak=peaks(cite(SHEET, GPU_DATABASE), fp64_vector=1.25, fp32_vector=75)
        | peaks(ML_ENGINEERING, HIGH, tf32_matrix=1125, fp16_matrix=2250, bf16_matrix=2250)
        | peaks(ML_ENGINEERING, HIGH, fp8_matrix=4500)
        | peaks(ML_ENGINEERING, fp6_matrix=4500)
        | peaks(f"{PRODUCT_PAGE}: HGX B300, 108 PFLOP/s dense for eight", fp4_matrix=13500)
        | peaks(f"{PRODUCT_PAGE}: HGX B300, sparse, for eight", LOW, int8_matrix=187.5),
        bandwidth=gb_per_s(8000, ML_ENGINEERING, HIGH),
        memory=gib(288e9 / 2**30, ML_ENGINEERING, HIGH),
        cache=mib(126.5, B300_CACHE, HIGH),
        units=sms(148, cite(GPU_DATABASE, B300_CACHE), HIGH),
        clock=mhz(2032, cite(GPU_DATABASE, B300_CACHE), HIGH),
        notes=(
            "Matrix peaks fit 1856 MHz; at 2032 MHz the units come to 9.5% more (bf16 2464).",
            "fp32: 77 by arithmetic; another table prints 80.",
            "fp64 was cut on this part: no arithmetic gives it.",
            f"{_INT8_CUT} Another table prints the B200's 4500.",
            "fp4: another table prints 12600, and 15000 for nvfp4.",
            "SMs: a wiki prints 160, those of the full die.",
        ),
    ),
    profile(
        "gb200",
        "NVIDIA GB200",
        arch="sm_100",
        peak=peaks(SHEET, fp64_vector=40)
        | peaks(ML_ENGINEERING, HIGH, fp32_vector=80, tf32_matrix=1250, int8_matrix=5000)
        | peaks(ML_ENGINEERING, HIGH, fp16_matrix=2500, bf16_matrix=2500)
        | peaks(ML_ENGINEERING, HIGH, fp8_matrix=5000, fp6_matrix=5000, fp4_matrix=10000),
        bandwidth=gb_per_s(8000, ML_ENGINEERING, HIGH),
        memory=gib(186, ML_ENGINEERING, HIGH),
        cache=mib(126, ML_ENGINEERING),
        units=sms(152, UNCONFIRMED, LOW),
        clock=mhz(2062, UNCONFIRMED, LOW),
        notes=(
            _SUPERCHIP,
            "Matrix peaks are 3% under what 152 SMs at 2062 MHz come to.",
        ),
    ),
    profile(
        "gb300",
        "NVIDIA GB300",
        arch="sm_103",
        peak=peaks(SHEET, fp64_vector=1.3)
        | peaks(ML_ENGINEERING, HIGH, fp32_vector=80, tf32_matrix=1250)
        | peaks(ML_ENGINEERING, HIGH, fp16_matrix=2500, bf16_matrix=2500)
        | peaks(ML_ENGINEERING, HIGH, fp8_matrix=5000, fp4_matrix=15000)
        | peaks(ML_ENGINEERING, fp6_matrix=5000)
        | peaks(f"{PRODUCT_PAGE}: GB300 NVL72, sparse, for all", LOW, int8_matrix=165),
        bandwidth=gb_per_s(8000, ML_ENGINEERING, HIGH),
        memory=gib(288e9 / 2**30, ML_ENGINEERING, HIGH),
        cache=mib(126.5, B300_CACHE),
        units=sms(152, UNCONFIRMED, LOW),
        clock=mhz(2062, UNCONFIRMED, LOW),
        notes=(
            _SUPERCHIP,
            "Matrix peaks are 3% under what 152 SMs at 2062 MHz come to.",
            "fp64 was cut on this part: no arithmetic gives it.",
            f"{_INT8_CUT} Another table prints the GB200's 5000.",
        ),
    ),
    profile(
        "rtx5090",
        "NVIDIA GeForce RTX 5090",
        arch="sm_120",
        peak=peaks(GPU_DATABASE, fp64_vector=1.64, fp32_vector=104.8)
        | peaks(ARITHMETIC, tf32_matrix=104.8, fp16_matrix=209.5, bf16_matrix=209.5)
        | peaks(ARITHMETIC, fp8_matrix=419, int8_matrix=838)
        | peaks(cite(ARITHMETIC, SHEET), fp4_matrix=1676),
        bandwidth=gb_per_s(1792, GPU_DATABASE),
        memory=gib(32, GPU_DATABASE),
        cache=mib(96, GPU_DATABASE),
        units=sms(170, GPU_DATABASE),
        clock=mhz(2407, GPU_DATABASE),
        notes=(
            _HALF_RATE,
            _BLOCK_SCALED,
            "The 3352 TOPS on the box are fp4 with sparsity.",
            "The part may clock at 2900 MHz and more, 20% above the sheet.",
            "RTX 5090 D has the same SMs, about 58% of the matrix peaks, and does not match.",
        ),
    ),
    profile(
        "rtx-pro-6000-ws",
        "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
        arch="sm_120",
        peak=peaks(GPU_DATABASE, fp64_vector=1.97, fp32_vector=126)
        | peaks(ARITHMETIC, tf32_matrix=251.9, fp16_matrix=503.8, bf16_matrix=503.8)
        | peaks(ARITHMETIC, fp8_matrix=1007.6, int8_matrix=1007.6, fp4_matrix=2015.2),
        bandwidth=gb_per_s(1792, GPU_DATABASE),
        memory=_RTX_MEMORY,
        cache=_RTX_L2,
        units=_RTX_SMS,
        clock=mhz(2617, GPU_DATABASE),
        notes=(_RTX_SPARSE,),
    ),
    profile(
        "rtx-pro-6000-server",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        arch="sm_120",
        peak=peaks(GPU_DATABASE, fp64_vector=1.88)
        | peaks(UNCONFIRMED, LOW, fp32_vector=120)
        | peaks(ARITHMETIC, tf32_matrix=233.9, fp16_matrix=467.8, bf16_matrix=467.8)
        | peaks(ARITHMETIC, fp8_matrix=935.6, int8_matrix=935.6, fp4_matrix=1871.2),
        bandwidth=gb_per_s(1597, PRODUCT_PAGE),
        memory=_RTX_MEMORY,
        cache=_RTX_L2,
        units=_RTX_SMS,
        clock=mhz(2430, AICONFIGURATOR),
        notes=(
            _RTX_SPARSE,
            "fp32 and fp64 are printed for a higher clock; 2430 MHz comes to 117 and 1.83.",
            "Bandwidth: aiconfigurator and a database print the workstation part's 1792 GB/s.",
        ),
    ),
    profile(
        "rtx-pro-6000-maxq",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        arch="sm_120",
        peak=peaks(GPU_DATABASE, fp64_vector=1.71, fp32_vector=109.7)
        | peaks(ARITHMETIC, tf32_matrix=219.4, fp16_matrix=438.9, bf16_matrix=438.9)
        | peaks(ARITHMETIC, fp8_matrix=877.8, int8_matrix=877.8, fp4_matrix=1755.6),
        bandwidth=gb_per_s(1792, GPU_DATABASE),
        memory=_RTX_MEMORY,
        cache=_RTX_L2,
        units=_RTX_SMS,
        clock=mhz(2280, GPU_DATABASE),
        notes=(_RTX_SPARSE,),
    ),
)
