"""Which device a published profile describes, and what it says."""

from __future__ import annotations

import subprocess
import sys

import atrex_profile_amd
import atrex_profile_nvidia
import pytest

from atrex_core import (
    ArithmeticPath,
    Ceiling,
    Device,
    HardwareProfile,
)

PUBLISHED = [
    *atrex_profile_nvidia.atrex_hardware_profiles(),
    *atrex_profile_amd.atrex_hardware_profiles(),
]


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
        ("NVIDIA H20-3e", []),
        ("NVIDIA H200", ["h200"]),
        ("NVIDIA_H200", ["h200"]),
        ("nvidia h200", ["h200"]),
        ("Tesla H200", ["h200"]),
        ("NVIDIA H200 NVL", []),
        ("NVIDIA H200 MIG 1g.18gb", []),
        ("NVIDIA H100 80GB HBM3", ["h100-sxm"]),
        ("NVIDIA_H100_80GB_HBM3", ["h100-sxm"]),
        ("NVIDIA H100 PCIe", []),
        ("NVIDIA H100 NVL", []),
        ("NVIDIA GH200 480GB", []),
        ("NVIDIA", []),
        ("", []),
    ],
)
def test_nvidia_name(name: str, expected: list[str]) -> None:
    assert described_by(name) == expected


@pytest.mark.parametrize(
    ("name", "arch", "compute_units", "expected"),
    [
        ("AMD Instinct MI300X", "gfx942", 304, ["mi300x"]),
        ("AMD_Instinct_MI300X", "gfx942", None, ["mi300x"]),
        ("Instinct MI300X OAM", "gfx942", 304, ["mi300x"]),
        ("AMD Instinct MI308X", "gfx942", 80, ["mi308x"]),
        ("AMD Instinct MI300A", "gfx942", 228, []),
        ("AMD Instinct MI325X", "gfx942", 304, []),
        ("AMD Radeon Graphics", "gfx942", 304, ["mi300x"]),
        ("AMD Radeon Graphics", "gfx942", 80, ["mi308x"]),
        ("AMD Radeon Graphics", "gfx942", 228, []),
        ("AMD Radeon Graphics", "gfx942", None, []),
        ("AMD Radeon Graphics", "gfx950", 304, []),
        ("", "gfx942", 80, ["mi308x"]),
        ("AMD Instinct MI300X VF", "gfx942", 304, ["mi300x"]),
        ("AMD Instinct MI300X VF", "gfx942", 38, []),
    ],
)
def test_amd_name(name: str, arch: str, compute_units: int | None, expected: list[str]) -> None:
    found = described_by(
        name, vendor="amd", accelerator="hip", arch=arch, compute_units=compute_units
    )

    assert found == expected


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
    }

    assert peaks == {
        "h20": pytest.approx((148e12, 296e12, 44e12, 4.0e12)),
        "h100-sxm": pytest.approx((989.4e12, 1978.9e12, 66.9e12, 3.35e12)),
        "h200": pytest.approx((989.4e12, 1978.9e12, 66.9e12, 4.8e12)),
        "mi300x": pytest.approx((1307.4e12, 2614.9e12, 163.4e12, 5.3e12)),
        "mi308x": pytest.approx((232.65e12, 465.3e12, 29.1e12, 5.3e12)),
    }


@pytest.mark.parametrize("profile", PUBLISHED, ids=lambda profile: profile.name)
def test_every_path_of_a_published_profile_is_filled_and_cited(profile: HardwareProfile) -> None:
    figures = [*profile.peak_flops.values(), profile.bandwidth_bytes_per_s]

    expected = set(ArithmeticPath)
    if profile.name == "h20":
        expected -= {ArithmeticPath.FP64_MATRIX}  # no figure is published
    assert set(profile.peak_flops) == expected
    assert all(len(figure.source) > 20 for figure in figures)
    assert profile.ceiling is Ceiling.SPEC
    assert profile.last_level_cache_bytes is not None


def test_plugins_import_no_framework() -> None:
    code = (
        "import sys, atrex_profile_nvidia, atrex_profile_amd, atrex_profile_host\n"
        "heavy = {'torch', 'triton', 'numba', 'cuda', 'numpy'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
