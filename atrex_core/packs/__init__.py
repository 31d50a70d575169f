"""What problem packs are made of: an operator is a folder, and `FolderProblem` reads it.

    <operator>/public/reference.py   class Model: the definition, in plain torch
    <operator>/public/inputs.py      make_inputs(**axes, regime, seed, device): the generator
    <operator>/public/shapes.json    phase, regimes, workloads
    <operator>/private.py            class Operator(FolderProblem): specs, truth, cost, mutants
    <operator>/private.json          importance, release id, provenance, and what the pack adds
    <operator>/variants.py           VARIANTS: honest implementations by name

The public half may be shown to a candidate's author and runs alone, with torch only. The private
half judges. Public modules import torch, so they are loaded only when tensors are wanted.

`operators` is what a pack yields: all of them, each that cannot be loaded as a `BrokenProblem`.
"""

from atrex_core.interfaces.problem import BrokenProblem
from atrex_core.packs.files import read_json
from atrex_core.packs.folder import FolderProblem
from atrex_core.packs.operators import operators
from atrex_core.packs.parts import altering, by_rows, coarse

__all__ = [
    "BrokenProblem",
    "FolderProblem",
    "altering",
    "by_rows",
    "coarse",
    "operators",
    "read_json",
]
