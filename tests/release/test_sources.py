"""The part of Python, and of torch, that public code is made of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from atrex_core import Problem
from atrex_core.release import Standing, release_of
from atrex_core.release.sources import departures
from atrex_core.release.texts import Texts, text_claims

Make = Callable[..., Problem]

_REFUSED = {
    # modules
    "import json": "line 1: import of 'json'",
    "import os": "import of 'os'",
    "import importlib": "import of 'importlib'",
    "import operator": "import of 'operator'",
    "from pathlib import Path": "import of 'pathlib.Path'",
    "from . import private": "import of '..private'",
    "import torch.utils.cpp_extension": "import of 'torch.utils.cpp_extension'",
    "from torch import hub": "use of torch.hub",
    "from torch import load": "use of torch.load",
    "from typing import sys": "use of typing.sys",
    "import typing; typing.sys": "use of typing.sys",
    "import torch.nn.functional as F; F.importlib": "use of torch.nn.functional.importlib",
    # torch
    "import torch; torch.load('x')": "use of torch.load",
    "import torch as t; t.hub.load('x')": "use of torch.hub.load",
    "import torch; torch.ops.load_library('x')": "use of torch.ops.load_library",
    "import torch; torch.os.system('x')": "use of torch.os.system",
    "import torch; torch.compile": "use of torch.compile",
    "import torch; torch.jit.load('x')": "use of torch.jit.load",
    "import torch; torch._C": "use of torch._C",
    "import torch; torch.PyTorchFileReader('x')": "use of torch.PyTorchFileReader",
    "import torch; torch.from_file('x')": "use of torch.from_file",
    "import torch; torch.Tensor.__subclasses__": "use of torch.Tensor.__subclasses__",
    "import torch; t = torch": "torch as a value",
    "import torch; torch.nosuch": "use of torch.nosuch",
    # attributes by name
    "import torch; getattr(torch, 'lo' + 'ad')": "getattr",
    "import torch; getattr(torch, 'load')": "use of torch.load",
    "import torch; getattr(torch.nn, '__file__')": "use of torch.nn.__file__",
    "from functools import reduce; reduce(getattr, [])": "getattr",
    "match 1:\n    case object(load=x): pass": "load",
    # builtins and what they give away
    "open('../notes').read()": "open",
    "__import__('os')": "__import__",
    "eval('1')": "eval",
    "exec('1')": "exec",
    "globals()": "globals",
    "setattr(1, 'a', 2)": "setattr",
    "__file__": "__file__",
    "__builtins__": "__builtins__",
    "object.__subclasses__()": "__subclasses__",
    "(i for i in []).gi_frame": "gi_frame",
    "x = 1\nx.untyped_storage().from_file('x')": "from_file",
    "from typing import ForwardRef": "use of typing.ForwardRef",
    "from functools import singledispatch": "use of functools.singledispatch",
    "def __getattr__(name): ...": "definition of __getattr__",
    "async def f(): ...": "an asynchronous function",
    "def": "is no Python",
}
_ALLOWED = """
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import pad, softplus

STEP: Final = 1 << 20


@dataclass
class Sizes:
    rows: int = 3

    def __post_init__(self) -> None:
        self.rows = max(1, self.rows)


class Model(torch.nn.Module):
    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(sizes[0])

    @torch.no_grad()
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rng = torch.Generator(x.device).manual_seed(1)
        noise = torch.randn(x.shape, generator=rng, dtype=torch.float8_e4m3fn)
        kind = getattr(torch, "bfloat16")
        if not isinstance(x, torch.Tensor) or x.isnan().any():
            raise ValueError(f"unknown {x!r}")
        y = torch.linalg.vector_norm(F.conv1d(pad(x, (0, 1)), x)) * math.pi * torch.inf
        z = torch.where(x > torch.finfo(x.dtype).max, torch.einsum("ij->j", y), softplus(y))
        return tuple(partial(torch.add, 1)(part).to(kind) for part in z.split(STEP))


if __name__ == "__main__":
    Model([1])
"""


@pytest.mark.parametrize(("code", "what"), _REFUSED.items(), ids=_REFUSED)
def test_code_that_reaches_outside_is_found(code: str, what: str) -> None:
    found = list(departures(code))

    assert any(what in text for text in found), found


def test_ordinary_code_is_allowed() -> None:
    assert list(departures(_ALLOWED)) == []


def test_place_is_named(make: Make) -> None:
    problem = make()
    files = dict(release_of([problem]).files)
    files["op_1234/inputs.py"] = b'"""Inputs."""\n\nimport json\n'

    (found,) = [c for c in text_claims(Texts.of(files), [], []) if c.standing is Standing.FAIL]

    assert found.text == "public code is made of torch alone and reaches for nothing outside itself"
    assert found.detail == "'op_1234/inputs.py' line 3: import of 'json'"
