"""A pack of one problem, made as a test wants it."""

from __future__ import annotations

import importlib
import json
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from atrex_core import Problem
from atrex_core.plugins import PluginHost

_INIT = """
    from importlib import import_module
    from atrex_core import Pack, hookimpl

    @hookimpl
    def atrex_problems():
        pack = Pack(name="small", version="3", digest="d")
        for name in NAMES:
            yield import_module(f"{__name__}.{name}.private").Operator(pack)
"""
_PRIVATE = """
    from atrex_core import ArithmeticPath, Container, DType, TensorSpec
    from atrex_core.packs import FolderProblem

    class Operator(FolderProblem):
        summary = "the sum of both halves"
        fact_keys = ("source", "kernel", "0")
        release_id = RELEASE_ID
        container = Container.DICT
        in_place = {"y": "y"}

        def inputs(self, w):
            rows, columns = w.axes["rows"], w.axes["columns"]
            specs = [TensorSpec(name="x", dtype=DType(w.axes["dtype"]), shape=(rows, 2 * columns)),
                     TensorSpec(name="y", dtype=DType.FP32, shape=(rows, columns))]
            if w.axes["masked"]:
                specs.append(TensorSpec(name="mask", dtype=DType.BOOL, shape=((rows + 7) // 8,)))
            return tuple(specs)

        def outputs(self, w):
            return (TensorSpec(name="y", dtype=DType.FP32, shape=self.inputs(w)[1].shape),)

        def expected(self, w, inputs):
            return {"y": self.honest(w, inputs)["y"].double()}

        def cost(self, w, inputs=None):
            return self.count(w, {ArithmeticPath.FP32_VECTOR: 31 * w.axes["rows"] + 7})

        def own_mutants(self):
            return {"second_half_only": self._zeros, "halved": self._zeros}
"""
_FACTS = """
    {"importance": 0.0123457, "source": "Some-Bench at commit 1a2b3c4, as published",
     "kernel": {"library": "fastlib/slowlib", "symbol": "half_sum_kernel"},
     "0": {"us": 14.27, "calls": 27, "bytes": 83291, "share": 0.5}}
"""
_VARIANTS = """
    def summed_pairwise(w, inputs):
        ...

    VARIANTS = {"summed_pairwise": summed_pairwise, "tree": summed_pairwise}
"""
_REFERENCE = '''
    """`half_sum`: the sum of both halves of each row, as half_sum.py computes it."""

    import torch


    class Model(torch.nn.Module):
        """See `x.half_sum` and a_half_sum."""

        def __init__(self, scale: float) -> None:
            super().__init__()
            self.scale = scale

        def forward(self, x, y, mask=None):
            return {"y": y + x.float().unflatten(1, (2, -1)).sum(1) * self.scale}
'''
_INPUTS = '''
    """Inputs of `half_sum`."""

    import torch


    def make_inputs(rows, columns, dtype, masked, *, regime, seed, device):
        rng = torch.Generator(device).manual_seed(seed)
        x = torch.randn(rows, 2 * columns, generator=rng, device=device)
        drawn = {"x": x.to({"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]),
                 "y": torch.zeros(rows, columns, device=device)}
        if masked:
            drawn["mask"] = torch.ones((rows + 7) // 8, dtype=torch.bool, device=device)
        return drawn
'''


def _workload(id_: str, rows: int, dtype: str, *, masked: bool) -> dict[str, Any]:
    axes = {"rows": rows, "columns": rows // 2 + 3, "dtype": dtype, "masked": masked}
    return {"id": id_, "init": {"scale": 0.5}, "axes": axes}


_SHAPES = {
    "phase": "decode",
    "regimes": ["nominal", "loud"],
    "published": [
        _workload("0", 17, "bf16", masked=False),
        _workload("1", 20, "fp16", masked=True),
    ],
    "smoke": [_workload("small", 3, "bf16", masked=True)],
}
_FILES = {
    "public/reference.py": _REFERENCE,
    "public/inputs.py": _INPUTS,
    "public/shapes.json": json.dumps(_SHAPES),
    "private.py": _PRIVATE,
    "private.json": _FACTS,
    "variants.py": _VARIANTS,
}


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Problem]]:
    """Return what makes a problem: `make(changes by file, name=, release_id=)`."""
    numbers, made = count(), []
    monkeypatch.syspath_prepend(str(tmp_path / "site"))

    def make(
        changes: Mapping[str, tuple[str, str]] | None = None,
        *,
        name: str = "half_sum",
        release_id: str = "op_1234",
    ) -> Problem:
        package = f"release_pack_{next(numbers)}"
        made.append(package)
        for file, text in _FILES.items():
            old, new = (changes or {}).get(file, ("", ""))
            assert old in text
            path = tmp_path / "site" / package / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            text = textwrap.dedent(text.replace(old, new) if old else text).lstrip("\n")
            path.write_text(text.replace("RELEASE_ID", repr(release_id)))
        init = textwrap.dedent(_INIT).replace("NAMES", repr((name,)))
        (tmp_path / "site" / package / "__init__.py").write_text(init)
        importlib.invalidate_caches()
        (problem,) = PluginHost.of(importlib.import_module(package)).problems
        return problem

    yield make
    for module in [m for m in sys.modules if m.partition(".")[0] in made]:
        del sys.modules[module]
