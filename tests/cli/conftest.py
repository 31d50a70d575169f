"""A small pack whose code misbehaves as a test wants it to, installed as pip installs one."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_PACK = """
import os, signal, time
from pathlib import Path

from atrex_core import Pack, Protocol, hookimpl
from atrex_core import Allclose, ArithmeticPath, Cost, DType, Inapplicable, TensorSpec
from atrex_core import Phase, Problem, Scale, Tolerance, Workload

HERE = Path(__file__).parent

def spec(name, workload):
    return TensorSpec(name=name, dtype=DType.FP32, shape=(workload.axes["rows"], 8))

class Sum(Problem):
    '''out = x + y.'''

    name = "odd_sum"
    summary = "x plus y"
    importance = 0.03125
    phases = (Phase.DECODE,)
    rows = (1, 3, 17)

    def __init__(self):
        self.pack = Pack(name="odd", version="1", digest=os.environ.get("ODD_DIGEST", "d"))

    @property
    def workloads(self):
        return tuple(Workload(id=f"r{n}", axes={"rows": n}, scale=Scale.SMOKE)
                     for n in self.rows)

    @property
    def public_files(self):
        return tuple(HERE / "public" / f for f in ("inputs.py", "reference.py", "shapes.json"))

    def inputs(self, w):
        return (spec("x", w), spec("y", w))

    def outputs(self, w):
        return (spec("out", w),)

    def regimes(self, w):
        return ("nominal", "large")

    def draw(self, w, *, regime, seed, device):
        import torch
        scales = {"nominal": 1.0, "large": 100.0}
        if regime not in scales:
            raise ValueError(f"unknown regime {regime!r}")
        g = torch.Generator(device).manual_seed(seed)
        return {n: torch.randn(w.axes["rows"], 8, generator=g) * scales[regime] for n in "xy"}

    def expected(self, w, i):
        return {"out": i["x"].double() + i["y"].double()}

    def honest(self, w, i):
        return {"out": i["x"] + i["y"]}

    def tolerance(self, output):
        return Tolerance(dtype=output.dtype)

    def cost(self, w, inputs=None):
        n = w.axes["rows"] * 8
        return Cost(flops={ArithmeticPath.FP32_VECTOR: n}, read_bytes=8 * n, write_bytes=4 * n)

    def variants(self):
        return {
            "commuted": lambda w, i: {"out": i["y"] + i["x"]},
            "wide": lambda w, i: {"out": (i["x"].double() + i["y"].double()).float()},
            **self.more_variants(),
        }

    def mutants(self):
        return {
            "zeros": lambda w, i: {"out": i["x"] * 0},
            "only_x": lambda w, i: {"out": i["x"].clone()},
            "difference": lambda w, i: {"out": i["x"] - i["y"]},
            "rounded": lambda w, i: {"out": (i["x"] + i["y"]).half().float()},
            "rolled": lambda w, i: {"out": (i["x"] + i["y"]).roll(1, -1)},
            **self.more_mutants(),
        }

    def more_mutants(self):
        return {}

    def more_variants(self):
        return {}

# MORE

@hookimpl
def atrex_problems():
    yield from PROBLEMS
"""

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


@pytest.fixture(scope="session")
def install_pack() -> Callable[[Any, str], Any]:
    """Return what installs a pack, whose problems are as `more` says, for a command line.

    `more` names them in `PROBLEMS`; subclasses of `Sum` add to what it ships.
    """

    def install_pack(cli: Any, more: str) -> Any:
        site = Path(cli.folder) / "site"
        info = site / "odd-1.dist-info"
        (site / "odd" / "public").mkdir(parents=True)
        info.mkdir()
        source = _PACK.replace("# MORE", textwrap.dedent(more))
        (site / "odd" / "__init__.py").write_text(source)
        (site / "odd" / "public" / "inputs.py").write_text(_INPUTS)
        (site / "odd" / "public" / "reference.py").write_text(_REFERENCE)
        (site / "odd" / "public" / "shapes.json").write_text('{"regimes": ["nominal", "large"]}')
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1\n")
        (info / "entry_points.txt").write_text("[atrex_eval]\nodd = odd\n")
        return cli.with_variables(PYTHONPATH=f"{cli.environment['PYTHONPATH']}:{site}")

    return install_pack


@pytest.fixture
def with_pack(cli: Any, install_pack: Callable[[Any, str], Any]) -> Callable[[str], Any]:
    """Return what makes a command line for one test that has such a pack."""

    def with_pack(more: str) -> Any:
        return install_pack(cli, more)

    return with_pack
