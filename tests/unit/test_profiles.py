"""Which device a published profile describes, and what it says."""

from __future__ import annotations

import subprocess
import sys

import atrex_profile_amd
import atrex_profile_intel
import atrex_profile_nvidia
import pytest

from atrex_core import ArithmeticPath, Device

PUBLISHED = [
    *atrex_profile_nvidia.atrex_hardware_profiles(),
    *atrex_profile_amd.atrex_hardware_profiles(),
    *atrex_profile_intel.atrex_hardware_profiles(),
]
GIB = 2**30


def described_by(name: str, **facts: object) -> list[str]:
    options: dict[str, object] = {
        "id": "device:0",
        "accelerator": "cuda",
        "vendor": "nvidia",
        "arch": "sm_90",
    }
    device = Device(name=name, **{**options, **facts})  # type: ignore[arg-type]
    return [profile.name for profile in PUBLISHED if profile.match.accepts(device)]


# -- published ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H20", ["h20"]),
        ("H20", ["h20"]),
        ("nvidia_h20", ["h20"]),
        ("NVIDIA H20-3e", ["h20-3e"]),
        ("NVIDIA H20Z", []),
        ("NVIDIA H200", ["h200"]),
        ("NVIDIA_H200", ["h200"]),
        ("nvidia h200", ["h200"]),
        ("Tesla H200", ["h200"]),
        ("NVIDIA H200 NVL", []),
        ("NVIDIA H200 MIG 1g.18gb", []),
        ("NVIDIA H100 80GB HBM3", ["h100-sxm"]),
        ("NVIDIA_H100_80GB_HBM3", ["h100-sxm"]),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", []),
        ("NVIDIA H100", []),
        ("NVIDIA H100 PCIe", ["h100-pcie"]),
        ("NVIDIA H100 NVL", ["h100-nvl"]),
        ("NVIDIA H800", ["h800-sxm"]),
        ("NVIDIA H800 PCIe", []),
        ("NVIDIA GH200 480GB", ["gh200-96"]),
        ("NVIDIA GH200 144G HBM3e", ["gh200-144"]),
        ("NVIDIA GH200", []),
        ("NVIDIA B200", ["b200"]),
        ("NVIDIA GB200", ["gb200"]),
        ("NVIDIA_B300_SXM6_AC", ["b300"]),
        ("NVIDIA B300", []),
        ("Tesla V100-SXM2-32GB", ["v100-sxm2"]),
        ("Tesla V100S-PCIE-32GB", []),
        ("Tesla T4", ["t4"]),
        ("T4", ["t4"]),
        ("NVIDIA A10", ["a10"]),
        ("NVIDIA A10G", ["a10g"]),
        ("NVIDIA A100", []),
        ("A100-SXM4-80GB", ["a100-sxm4-80"]),
        ("NVIDIA_A100_80GB_PCIe", ["a100-pcie-80"]),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", []),
        ("GRID A100-40C", []),
        ("NVIDIA L4", ["l4"]),
        ("NVIDIA L40", []),
        ("NVIDIA L40S", ["l40s"]),
        ("GeForce RTX 3090", ["rtx3090"]),
        ("NVIDIA GeForce RTX 3090 Ti", []),
        ("NVIDIA GeForce RTX 4090 D", []),
        ("NVIDIA GeForce RTX 5090", ["rtx5090"]),
        ("NVIDIA GeForce RTX 5090 D", []),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", []),
        ("NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition", ["rtx-pro-6000-server"]),
        ("NVIDIA", []),
        ("", []),
    ],
)
def test_nvidia_name(name: str, expected: list[str]) -> None:
    assert described_by(name) == expected


@pytest.mark.parametrize(
    ("name", "arch", "compute_units", "memory_gib", "expected"),
    [
        ("AMD Instinct MI300X", "gfx942", 304, 192, ["mi300x"]),
        ("AMD_Instinct_MI300X", "gfx942", None, None, ["mi300x"]),
        ("Instinct MI300X OAM", "gfx942", 304, None, ["mi300x"]),
        ("AMD Instinct MI300X VF", "gfx942", 304, None, ["mi300x"]),
        ("AMD Instinct MI308X", "gfx942", 80, None, ["mi308x"]),
        ("AMD Instinct MI300A", "gfx942", 228, None, ["mi300a"]),
        ("AMD Instinct MI325X", "gfx942", 304, None, ["mi325x"]),
        ("AMD_Instinct_MI325_OAM", "gfx942", 304, 256, ["mi325x"]),
        ("AMD_Instinct_MI355_OAM", "gfx950", 256, None, ["mi355x"]),
        ("AMD Instinct MI300", "gfx942", None, None, []),
        # A partition has the product's name and a part of its units.
        ("AMD Instinct MI300X", "gfx942", 38, 24, []),
        ("AMD Instinct MI300X VF", "gfx942", 38, None, []),
        # A generic name: the target and the number of units decide, and the memory of twins.
        ("AMD Radeon Graphics", "gfx942", 304, 191.98, ["mi300x"]),
        ("AMD Radeon Graphics", "gfx942", 304, 255.98, ["mi325x"]),
        ("AMD Radeon Graphics", "gfx942", 304, 128, []),
        ("AMD Radeon Graphics", "gfx942", 304, None, []),
        ("AMD Radeon Graphics", "gfx942", 80, None, ["mi308x"]),
        ("AMD Radeon Graphics", "gfx942", 228, None, ["mi300a"]),
        ("AMD Radeon Graphics", "gfx942", None, None, []),
        ("AMD Radeon Graphics", "gfx950", 304, None, []),
        ("AMD Radeon Graphics", "gfx950", 256, 288, []),
        ("AMD Radeon Graphics", "gfx1100", 96, None, []),
        ("", "gfx942", 80, None, ["mi308x"]),
        # torch counts the units of this card in pairs.
        ("AMD Radeon RX 7900 XTX", "gfx1100", 48, None, ["rx7900xtx"]),
        ("AMD Radeon RX 7900 XT", "gfx1100", 42, None, []),
    ],
)
def test_amd_name(
    name: str,
    arch: str,
    compute_units: int | None,
    memory_gib: float | None,
    expected: list[str],
) -> None:
    found = described_by(
        name,
        vendor="amd",
        accelerator="hip",
        arch=arch,
        compute_units=compute_units,
        memory_bytes=None if memory_gib is None else int(memory_gib * GIB),
    )

    assert found == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Intel(R) Data Center GPU Max 1550", ["max1550"]),
        ("Intel(R)_Data_Center_GPU_Max_1550", ["max1550"]),
        ("Intel(R) Data Center GPU Max 1100", []),
        ("Intel(R) Arc(TM) B580 Graphics", ["arc-b580"]),
        ("Intel(R)_Arc(TM)_Pro_B60_Graphics", []),
    ],
)
def test_intel_name(name: str, expected: list[str]) -> None:
    assert described_by(name, vendor="intel", accelerator="xpu", arch="pvc") == expected


def test_a_name_of_another_vendor_matches_nothing() -> None:
    assert described_by("H200", vendor="amd") == []
    assert described_by("MI300X", vendor="nvidia") == []


@pytest.mark.parametrize(
    ("vendor", "arch"), [("nvidia", "sm_90"), ("amd", "gfx942")], ids=["sm_90", "gfx942"]
)
def test_a_virtual_device_matches_nothing(vendor: str, arch: str) -> None:
    name = f"virtual:{arch}"

    assert described_by(name, vendor=vendor, arch=arch, virtual=True) == []


def test_peaks_are_dense_and_in_si_units() -> None:
    peaks = {
        profile.name: (
            profile.peak_flops[ArithmeticPath.BF16_MATRIX].value,
            profile.peak_flops[ArithmeticPath.FP8_MATRIX].value,
            profile.peak_flops[ArithmeticPath.FP32_VECTOR].value,
            profile.bandwidth_bytes_per_s.value,
        )
        for profile in PUBLISHED
        if profile.name in ("h20", "h100-sxm", "h200", "mi300x", "mi308x")
    }

    assert peaks == {
        "h20": pytest.approx((148e12, 296e12, 44e12, 4.0e12)),
        "h100-sxm": pytest.approx((989.4e12, 1978.9e12, 66.9e12, 3.35e12)),
        "h200": pytest.approx((989.4e12, 1978.9e12, 66.9e12, 4.8e12)),
        "mi300x": pytest.approx((1307.4e12, 2614.9e12, 163.4e12, 5.3e12)),
        "mi308x": pytest.approx((232.65e12, 465.3e12, 29.1e12, 5.3e12)),
    }


def test_plugins_import_no_framework() -> None:
    code = (
        "import sys, atrex_profile_nvidia, atrex_profile_amd, atrex_profile_host\n"
        "import atrex_profile_intel\n"
        "heavy = {'torch', 'triton', 'numba', 'cuda', 'numpy'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
