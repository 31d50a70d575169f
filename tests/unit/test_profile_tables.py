"""The published tables against arithmetic, against each other, and against sparse figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import atrex_profile_amd
import atrex_profile_intel
import atrex_profile_nvidia
import pytest

from atrex_core import ArithmeticPath, Ceiling, Confidence, Device, Figure, HardwareProfile, Pipe

PROFILES = {
    profile.name: profile
    for plugin in (atrex_profile_nvidia, atrex_profile_amd, atrex_profile_intel)
    for profile in plugin.atrex_hardware_profiles()
}
EACH = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)

# Operations per unit and clock, as vendors' programming guides and white papers give them.
_CARD = {"fp64_vector": 4, "fp32_vector": 256}
_AMPERE_CARD = _CARD | {"tf32_matrix": 512, "fp16_matrix": 1024, "int8_matrix": 2048}
_HALF_RATE = {"tf32_matrix": 256, "fp16_matrix": 512}
_EXPORT = {"tf32_matrix": 512, "fp16_matrix": 1024, "fp8_matrix": 2048, "int8_matrix": 2048}
_CDNA3 = {"fp64_vector": 128, "fp64_matrix": 256, "fp32_vector": 256}
RATES: dict[str, dict[str, float]] = {
    "sm_70": {"fp64_vector": 64, "fp32_vector": 128, "fp16_matrix": 1024},
    "sm_75": {"fp64_vector": 4, "fp32_vector": 128, "fp16_matrix": 1024, "int8_matrix": 2048},
    "sm_80": {
        "fp64_vector": 64,
        "fp64_matrix": 128,
        "fp32_vector": 128,
        "tf32_matrix": 1024,
        "fp16_matrix": 2048,
        "int8_matrix": 4096,
    },
    "sm_86": _AMPERE_CARD,
    "sm_89": _AMPERE_CARD | {"fp8_matrix": 2048},
    "sm_90": {
        "fp64_vector": 128,
        "fp64_matrix": 256,
        "fp32_vector": 256,
        "tf32_matrix": 2048,
        "fp16_matrix": 4096,
        "fp8_matrix": 8192,
        "int8_matrix": 8192,
    },
    "sm_100": {
        "fp64_vector": 128,
        "fp32_vector": 256,
        "tf32_matrix": 4096,
        "fp16_matrix": 8192,
        "fp8_matrix": 16384,
        "int8_matrix": 16384,
        "fp6_matrix": 16384,
        "fp4_matrix": 32768,
    },
    "sm_103": {
        "fp32_vector": 256,
        "tf32_matrix": 4096,
        "fp16_matrix": 8192,
        "fp8_matrix": 16384,
        "fp6_matrix": 16384,
        "fp4_matrix": 49152,
    },
    "sm_120": _AMPERE_CARD | {"fp8_matrix": 2048, "fp4_matrix": 4096},
    "gfx90a": _CDNA3 | {"fp16_matrix": 1024, "int8_matrix": 1024},
    "gfx942": _CDNA3
    | {"tf32_matrix": 1024, "fp16_matrix": 2048, "fp8_matrix": 4096, "int8_matrix": 4096},
    "gfx950": {
        "fp64_vector": 128,
        "fp64_matrix": 128,
        "fp32_vector": 256,
        "fp16_matrix": 4096,
        "fp8_matrix": 8192,
        "int8_matrix": 8192,
        "fp6_matrix": 16384,
        "fp4_matrix": 16384,
    },
    "gfx1100": {"fp64_vector": 8, "fp32_vector": 256, "fp16_matrix": 512, "int8_matrix": 512},
    "gfx1201": {
        "fp64_vector": 8,
        "fp32_vector": 256,
        "fp16_matrix": 1024,
        "fp8_matrix": 2048,
        "int8_matrix": 2048,
    },
    "pvc": {
        "fp64_vector": 256,
        "fp32_vector": 256,
        "tf32_matrix": 2048,
        "fp16_matrix": 4096,
        "int8_matrix": 8192,
    },
    "bmg-g21": {"fp64_vector": 32, "fp32_vector": 256, "fp16_matrix": 2048, "int8_matrix": 4096},
}
OWN_RATES: dict[str, dict[str, float]] = {
    "a10g": {"fp16_matrix": 512, "int8_matrix": 1024},
    "rtx3090": _HALF_RATE,
    "rtx4090": _HALF_RATE | {"fp8_matrix": 1024},
    "rtx5090": _HALF_RATE | {"fp8_matrix": 1024},
    "h20": _EXPORT,
    "h20-3e": _EXPORT,
}
"""Parts that a vendor made slower than others of their target."""

_H20 = {
    "fp32_vector": "come to 39.5 by arithmetic",
    "fp64_vector": "fp64 was cut for export",
    "matrix": "7% above the sheet",
}
_CUT = {"fp64_vector": "fp64 was cut on this part", "int8_matrix": "int8 was cut on this part"}
EXCEPTIONS: dict[str, dict[str, str]] = {
    "a10": {"fp64_vector": "CUDA gives this target 4 fp64 operations per SM and clock"},
    "h20": _H20,
    "h20-3e": _H20,
    "h800-sxm": {"fp64_vector": "fp64 was cut for export"},
    "b200": {"matrix": "Matrix peaks fit 1856 MHz; at 1965 MHz"},
    "b300": {
        **_CUT,
        "fp32_vector": "fp32: 77 by arithmetic",
        "matrix": "Matrix peaks fit 1856 MHz; at 2032 MHz",
    },
    "gb200": {"matrix": "3% under what 152 SMs at 2062 MHz come to"},
    "gb300": {**_CUT, "matrix": "3% under what 152 SMs at 2062 MHz come to"},
    "rtx-pro-6000-server": {
        "fp32_vector": "2430 MHz comes to 117 and 1.83",
        "fp64_vector": "2430 MHz comes to 117 and 1.83",
    },
}
"""Profile, path or pipe: what its notes say about a figure that arithmetic does not give."""

SPARSE_BF16_TFLOPS = {
    "a10": 250,
    "a30": 330,
    "a100-sxm4-80": 624,
    "a100-pcie-40": 624,
    "l4": 242,
    "l40s": 733,
    "h100-sxm": 1979,
    "h100-pcie": 1513,
    "h100-nvl": 1671,
    "h200": 1979,
    "h20": 296,
    "b200": 4500,
    "b300": 4500,
    "gb200": 5000,
    "gb300": 5000,
    "gh200-96": 1979,
    "mi300x": 2614.9,
    "mi325x": 2614.9,
    "mi355x": 5033,
    "rtx4090": 330.3,
}


def figures(profile: HardwareProfile) -> Iterator[Figure]:
    yield from profile.peak_flops.values()
    for figure in (
        *(profile.bandwidth_bytes_per_s, profile.last_level_cache_bytes, profile.memory_bytes),
        *(profile.compute_units, profile.clock_hz, profile.matrix_clock_hz),
    ):
        if figure is not None:
            yield figure


def value(profile: HardwareProfile, path: ArithmeticPath) -> float:
    return profile.peak_flops[path].value


def by_arithmetic(profile: HardwareProfile, path: ArithmeticPath) -> float:
    """Return units x operations per unit and clock x clock."""
    rates = RATES[str(profile.match.arch)] | OWN_RATES.get(profile.name, {})
    rates |= {"bf16_matrix": rates["fp16_matrix"]}
    assert profile.compute_units is not None
    assert profile.clock_hz is not None
    clock_hz = profile.clock_hz.value
    if path.pipe is Pipe.MATRIX and path is not ArithmeticPath.FP64_MATRIX:
        clock_hz = (profile.matrix_clock_hz or profile.clock_hz).value
    return profile.compute_units.value * rates.get(path, 0) * clock_hz


@EACH
def test_units_times_rate_times_clock_is_the_peak_or_a_note_says_why(
    profile: HardwareProfile,
) -> None:
    known = EXCEPTIONS.get(profile.name, {})
    used = set()
    for path, figure in profile.peak_flops.items():
        if figure.value == pytest.approx(by_arithmetic(profile, path), rel=0.02):
            continue
        key = path if path in known else str(path.pipe)
        assert key in known, f"{path}: {figure.value:.4g}, not {by_arithmetic(profile, path):.4g}"
        used.add(key)

    assert used == set(known), "an exception that is none any more"
    assert [why for why in known.values() if not any(why in note for note in profile.notes)] == []


@EACH
def test_what_notes_excuse_is_a_lower_clock_or_a_cut_never_a_doubled_figure(
    profile: HardwareProfile,
) -> None:
    ratios = {
        path: figure.value / by_arithmetic(profile, path)
        for path, figure in profile.peak_flops.items()
        if by_arithmetic(profile, path) and path is not ArithmeticPath.FP64_VECTOR
    }

    assert {path: ratio for path, ratio in ratios.items() if not 0.9 < ratio < 1.12} == {}


@EACH
def test_fewer_bits_are_never_slower(profile: HardwareProfile) -> None:
    chain = [
        *(ArithmeticPath.TF32_MATRIX, ArithmeticPath.BF16_MATRIX, ArithmeticPath.FP8_MATRIX),
        *(ArithmeticPath.FP6_MATRIX, ArithmeticPath.FP4_MATRIX),
    ]
    found = [value(profile, path) for path in chain if path in profile.peak_flops]

    assert found == sorted(found)
    assert profile.peak_flops.get(ArithmeticPath.BF16_MATRIX) in (
        None,
        profile.peak_flops[ArithmeticPath.FP16_MATRIX],
    )
    pairs = [(ArithmeticPath.TF32_MATRIX, 0.5), (ArithmeticPath.FP8_MATRIX, 2.0)]
    for path, ratio in pairs:
        if path in profile.peak_flops:
            bf16 = value(profile, ArithmeticPath.BF16_MATRIX)
            assert value(profile, path) == pytest.approx(ratio * bf16, rel=0.02)


@pytest.mark.parametrize("name", SPARSE_BF16_TFLOPS)
def test_no_peak_is_the_one_with_sparsity(name: str) -> None:
    dense = value(PROFILES[name], ArithmeticPath.BF16_MATRIX)

    assert dense <= 0.51 * SPARSE_BF16_TFLOPS[name] * 1e12


@EACH
def test_every_figure_is_cited_and_in_si_units(profile: HardwareProfile) -> None:
    assert all(len(figure.source) > 20 for figure in figures(profile))
    assert all(isinstance(figure.confidence, Confidence) for figure in figures(profile))
    assert profile.ceiling is Ceiling.SPEC
    assert profile.match.arch
    assert ArithmeticPath.FP32_VECTOR in profile.peak_flops
    assert ArithmeticPath.FP16_MATRIX in profile.peak_flops
    assert min(figure.value for figure in profile.peak_flops.values()) > 1e11
    assert 2e11 < profile.bandwidth_bytes_per_s.value < 1e13
    assert profile.last_level_cache_bytes is not None
    assert 4 * 2**20 <= profile.last_level_cache_bytes.value <= 256 * 2**20
    if profile.memory_bytes is not None:
        assert 12 * 2**30 <= profile.memory_bytes.value <= 288 * 2**30


def test_an_unconfirmed_figure_has_low_confidence() -> None:
    doubtful = [
        figure
        for profile in PROFILES.values()
        for figure in figures(profile)
        if figure.source.startswith("widely printed")
    ]

    assert doubtful
    assert {figure.confidence for figure in doubtful} == {Confidence.LOW}


@EACH
def test_each_name_a_driver_prints_matches_this_profile_alone(profile: HardwareProfile) -> None:
    match = profile.match
    for name in match.names:
        for spelling in (name, name.replace(" ", "_"), name.lower(), f"  {name} "):
            device = Device(
                id="device:0",
                accelerator="any",
                vendor=match.vendor,
                name=spelling,
                arch=str(match.arch),
                compute_units=match.compute_units,
            )
            fits = [other.name for other in PROFILES.values() if other.match.accepts(device)]
            assert fits == [profile.name]


def test_there_are_all_devices_once() -> None:
    vendors = Counter(profile.match.vendor for profile in PROFILES.values())

    assert vendors == {"nvidia": 32, "amd": 10, "intel": 2}
    assert len({profile.digest for profile in PROFILES.values()}) == len(PROFILES)
