"""What one referee works with: a device, a backend, a protocol, and the problems it can judge."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Self

from attrs import define, field, frozen

from atrex_core.comparison import Comparison, compare
from atrex_core.interfaces import Accelerator, Backend, DeviceContext, Problem, Tensor, Tensors
from atrex_core.model import Device, DType, HardwareProfile, Workload
from atrex_core.processes.fork_server import ForkServerProcess
from atrex_core.processes.messages import Setup
from atrex_core.referee.arena import POISON_BYTE
from atrex_core.referee.copies import CopyClock
from atrex_core.referee.seals import raw
from atrex_core.tensors import torch_dtype

_MOST_SETS = 256
_LEAST_SETS = 4
_FOR_SLOPES = 32
_SLOPES_BYTES = 2**28
"""Small sets are many, so that what is constant in a held round weighs little."""
_MOST_HELD = 48
"""A queue takes about 1000 launches; a call may make several, and copies its outputs."""
_SEED_BITS = 48


@define(eq=False)
class Bench:
    """Everything that outlives one candidate."""

    setup: Setup
    device: Device
    accelerator: Accelerator
    backend: Backend
    context: DeviceContext
    profile: HardwareProfile | None
    server: ForkServerProcess
    problems: Mapping[str, Problem]
    environment: Mapping[str, str]
    calibrated: HardwareProfile | None = None
    """The envelope of this very device, where it has been calibrated."""
    launch_floor_us: float | None = None
    """What its smallest operation takes, where it has been calibrated."""
    copies: CopyClock = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.copies = CopyClock(self.context)

    def rotation(
        self, problem: Problem, workload: Workload, room_bytes: int | None
    ) -> tuple[int, bool]:
        """Return how many input sets timing rotates, and whether that keeps calls cold.

        Cold means that the sets and the outputs kept beside them exceed the last-level cache
        twice over. The number of sets is capped, so tiny workloads stay warm, and say so; where
        no more fit into `room_bytes`, as many as overrun the cache will do.
        """
        if not self.accelerator.is_timed:
            return 1, False
        specs = (*problem.inputs(workload), *problem.outputs(workload))
        set_bytes = max(1, sum(spec.nbytes for spec in specs))
        cache = self.context.last_level_cache_bytes or self.device.last_level_cache_bytes
        if cache is None:
            return 2, False
        enough = math.ceil(2 * cache / set_bytes)
        wanted = max(enough, min(_FOR_SLOPES, max(_LEAST_SETS, _SLOPES_BYTES // set_bytes)))
        while wanted > enough and room_bytes is not None:
            if self.needed_bytes(problem, workload, wanted, held=wanted) <= room_bytes:
                break
            wanted = max(enough, wanted // 2)
        return min(wanted, _MOST_SETS), wanted <= _MOST_SETS

    def held_sets(
        self, problem: Problem, workload: Workload, sets: int, room_bytes: int | None
    ) -> int:
        """Return how many of the sets a held queue may use at once, one call each."""
        most = min(sets, _MOST_HELD) if self.accelerator.is_timed else 1
        while most > 1 and room_bytes is not None:
            if self.needed_bytes(problem, workload, sets, held=most) <= room_bytes:
                break
            most //= 2
        return most

    def needed_bytes(self, problem: Problem, workload: Workload, sets: int, held: int = 1) -> int:
        """Return what both processes hold at once, beside what either computes with.

        The sets and the outputs that a worker keeps for each; the referee's own inputs and what
        it copies or compares them with; the buffer that outputs are copied to, the referee's copy
        of that, an honest answer, one that settles what the operator leaves open, and two that
        are known to be right. For each further call of a held queue, inputs in private memory,
        and outputs.
        """
        inputs = sum(spec.nbytes for spec in problem.inputs(workload))
        specs = problem.outputs(workload)
        outputs = sum(spec.nbytes for spec in specs)
        kept = sum(spec.nbytes for spec in specs if spec.name not in problem.in_place)
        further = (held - 1) * (inputs + outputs)
        return sets * (inputs + kept) + 2 * inputs + 6 * outputs + further


@frozen(kw_only=True)
class Case:
    """Inputs of one correctness case, in private memory."""

    regime: str
    seed: int
    inputs: Tensors

    @classmethod
    def draw(cls, bench: Bench, problem: Problem, workload: Workload, regime: str) -> Case:
        """Draw inputs from a fresh secret seed."""
        seed = secrets.randbits(_SEED_BITS)
        inputs = problem.draw(workload, regime=regime, seed=seed, device=bench.context.torch_device)
        return cls(regime=regime, seed=seed, inputs=inputs)


@frozen(kw_only=True)
class Truth:
    """What the outputs should be for one set of inputs: computed once, compared with many times."""

    expected: Tensors
    honest: Tensors

    @classmethod
    def of(cls, problem: Problem, workload: Workload, inputs: Tensors) -> Self:
        """Compute both."""
        return cls(
            expected=problem.expected(workload, inputs), honest=problem.honest(workload, inputs)
        )


def judge_outputs(
    problem: Problem,
    workload: Workload,
    inputs: Tensors,
    outputs: Mapping[str, Tensor],
    truth: Truth | None = None,
) -> dict[str, Comparison]:
    """Compare outputs, by name, with what the problem expects for `inputs`."""
    truth = truth or Truth.of(problem, workload, inputs)
    settled = problem.canonical(workload, inputs, outputs, truth.expected)
    found = {}
    for spec in problem.outputs(workload):
        found[spec.name] = compare(
            spec,
            problem.tolerance(spec) if spec.dtype.is_floating else None,
            actual=settled[spec.name],
            expected=truth.expected[spec.name],
            honest=truth.honest[spec.name],
            poison=_poison(spec.dtype) if _is_untouched(outputs[spec.name]) else None,
        )
    return found


def first_wrong(comparisons: Mapping[str, Comparison]) -> tuple[str, Comparison] | None:
    """Return the first output that does not pass, if any."""
    return next(((n, c) for n, c in comparisons.items() if not c.passed), None)


def is_blank(outputs: Mapping[str, Tensor]) -> bool:
    """Return whether an output holds nothing but NaN: no expected one does."""
    return any(
        bool((tensor != tensor).all())
        for tensor in outputs.values()
        if tensor.is_floating_point() and tensor.itemsize > 1 and tensor.numel()
    )


def correctness_regimes(problem: Problem, workload: Workload, cases: int) -> Sequence[str]:
    """Return one regime a case: at least `cases`, and each of the problem's at least once."""
    regimes = tuple(problem.regimes(workload))
    count = max(cases, len(regimes))
    return tuple(regimes[i % len(regimes)] for i in range(count))


def _is_untouched(output: Tensor) -> bool:
    """Return whether an output is still as we left it: not merely NaN, but our own NaN."""
    return bool((raw(output) == POISON_BYTE).all())


def _poison(dtype: DType) -> float:
    """Return the value whose bytes are all `POISON_BYTE`: NaN in most floating types."""
    import torch

    poison = torch.full((dtype.item_bytes,), POISON_BYTE, dtype=torch.uint8)
    return float(poison.view(torch_dtype(dtype)).to(torch.float64).item())
