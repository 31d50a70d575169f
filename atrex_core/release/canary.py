"""A pack made for one proof: every private file of it carries canaries, each of them new.

Three problems: `canary`, whose own name is a canary too, so that this is only its release id;
`canary_control`, whose public half holds canaries up to be seen; and `canary_broken`, whose private
half raises. Installed by putting a folder on the path.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from attrs import field, frozen

MARK, DIGITS = b"atrexcanary", 16
"""As the spy knows them: were they others, it would not find what the control holds up."""
PLAIN, CONTROL, BROKEN = "canary", "canary_control", "canary_broken"
CONTROLS = ("files", "environment", "descriptors", "objects", "frames", "tracebacks", "memory")
"""Where the spy must find what the control holds up, each its own canary."""
NAMED = "canary"
"""Where the name is said to be planted: results may have it."""
ALIVE = "alive"
"""A file that the private half writes when it runs, to show that its canaries were there."""

_PACKAGE = "atrex_problems_canary"


@frozen(kw_only=True)
class Canaries:
    """A pack on disk, and what was planted in it."""

    site: Path
    """The folder to put on the path."""
    private: Mapping[str, str]
    """Digits of each private canary, to where it was planted: `canary/private.py: comment`."""
    control: Mapping[str, str]
    """By where the spy must find it, the digits of each canary of the control."""
    name: str
    """The own name of the problem whose release id is `canary`."""
    text: str = field(repr=False)
    """A canary of the control, whole: its public text holds it, and the spy is to say it."""

    @property
    def was_alive(self) -> bool:
        """Whether the private half has run."""
        return (self.site / _PACKAGE / self.name / ALIVE).exists()


def plant(folder: Path) -> Canaries:
    """Write the pack below `folder`."""
    found: dict[str, str] = {}

    def planted(text: str, where: str) -> str:
        def fresh(match: re.Match[str]) -> str:
            digits = _digits()
            found[digits] = f"{where}: {match[1]}"
            return MARK.decode() + digits

        return re.sub(r"@@(.+?)@@", fresh, text)

    control = {channel: _digits() for channel in CONTROLS}
    package = folder / _PACKAGE
    info = folder / f"{_PACKAGE}-1.dist-info"
    _write(info / "METADATA", f"Metadata-Version: 2.1\nName: {_PACKAGE}\nVersion: 1\n")
    _write(info / "entry_points.txt", f"[atrex_eval]\ncanary = {_PACKAGE}\n")
    name = planted("@@the name of the problem@@", NAMED)
    names = {PLAIN: name, CONTROL: CONTROL, BROKEN: BROKEN}
    init = _INIT.replace("NAMES", repr(tuple(names.values())))
    _write(package / "__init__.py", planted(init, "__init__.py"))
    for release_id, own_name in names.items():
        own = package / own_name
        reference = _reference_of(control) if release_id == CONTROL else _REFERENCE
        _write(own / "public" / "reference.py", reference.replace("NAME", own_name))
        _write(own / "public" / "inputs.py", _INPUTS)
        _write(own / "public" / "shapes.json", json.dumps(_SHAPES))
        private = _PRIVATE.replace("RELEASE_ID", release_id)
        private_half = {
            "private.py": private.replace("# broken", _RAISES if release_id == BROKEN else ""),
            "private.json": _FACTS,
            "variants.py": _VARIANTS,
        }
        for file, half in private_half.items():
            _write(own / file, planted(half, f"{release_id}/{file}"))
    text = MARK.decode() + control["files"]
    return Canaries(site=folder, private=found, control=control, name=name, text=text)


def _digits() -> str:
    return secrets.token_hex(DIGITS // 2)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _reference_of(control: Mapping[str, str]) -> str:
    """Return the control's reference: one canary to be said, and each of `CONTROLS` backwards."""
    mark = MARK.decode()
    held = {channel: (mark + digits)[::-1] for channel, digits in control.items()}
    return f"{_REFERENCE}\n\nSAY = {mark + control['files']!r}\nHELD = {held!r}\n{_HOLD}"


_SHAPES = {
    "phase": "both",
    "regimes": ["nominal", "large"],
    "published": [{"id": "0", "init": {}, "axes": {"rows": 64, "columns": 96}}],
    "smoke": [{"id": "small", "init": {}, "axes": {"rows": 5, "columns": 33}}],
}

_FACTS = """\
{
  "importance": 0.123457,
  "nested": [{"@@key@@": "@@value@@", "deeper": "@@nested value@@"}]
}
"""

_INIT = '''\
"""@@docstring@@"""

from collections.abc import Iterator
from importlib import import_module

from atrex_core import Pack, Problem, hookimpl

# @@comment@@
NOTE = "@@variable@@"


@hookimpl
def atrex_problems() -> Iterator[Problem]:
    pack = Pack(name="canary", version="1", digest="canary")
    for name in NAMES:
        yield import_module(f"{__name__}.{name}.private").Operator(pack)
'''

_REFERENCE = '''\
"""`NAME`: twice x, plus y."""

import torch


class Model(torch.nn.Module):
    """Add `y` to twice `x`."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return fp32 [rows, columns]."""
        return 2 * x + y
'''

_HOLD = """

import ctypes
import mmap
import os


class Keeper:
    pass


def turned(name):
    return HELD[name][::-1]


def raising():
    local = turned("tracebacks")
    raise ValueError(len(local))


def hold(look):
    keeper, local = Keeper(), turned("frames")
    keeper.attribute = turned("objects")
    try:
        raising()
    except ValueError as error:
        keeper.error = error
    buffer = ctypes.create_string_buffer(turned("memory").encode())
    with open("held", "w+b") as file, open(turned("environment"), "w+b") as named:
        file.write(turned("descriptors").encode())
        file.flush()
        named.write(b"0" * mmap.PAGESIZE)
        named.flush()
        os.unlink("held")
        with mmap.mmap(named.fileno(), 0):
            os.unlink(named.name)
            look()
    return keeper, local, buffer
"""

_INPUTS = '''\
"""Inputs: `nominal` near one, `large` near a thousand."""

import torch


def make_inputs(rows: int, columns: int, *, regime: str, seed: int, device: str):
    """Draw `x` and `y`, fp32 [rows, columns]."""
    rng = torch.Generator(device).manual_seed(seed)
    scale = 1000 if regime == "large" else 1
    return {
        name: torch.randn(rows, columns, generator=rng, device=device) * scale for name in "xy"
    }
'''

_PRIVATE = '''\
"""@@docstring@@"""

from pathlib import Path

from atrex_core import ArithmeticPath, DType, Tolerance, TensorSpec
from atrex_core.packs import FolderProblem

# @@comment@@
NOTE = "@@variable@@"


class Operator(FolderProblem):
    summary = "twice x, plus y"
    fact_keys = ("nested",)
    release_id = "RELEASE_ID"
    secret = "@@class attribute@@"
    provenance = "@@provenance@@"

    def inputs(self, workload):
        return tuple(TensorSpec(name=n, dtype=DType.FP32, shape=_shape(workload)) for n in "xy")

    def outputs(self, workload):
        return (TensorSpec(name="out", dtype=DType.FP32, shape=_shape(workload)),)

    def draw(self, workload, *, regime, seed, device):
        local = "@@local variable of draw@@" + str(seed)
        drawn = super().draw(workload, regime=regime, seed=seed, device=device)
        return drawn if local else {}

    def expected(self, workload, inputs):
        local = "@@local variable of expected@@" + str(len(inputs))
        (self.folder / "alive").touch()
        # broken
        return {"out": 2 * inputs["x"].double() + inputs["y"].double()} if local else {}

    def honest(self, workload, inputs):
        local = "@@local variable of honest@@" + str(len(inputs))
        return super().honest(workload, inputs) if local else {}

    def tolerance(self, output):
        local = "@@local variable of tolerance@@" + output.name
        return Tolerance(dtype=output.dtype) if local else None

    def canonical(self, workload, inputs, outputs, expected):
        local = "@@local variable of canonical@@" + str(len(inputs))
        return outputs if local else {}

    def cost(self, workload, inputs=None):
        rows, columns = _shape(workload)
        return self.count(workload, {ArithmeticPath.FP32_VECTOR: 2 * rows * columns})

    def own_mutants(self):
        return {"@@name of a mutant@@": self._zeros}


def _shape(workload):
    return workload.axes["rows"], workload.axes["columns"]
'''

_RAISES = 'raise RuntimeError("@@message of an error@@" + local)'

_VARIANTS = '''\
"""@@docstring@@"""


def doubled(workload, inputs):  # @@comment@@
    return {"out": inputs["x"] + inputs["x"] + inputs["y"]}


VARIANTS = {"@@name of a variant@@": doubled}
'''
