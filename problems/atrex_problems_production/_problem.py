"""What the pack's problems share: an operator is a folder, and this class reads it.

`public/` holds what a candidate's author may see: `reference.py`, `inputs.py`, `shapes.json`.
`private.py` and `private.json` beside it judge. The public modules import torch, so they are
loaded only when tensors are wanted.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from atrex_core import (
    ArithmeticPath,
    Container,
    Cost,
    HarnessError,
    Origin,
    Pack,
    Phase,
    Problem,
    Scale,
    Tensors,
    TensorSpec,
    Tolerance,
    Workload,
)

_BLOCK = 1 << 23
"""Elements in one block of `by_rows`."""

_STALE_SEED = 0x57A1E

Mutant = Callable[[Workload, Tensors], Tensors]

_PATHS = {
    "bf16": ArithmeticPath.BF16_MATRIX,
    "fp16": ArithmeticPath.FP16_MATRIX,
    "fp32": ArithmeticPath.FP32_VECTOR,
}
"""Where the published accounting files the work of each of its dtypes."""


class ProductionProblem(Problem):
    """One folder of the pack. A subclass supplies what no file can: specs, truth, cost, mutants.

    Subclasses live in the folder's `private.py`; name, phases and importance come from the files
    beside it.
    """

    folder: ClassVar[Path]

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        cls.folder = Path(sys.modules[cls.__module__].__file__ or "").parent
        cls.name = cls.folder.name
        phase = Phase(_read(cls.folder / "public" / "shapes.json")["phase"])
        cls.phases = (Phase.PREFILL, Phase.DECODE) if phase is Phase.BOTH else (phase,)
        cls.importance = _read(cls.folder / "private.json")["importance"]

    def __init__(self, pack: Pack) -> None:
        self.pack = pack

    @property
    def public_files(self) -> Sequence[Path]:
        """The reference, the input generator, and the list of shapes."""
        return tuple(
            self.folder / "public" / name for name in ("reference.py", "inputs.py", "shapes.json")
        )

    @property
    def workloads(self) -> Sequence[Workload]:
        """Published workloads by their published ids, then the pack's own small ones."""
        return self._workloads

    @cached_property
    def _workloads(self) -> Sequence[Workload]:
        phase = Phase(self._shapes["phase"])
        return tuple(
            Workload(
                id=entry["id"],
                axes=entry["axes"],
                init=entry["init"],
                phase=phase,
                origin=origin,
                scale=scale,
            )
            for key, origin, scale in (
                ("published", Origin.PUBLISHED, Scale.FULL),
                ("smoke", Origin.ADDED, Scale.SMOKE),
            )
            for entry in self._shapes[key]
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
        """Run the public reference as constructed with `init`; return its outputs by name."""
        import torch

        with torch.no_grad():
            returned = self._public("reference").Model(**init)(**inputs)
        names = [spec.name for spec in self.outputs(workload)]
        if self.container is Container.TENSOR:
            return {names[0]: returned}
        return {name: returned[name] for name in names}

    def tolerance(self, output: TensorSpec) -> Tolerance:
        """Return the default rule in the output's own precision."""
        return Tolerance(dtype=output.dtype)

    def mutants(self) -> Mapping[str, Mutant]:
        """Return what is wrong for any operator, and what is wrong for this one."""
        return {
            "zeros": self._zeros,
            "constant": self._constant,
            "stale": self._stale,
            "coarse": self._coarse,
            **self.own_mutants(),
        }

    @abstractmethod
    def own_mutants(self) -> Mapping[str, Mutant]:
        """Return implementations that leave out or confuse a part of this operator."""

    @abstractmethod
    def published_flops(self, workload: Workload) -> float:
        """Count work as the published roofline does."""

    def published_cost(self, workload: Workload) -> Cost:
        """Return the published work and bytes: one bucket, all inputs read, all outputs written.

        Kept so that results can be set beside published ones; `cost` is what bounds a kernel.
        """
        published = _read(self.folder / "private.json")["published"].get(workload.id)
        if published is None:
            raise HarnessError(f'workload "{self.name}/{workload.id}" was not published')
        (bucket,) = published["flops"]
        return self.count(workload, {_PATHS[bucket]: self.published_flops(workload)})

    def count(self, workload: Workload, flops: Mapping[ArithmeticPath, float]) -> Cost:
        """Return the cost of `flops` where every input is read and every output written once."""
        return Cost(
            flops=flops,
            read_bytes=sum(spec.nbytes for spec in self.inputs(workload)),
            write_bytes=sum(spec.nbytes for spec in self.outputs(workload)),
        )

    @cached_property
    def _shapes(self) -> Any:
        return _read(self.folder / "public" / "shapes.json")

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
            name: right.new_zeros(()).expand_as(right).clone()
            for name, right in self.honest(workload, inputs).items()
        }

    def _constant(self, workload: Workload, inputs: Tensors) -> Tensors:
        return {
            name: right.float().mean().to(right.dtype).expand_as(right).clone()
            for name, right in self.honest(workload, inputs).items()
        }

    def _stale(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Answer another call's question."""
        device = str(next(iter(inputs.values())).device)
        other = self.draw(
            workload, regime=self.regimes(workload)[0], seed=_STALE_SEED, device=device
        )
        return self.honest(workload, other)

    def _coarse(self, workload: Workload, inputs: Tensors) -> Tensors:
        """Keep four bits of every floating-point result."""
        return {
            name: coarse(right) if right.is_floating_point() else right
            for name, right in self.honest(workload, inputs).items()
        }


def altering(honest: Mutant, **changes: Callable[[Tensors], Any]) -> Mutant:
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


def by_rows(function: Callable[..., Any], *tensors: Any, row_elements: int = 0) -> Any:
    """Apply `function` to blocks of rows of `tensors`; return its float64 results as one tensor.

    Intermediate float64 copies stay bounded however large the tensors are. `row_elements` says
    how many elements a row needs inside `function` where that is more than its inputs have.
    """
    import torch

    rows = len(tensors[0])
    widest = max(row_elements, *(tensor.numel() // rows for tensor in tensors))
    step = max(1, _BLOCK // max(1, widest))
    result: Any = None
    for start in range(0, rows, step):
        part = function(*(tensor[start : start + step] for tensor in tensors))
        if result is None:
            result = part.new_empty((rows, *part.shape[1:]), dtype=torch.float64)
        result[start : start + step] = part
    return result


def _read(path: Path) -> Any:
    return json.loads(path.read_bytes())
