"""A vendor's plugin: the Anvil accelerator, its profile, its DSL `hammer`, and a problem."""

from __future__ import annotations

from collections.abc import Iterator

from atrex_acme.accelerator import AnvilAccelerator
from atrex_acme.backend import HammerBackend
from atrex_acme.problem import ScaledSum
from atrex_core import (
    Accelerator,
    ArithmeticPath,
    Backend,
    DeviceMatch,
    Figure,
    HardwareProfile,
    Problem,
    hookimpl,
)

_SHEET = "Acme Anvil 2 data sheet, revision C, table 3"

ANVIL_2 = HardwareProfile(
    name="acme-anvil-2",
    match=DeviceMatch(vendor="acme", names=("Anvil 2",)),
    peak_flops={ArithmeticPath.FP32_VECTOR: Figure(value=60e12, source=_SHEET)},
    bandwidth_bytes_per_s=Figure(value=2.4e12, source=_SHEET),
)


@hookimpl
def atrex_accelerators() -> Iterator[Accelerator]:
    yield AnvilAccelerator()


@hookimpl
def atrex_backends() -> Iterator[Backend]:
    yield HammerBackend()


@hookimpl
def atrex_hardware_profiles() -> Iterator[HardwareProfile]:
    yield ANVIL_2


@hookimpl
def atrex_problems() -> Iterator[Problem]:
    yield ScaledSum()
