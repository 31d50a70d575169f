"""A problem with nothing wrong, to be broken by each test in its own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from atrex_core import (
    ArithmeticPath,
    Cost,
    DType,
    Implementation,
    Pack,
    Phase,
    Problem,
    Rule,
    Scale,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
)

_WIDTH = 8
_INPUTS = """
import torch


def make_inputs(rows, *, regime="nominal", seed=0, device="cpu"):
    scales = {"nominal": 1.0, "large": 100.0}
    if regime not in scales:
        raise ValueError(f"unknown regime {regime!r}")
    g = torch.Generator(device).manual_seed(seed)
    return {n: torch.randn(rows, 8, generator=g) * scales[regime] for n in "xy"}
"""
_REFERENCE = """
import torch


class Model(torch.nn.Module):
    def forward(self, x, y):
        return x + y
"""


def _spec(name: str, rows: int) -> TensorSpec:
    return TensorSpec(name=name, dtype=DType.FP32, shape=(rows, _WIDTH))


def _right(_: Workload, inputs: Tensors) -> Tensors:
    return {"out": inputs["x"] + inputs["y"]}


class Sum(Problem):
    """out = x + y, with nothing wrong."""

    name: ClassVar[str] = "sum"
    summary: ClassVar[str] = "x plus y"
    pack = Pack(name="odd", version="1", digest="d")
    importance: ClassVar[float] = 0.03125
    phases: ClassVar[tuple[Phase, ...]] = (Phase.DECODE,)
    public: Sequence[Path] = ()
    extra: Mapping[str, Implementation] = {}

    @property
    def workloads(self) -> Sequence[Workload]:
        return [
            Workload(id=f"r{rows}", axes={"rows": rows}, scale=Scale.SMOKE) for rows in (4, 1, 9)
        ]

    @property
    def public_files(self) -> Sequence[Path]:
        return self.public

    def inputs(self, workload: Workload) -> Sequence[TensorSpec]:
        return [_spec(name, workload.axes["rows"]) for name in "xy"]

    def outputs(self, workload: Workload) -> Sequence[TensorSpec]:
        return [_spec("out", workload.axes["rows"])]

    def regimes(self, workload: Workload) -> Sequence[str]:
        return ("nominal", "large")

    def draw(self, workload: Workload, *, regime: str, seed: int, device: str) -> Tensors:
        scales = {"nominal": 1.0, "large": 100.0}
        if regime not in scales:
            raise ValueError(f"unknown regime {regime!r}")
        g = torch.Generator(device).manual_seed(seed)
        rows = workload.axes["rows"]
        return {n: torch.randn(rows, _WIDTH, generator=g) * scales[regime] for n in "xy"}

    def expected(self, workload: Workload, inputs: Tensors) -> Tensors:
        return {"out": inputs["x"].double() + inputs["y"].double()}

    def honest(self, workload: Workload, inputs: Tensors) -> Tensors:
        return _right(workload, inputs)

    def tolerance(self, output: TensorSpec) -> Rule:
        return Tolerance(dtype=output.dtype)

    def cost(self, workload: Workload, inputs: Tensors | None = None) -> Cost:
        count = workload.axes["rows"] * _WIDTH
        flops = {ArithmeticPath.FP32_VECTOR: count}
        return Cost(flops=flops, read_bytes=8 * count, write_bytes=4 * count)

    def mutants(self) -> Mapping[str, Implementation]:
        return {
            "zeros": lambda _, i: {"out": i["x"] * 0},
            "only_x": lambda _, i: {"out": i["x"].clone()},
            "difference": lambda _, i: {"out": i["x"] - i["y"]},
            "rounded": lambda _, i: {"out": (i["x"] + i["y"]).half().float()},
            "rolled": lambda _, i: {"out": (i["x"] + i["y"]).roll(1, -1)},
            **self.extra,
        }

    def variants(self) -> Mapping[str, Implementation]:
        return {
            "commuted": lambda _, i: {"out": i["y"] + i["x"]},
            "wide": lambda _, i: {"out": (i["x"].double() + i["y"].double()).float()},
        }


@pytest.fixture(scope="session")
def sum_class() -> type[Problem]:
    """Return the problem's class."""
    return Sum


@pytest.fixture
def broken() -> Callable[..., Problem]:
    """Return what makes the problem with some attributes replaced: `broken(draw=function)`."""

    def broken(**attributes: Any) -> Problem:
        return type("Broken", (Sum,), attributes)()

    return broken


@pytest.fixture
def public(tmp_path: Path) -> Sequence[Path]:
    """Return its public files."""
    (tmp_path / "inputs.py").write_text(_INPUTS)
    (tmp_path / "reference.py").write_text(_REFERENCE)
    (tmp_path / "shapes.json").write_text('{"regimes": ["nominal", "large"]}')
    return tuple(tmp_path / name for name in ("inputs.py", "reference.py", "shapes.json"))
