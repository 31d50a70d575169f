"""What problem packs are made of: an operator is a folder, and `FolderProblem` reads it.

    <operator>/public/reference.py   class Model: the definition, in plain torch
    <operator>/public/inputs.py      make_inputs(**axes, regime, seed, device): the generator
    <operator>/public/shapes.json    phase, regimes, workloads
    <operator>/private.py            a subclass of FolderProblem: specs, truth, rules, cost, mutants
    <operator>/private.json          importance, and whatever else the subclass reads
    <operator>/variants.py           VARIANTS: honest implementations by name

The public half may be shown to a candidate's author and runs alone, with torch only. The private
half judges. Public modules import torch, so they are loaded only when tensors are wanted.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from atrex_core.errors import PluginError
from atrex_core.interfaces import Implementation, Inapplicable, Problem, Tensors
from atrex_core.model import (
    ArithmeticPath,
    Container,
    Cost,
    DType,
    Origin,
    Pack,
    Phase,
    Rule,
    Scale,
    TensorSpec,
    Tolerance,
    Workload,
)
from atrex_core.tensors import RowBlocks

__all__ = ["FolderProblem", "altering", "by_rows", "coarse", "read_json"]

_BLOCK = 1 << 23
"""Elements in one block of `by_rows`."""

_STALE_SEED = 0x57A1E

_GROUPS = (
    ("published", Origin.PUBLISHED, Scale.FULL),
    ("added", Origin.ADDED, Scale.FULL),
    ("smoke", Origin.ADDED, Scale.SMOKE),
)
"""Keys of `shapes.json`, in the order in which workloads are listed."""


class FolderProblem(Problem):
    """One folder of a pack. A subclass supplies what no file can: specs, truth, cost, mutants.

    Subclasses live in the folder's `private.py`; name, phases and importance come from the files
    beside it.
    """

    folder: ClassVar[Path]
    facts: ClassVar[Any]
    """What `private.json` holds."""
    _shapes: ClassVar[Any]

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        folder = Path(sys.modules[cls.__module__].__file__ or "").parent
        if not (folder / "public" / "shapes.json").is_file():
            return  # a base class of a pack's own
        cls.folder = folder
        cls.name = folder.name
        cls._shapes = read_json(folder / "public" / "shapes.json")
        cls.facts = read_json(folder / "private.json")
        phase = Phase(cls._shapes["phase"])
        cls.phases = (Phase.PREFILL, Phase.DECODE) if phase is Phase.BOTH else (phase,)
        cls.importance = cls.facts["importance"]

    def __init__(self, pack: Pack) -> None:
        self.pack = pack

    @property
    def public_files(self) -> Sequence[Path]:
        """The reference, the input generator, and the list of shapes."""
        return tuple(
            self.folder / "public" / name for name in ("reference.py", "inputs.py", "shapes.json")
        )

    @property
    def release_id(self) -> str:
        """Return what `private.json` calls the operator before agents, or its name."""
        return str(self.facts.get("release_id") or self.name)

    @property
    def workloads(self) -> Sequence[Workload]:
        """Published workloads by their published ids, added ones, then small ones."""
        return self._workloads

    @cached_property
    def _workloads(self) -> Sequence[Workload]:
        phase = self._shapes["phase"]
        return tuple(
            Workload(
                id=entry["id"],
                axes=entry["axes"],
                init=entry["init"],
                phase=Phase(entry.get("phase", phase)),
                origin=origin,
                scale=scale,
            )
            for key, origin, scale in _GROUPS
            for entry in self._shapes.get(key, ())
        )

    def regimes(self, workload: Workload) -> Sequence[str]:
        """Name the distributions that `inputs.py` explains."""
        return tuple(self._shapes["regimes"])

    def draw(self, workload: Workload, *, regime: str, seed: int, device: str) -> Tensors:
        """Draw inputs with the public generator."""
        drawn: Tensors = self._public("inputs").make_inputs(
            **workload.axes, regime=regime, seed=seed, device=device
        )
        return drawn

    def honest(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Run the public reference."""
        return self.run_reference(workload, inputs, **workload.init)

    def run_reference(self, workload: Workload, inputs: Tensors, **init: Any) -> Tensors:
        """Run the public reference as constructed with `init`; return its outputs by name.

        Inputs that it may update are copied first, so that `inputs` stays as it is.
        """
        import torch

        updated = set(self.in_place.values())
        own = {name: t.clone() if name in updated else t for name, t in inputs.items()}
        with torch.no_grad():
            returned = self._public("reference").Model(**init)(**own)
        names = [spec.name for spec in self.outputs(workload)]
        match self.container:
            case Container.TENSOR:
                return {names[0]: returned}
            case Container.TUPLE:
                return dict(zip(names, returned, strict=True))
            case Container.DICT:
                return {name: returned[name] for name in names}

    def tolerance(self, output: TensorSpec) -> Rule:
        """Return the default rule in the output's own precision."""
        return Tolerance(dtype=output.dtype)

    def mutants(self) -> Mapping[str, Implementation]:
        """Return what is wrong for any operator, and what is wrong for this one."""
        found = {"zeros": self._zeros, "constant": self._constant, "stale": self._stale}
        if any(spec.dtype.is_floating for spec in self.outputs(self.workloads[0])):
            found["coarse"] = self._coarse
        return {**found, **self.own_mutants()}

    def variants(self) -> Mapping[str, Implementation]:
        """Return what `variants.py` beside `private.py` holds."""
        package = type(self).__module__.rpartition(".")[0]
        found: Mapping[str, Implementation] = import_module(f"{package}.variants").VARIANTS
        return found

    @abstractmethod
    def own_mutants(self) -> Mapping[str, Implementation]:
        """Return implementations that leave out or confuse a part of this operator."""

    def count(self, workload: Workload, flops: Mapping[ArithmeticPath, float]) -> Cost:
        """Return the cost of `flops` where every input is read and every output written once."""
        return Cost(
            flops=flops,
            read_bytes=sum(spec.nbytes for spec in self.inputs(workload)),
            write_bytes=sum(spec.nbytes for spec in self.outputs(workload)),
        )

    @cached_property
    def _modules(self) -> dict[str, ModuleType]:
        return {}

    def _public(self, stem: str) -> ModuleType:
        """Load a public module by its path, once: it belongs to no package."""
        if stem not in self._modules:
            path = self.folder / "public" / f"{stem}.py"
            spec = importlib.util.spec_from_file_location(f"{self.name}_{stem}", path)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            self._modules[stem] = module
        return self._modules[stem]

    def _zeros(self, workload: Workload, inputs: Tensors) -> Tensors:
        return {
            name: right.new_zeros(right.shape)
            for name, right in self.honest(workload, inputs).items()
        }

    def _constant(self, workload: Workload, inputs: Tensors) -> Tensors:
        right = self.honest(workload, inputs)
        if all(output.numel() <= 1 for output in right.values()):
            raise Inapplicable("every output is one value")
        answer = {}
        for name, output in right.items():
            finite = output.float().nan_to_num(0.0, 0.0, 0.0)
            answer[name] = output.new_empty(output.shape).copy_(finite.mean())
        return answer

    def _stale(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Answer another call's question."""
        device = str(next(iter(inputs.values())).device)
        other = self.draw(
            workload, regime=self.regimes(workload)[0], seed=_STALE_SEED, device=device
        )
        return self.honest(workload, other)

    def _coarse(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Keep half of the bits of every floating-point result, and four at most."""
        return {
            name: coarse(right, _coarse_bits(right)) if right.is_floating_point() else right
            for name, right in self.honest(workload, inputs).items()
        }


def altering(honest: Implementation, **changes: Callable[[Tensors], Any]) -> Implementation:
    """Return a mutant that computes honestly from inputs of which some were replaced."""

    def mutant(workload: Workload, inputs: Tensors) -> Tensors:
        altered = {name: change(inputs) for name, change in changes.items()}
        return honest(workload, {**inputs, **altered})

    return mutant


def coarse(values: Any, bits: int = 4) -> Any:
    """Round to `bits` significant bits, as a narrower type would."""
    import torch

    mantissa, exponent = torch.frexp(values.float())
    return torch.ldexp((mantissa * 2**bits).round() / 2**bits, exponent).to(values.dtype)


def by_rows(function: Callable[..., Any], *tensors: Any, row_elements: int = 0) -> RowBlocks:
    """Apply `function` to blocks of rows of `tensors`, when the result is looked at, in float64.

    Intermediate float64 copies stay bounded however large the tensors are. `row_elements` says
    how many elements a row needs inside `function` where that is more than its inputs have.
    `function` must return a tensor with as many rows as it was given; its dtype is changed to
    float64.
    """
    rows = len(tensors[0])
    widest = max(row_elements, *(tensor.numel() // max(1, rows) for tensor in tensors))
    step = max(1, _BLOCK // max(1, widest))

    def compute(start: int, stop: int) -> Any:
        return function(*(tensor[start:stop] for tensor in tensors)).double()

    shape = tuple(function(*(tensor[:1] for tensor in tensors)).shape[1:])
    return RowBlocks(shape=(rows, *shape), step=step, compute=compute)


def read_json(path: Path) -> Any:
    """Return what a pack's JSON file holds.

    Raises:
        PluginError: it cannot be read, or is no JSON; the message names it.
    """
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise PluginError(f"cannot read {str(path)!r}: {error}") from error


def _coarse_bits(values: Any) -> int:
    return 2 if values.element_size() == DType.FP8_E4M3FN.item_bytes else 4
