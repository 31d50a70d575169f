"""Several Anvils in one machine, the DSL `tongs` for them, and a problem of several workloads.

All of them compute on the host. FORGE_COUNT says how many there are, FORGE_COLD which cannot be
opened, FORGE_ODD which is of another kind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import ClassVar

from atrex_acme.accelerator import AnvilAccelerator
from atrex_acme.backend import HammerBackend
from atrex_acme.problem import ScaledSum

from atrex_core import (
    Accelerator,
    Backend,
    Device,
    DeviceContext,
    Pack,
    Problem,
    Scale,
    Unavailable,
    Workload,
    hookimpl,
)


class Forge(AnvilAccelerator):
    name: ClassVar[str] = "forge"

    def devices(self) -> Sequence[Device]:
        return [
            Device(
                id=f"forge:{index}",
                accelerator=self.name,
                vendor="acme",
                name="Acme Anvil 1" if _says("FORGE_ODD", index) else "Acme Anvil 2",
                arch="av2",
                index=index,
            )
            for index in range(int(os.environ.get("FORGE_COUNT", "3")))
        ]

    def open(self, device: Device) -> DeviceContext:
        if _says("FORGE_COLD", device.index):
            raise Unavailable("the fire is out", hint="light it")
        return super().open(device)

    def absence(self) -> str:
        return "the forge is empty"


class Tongs(HammerBackend):
    name: ClassVar[str] = "tongs"
    accelerators: ClassVar[tuple[str, ...]] = ("forge",)


class ForgeSum(ScaledSum):
    name: ClassVar[str] = "forge_sum"
    pack = Pack(name="forge", version="1", digest="forge-1")

    @property
    def workloads(self) -> Sequence[Workload]:
        return tuple(
            Workload(id=f"w{number}", axes={"number": number}, scale=Scale.SMOKE)
            for number in range(4)
        )


def _says(variable: str, index: int) -> bool:
    return str(index) in os.environ.get(variable, "").split(",")


@hookimpl
def atrex_accelerators() -> Iterator[Accelerator]:
    yield Forge()


@hookimpl
def atrex_backends() -> Iterator[Backend]:
    yield Tongs()


@hookimpl
def atrex_problems() -> Iterator[Problem]:
    yield ForgeSum()
