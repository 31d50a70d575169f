"""out = 2 x + y: the vendor's own operator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from atrex_core import (
    ArithmeticPath,
    Cost,
    DType,
    Pack,
    Phase,
    Problem,
    Scale,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
)

_ROWS, _COLUMNS = 5, 33


class ScaledSum(Problem):
    name: ClassVar[str] = "acme_scaled_sum"
    summary: ClassVar[str] = "twice x, plus y"
    pack = Pack(name="acme", version="7", digest="acme-7")
    importance: ClassVar[float] = 1.0
    phases: ClassVar[tuple[Phase, ...]] = (Phase.DECODE,)

    @property
    def workloads(self) -> Sequence[Workload]:
        return (Workload(id="small", axes={"rows": _ROWS}, scale=Scale.SMOKE),)

    @property
    def public_files(self) -> Sequence[Path]:
        return ()

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        return tuple(_spec(name) for name in "xy")

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        return (_spec("out"),)

    def regimes(self, workload: Workload) -> Sequence[str]:
        return ("nominal", "large")

    def draw(self, workload: Workload, *, regime: str, seed: int, device: str) -> Tensors:
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        scale = 1000 if regime == "large" else 1
        return {n: torch.randn(_ROWS, _COLUMNS, generator=generator) * scale for n in "xy"}

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        return {"out": 2 * inputs["x"].double() + inputs["y"].double()}

    def honest(self, workload: Workload, inputs: Tensors) -> Tensors:
        return {"out": 2 * inputs["x"] + inputs["y"]}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        return Tolerance(dtype=output.dtype)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        size = _ROWS * _COLUMNS
        return Cost(
            flops={ArithmeticPath.FP32_VECTOR: 2 * size}, read_bytes=8 * size, write_bytes=4 * size
        )


def _spec(name: str) -> TensorSpec:
    return TensorSpec(name=name, dtype=DType.FP32, shape=(_ROWS, _COLUMNS))
