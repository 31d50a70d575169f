"""The tiny problem that `doctor` runs on every device: two vectors in, their sum out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from atrex_core.interfaces import Problem, Tensors
from atrex_core.model import (
    ArithmeticPath,
    Cost,
    DType,
    Origin,
    Pack,
    Phase,
    Scale,
    TensorSpec,
    Tolerance,
    Workload,
)

PROBE_NAME = "probe"
_ELEMENTS = 4099


class ProbeProblem(Problem):
    """Not in any pack and never scored."""

    name: ClassVar[str] = PROBE_NAME
    summary: ClassVar[str] = "z = x + y on two short fp32 vectors"
    pack = Pack(name="built-in", version="1", digest="")
    importance: ClassVar[float] = 0.0
    phases: ClassVar[tuple[Phase, ...]] = (Phase.BOTH,)

    @property
    def workloads(self) -> Sequence[Workload]:
        return tuple(
            Workload(id="0", axes={"n": _ELEMENTS}, origin=Origin.ADDED, scale=scale)
            for scale in Scale
        )

    @property
    def public_files(self) -> Sequence[Path]:
        return ()

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        return (_vector("x"), _vector("y"))

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        return (_vector("z"),)

    def regimes(self, workload: Workload) -> Sequence[str]:
        return ("nominal",)

    def draw(self, workload: Workload, *, regime: str, seed: int, device: str) -> Tensors:
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        return {name: torch.randn(_ELEMENTS, generator=generator, device=device) for name in "xy"}

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        return {"z": inputs["x"].double() + inputs["y"].double()}

    def honest(self, workload: Workload, inputs: Tensors) -> Tensors:
        return {"z": inputs["x"] + inputs["y"]}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        return Tolerance(dtype=DType.FP32)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        return Cost(
            flops={ArithmeticPath.FP32_VECTOR: _ELEMENTS},
            read_bytes=8 * _ELEMENTS,
            write_bytes=4 * _ELEMENTS,
        )


def _vector(name: str) -> TensorSpec:
    return TensorSpec(name=name, dtype=DType.FP32, shape=(_ELEMENTS,))
