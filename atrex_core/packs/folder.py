"""A problem that is a folder: its files say what files can, a subclass says the rest."""

from __future__ import annotations

import importlib.util
import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
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
    Pack,
    Phase,
    Rule,
    TensorSpec,
    Tolerance,
    Workload,
)
from atrex_core.packs.files import read_facts, read_shapes
from atrex_core.packs.parts import coarse
from atrex_core.suggest import close_match

_STALE_SEED = 0x57A1E
_CONTAINERS = (tuple, list, Mapping)


class FolderProblem(Problem):
    """One folder of a pack. A subclass supplies what no file can: specs, truth, cost, mutants.

    Subclasses live in the folder's `private.py`; name, phases and importance come from the files
    beside it.
    """

    fact_keys: ClassVar[Collection[str]] = ()
    """Keys of `private.json` that a pack adds to those of every operator."""
    folder: ClassVar[Path]
    facts: ClassVar[Mapping[str, Any]]
    """What `private.json` holds."""
    _shapes: ClassVar[Mapping[str, Any]]
    _workloads: ClassVar[Sequence[Workload]]

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        folder = Path(sys.modules[cls.__module__].__file__ or "").parent
        if not (folder / "public" / "shapes.json").is_file():
            return  # a base class of a pack's own
        cls.folder = folder
        cls.name = folder.name
        cls._shapes, cls._workloads = read_shapes(folder / "public" / "shapes.json")
        cls.facts = read_facts(folder / "private.json", cls.fact_keys)
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
    def provenance(self) -> str:
        """Return what `private.json` says of where shapes and weights come from."""
        return str(self.facts.get("provenance", ""))

    @property
    def workloads(self) -> Sequence[Workload]:
        """Published workloads by their published ids, added ones, then small ones."""
        return self._workloads

    def regimes(self, workload: Workload) -> Sequence[str]:
        """Name the distributions that `inputs.py` explains."""
        return tuple(self._shapes["regimes"])

    def draw(self, workload: Workload, *, regime: str, seed: int, device: str) -> Tensors:
        """Draw inputs with the public generator."""
        generator = self._public("inputs").make_inputs
        arguments = {**workload.axes, "regime": regime, "seed": seed, "device": device}
        what = f"`make_inputs` of {self.name}/public/inputs.py does not take the axes"
        drawn: Tensors = _called(generator, arguments, f"{what} of workload {workload.id!r}")
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
        file = f"{self.name}/public/reference.py"
        with torch.no_grad():
            what = f"`Model` of {file} does not take the init of workload {workload.id!r}"
            model = _called(self._public("reference").Model, init, what)
            returned = _called(model, own, f"`forward` of {file} does not take what `inputs` names")
        return self._by_name(workload, returned)

    def _by_name(self, workload: Workload, returned: Any) -> Tensors:
        names = [spec.name for spec in self.outputs(workload)]
        match self.container, returned:
            case Container.TUPLE, tuple() | list() if len(returned) == len(names):
                return dict(zip(names, returned, strict=True))
            case Container.DICT, Mapping() if returned.keys() >= set(names):
                return {name: returned[name] for name in names}
            case Container.TENSOR, _ if len(names) == 1 and not isinstance(returned, _CONTAINERS):
                return {names[0]: returned}
        raise PluginError(
            f"`forward` of {self.name}/public/reference.py returns {_described(returned)}, but "
            f"`container` of {self.name}/private.py is Container.{self.container.name} and "
            f"`outputs` names {names}"
        )

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
        file = f"{self.name}/variants.py"
        if not (self.folder / "variants.py").is_file():
            raise PluginError(f"there is no {file}")
        package = type(self).__module__.rpartition(".")[0]
        module = import_module(f"{package}.variants")
        if not hasattr(module, "VARIANTS"):
            close = close_match("VARIANTS", vars(module))
            raise PluginError(
                f"{file} has no `VARIANTS`" + (f": did you mean {close!r}?" if close else "")
            )
        found: Mapping[str, Implementation] = module.VARIANTS
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


def _coarse_bits(values: Any) -> int:
    return 2 if values.element_size() == DType.FP8_E4M3FN.item_bytes else 4


def _called(function: Callable[..., Any], arguments: Mapping[str, Any], complaint: str) -> Any:
    """Call by keyword; where the function does not take them, raise the complaint."""
    try:
        return function(**arguments)
    except TypeError as error:
        trace = error.__traceback__
        if trace is not None and trace.tb_next is None:  # no line of the function was reached
            raise PluginError(f"{complaint}: {error}") from error
        raise


def _described(returned: Any) -> str:
    match returned:
        case tuple() | list():
            return f"a {type(returned).__name__} of {len(returned)}"
        case Mapping():
            return f"a mapping of {list(returned)}"
    return f"a {type(returned).__name__}"
