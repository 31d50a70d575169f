"""Does a problem keep what it promises? Specs, seeds, regimes, costs, and its public half.

Each check is asked by itself: what one raises, or fails on, keeps no other from being asked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field

from atrex_core.interfaces import Problem, Tensors
from atrex_core.interfaces.declared import (
    inputs_of,
    misplaced,
    mutants_of,
    outputs_of,
    regimes_of,
    variants_of,
)
from atrex_core.model import Cost, DType, Protocol, Scale, TensorSpec, Workload
from atrex_core.model.lint import Fate, Finding, Kind
from atrex_core.processes.attempt import Attempt
from atrex_core.referee.bench import correctness_regimes
from atrex_core.referee.faults import fault_of, unlike
from atrex_core.referee.isolation import Alone
from atrex_core.referee.lint import DRAW, Excluded, Watch, lent, pass_on_the_users_own
from atrex_core.referee.lint_loops import loop
from atrex_core.referee.lint_public import (
    every_regime,
    leak,
    missing_file,
    not_alone,
    placeholder,
    unreleasable,
)
from atrex_core.referee.seals import Seal, raw
from atrex_core.tensors import RowBlocks, dtype_of

LEAST_MUTANTS = 5
LEAST_VARIANTS = 2
LEAST_SMOKE = 3

_OTHER_SEEDS = 3
"""Seeds of which one must give other values: tiny integer inputs may coincide by chance."""
_MOST_TIMES = 4.0
"""How far a cost counted from inputs may exceed the one that is estimated without them."""
_UNKNOWN_REGIME = "no_such_regime"

Question = Callable[[], str | None]
"""Returns what is wrong, None where nothing is; may raise anything."""


def check_problem(
    problem: Problem, *, alone: Alone, watch: Watch, without: Excluded = ()
) -> Iterator[Finding]:
    """Check what concerns a problem as a whole; yield one finding for each check.

    Args:
        problem: As the strict protocol judges it.
        alone: Where its public half is run.
        watch: Told of every check before it is made.
        without: Left out, because making them has ended a process before.
    """
    desk = _Desk(problem, None, "cpu", watch, without)
    desk.ask("mutants", lambda: _too_few(mutants_of(problem), LEAST_MUTANTS, "mutants"))
    desk.ask("variants", lambda: _too_few(variants_of(problem), LEAST_VARIANTS, "honest variants"))
    smoke: list[Workload] = []

    def few_smoke() -> str | None:
        smoke[:] = problem.select(Scale.SMOKE)
        return _too_few(smoke, LEAST_SMOKE, "smoke workloads")

    desk.ask("smoke workloads", few_smoke)
    desk.ask("workload ids", lambda: _repeated_ids(problem.workloads))
    desk.ask("public files", lambda: missing_file(problem))
    desk.ask("private text", lambda: leak(problem))
    desk.ask("runs alone", lambda: not_alone(problem, smoke, alone))
    desk.ask("release", lambda: unreleasable(problem))
    desk.ask("provenance", lambda: placeholder(problem))
    desk.ask("vectorised", lambda: loop(problem, smoke))
    yield from desk.findings()


def check_workload(
    problem: Problem,
    workload: Workload,
    *,
    device: str,
    seed: int,
    cases: int,
    watch: Watch,
    without: Excluded = (),
) -> Iterator[Finding]:
    """Check what a problem says of one workload; yield one finding for each check.

    Args:
        problem: As the strict protocol judges it.
        workload: One of its workloads.
        device: The torch device to compute on.
        seed: Of the inputs that are looked at.
        cases: Correctness cases that a run would make.
        watch: Told of every check before it is made.
        without: Left out, because making them has ended a process before.
    """
    desk = _Desk(problem, workload, device, watch, without)
    every: list[str] = []

    def regimes() -> str | None:
        every[:] = every_regime(problem, workload)
        return _undrawn(problem, workload, cases)

    desk.ask("regimes", regimes)
    desk.ask("unknown regime", lambda: _takes_any_regime(problem, workload, device))
    desk.ask("in place", lambda: misplaced(problem, workload))
    desk.ask("cost", lambda: _odd_cost(problem.cost(workload)))
    for regime in every:
        _look_at(desk, problem, workload, regime, seed)
    yield from desk.findings()


@define(eq=False)
class _Desk:
    """Where checks are asked and their answers collected: one complaint for each is enough."""

    problem: Problem
    workload: Workload | None
    device: str
    watch: Watch
    without: Excluded
    asked: list[str] = field(factory=list)
    found: dict[str, tuple[Fate, str, str | None]] = field(factory=dict)

    def ask(self, name: str, question: Question, regime: str | None = None) -> None:
        if name in self.found or (Kind.CHECK, name) in self.without:
            return
        if name not in self.asked:
            self.asked.append(name)
        self.watch(Attempt(Kind.CHECK, name, regime))
        try:
            complaint = question()
        except BaseException as error:  # noqa: BLE001  (it is the pack's code: say what it did)
            pass_on_the_users_own(error)
            self.found[name] = (*fault_of(error, self.device), regime)
        else:
            if complaint is not None:
                self.found[name] = (Fate.FAILED, complaint, regime)

    def findings(self) -> Iterator[Finding]:
        for name in self.asked:
            fate, reason, regime = self.found.get(name, (Fate.PASSED, None, None))
            yield Finding(
                problem=self.problem.name,
                workload=self.workload.id if self.workload else None,
                protocol=Protocol.STRICT,
                kind=Kind.CHECK,
                name=name,
                fate=fate,
                regime=regime,
                reason=reason,
            )


def _look_at(desk: _Desk, problem: Problem, workload: Workload, regime: str, seed: int) -> None:
    """Ask about the inputs of one regime, and about the answers to them."""
    drawn: list[Tensors] = []

    def draw(seed: int) -> Tensors:
        return problem.draw(workload, regime=regime, seed=seed, device=desk.device)

    desk.ask(DRAW, lambda: drawn.append(draw(seed)), regime)
    if not drawn:
        return
    (inputs,) = drawn
    outputs: list[TensorSpec] = []

    def unlike_declared() -> str | None:
        specs = inputs_of(problem, workload)
        outputs[:] = outputs_of(problem, workload)
        return unlike(specs, inputs, desk.device) or _not_in_order(specs, inputs)

    desk.ask("inputs", unlike_declared, regime)
    if "inputs" in desk.found:
        return
    seal = Seal.of(inputs)
    desk.ask("finite inputs", lambda: _not_finite(inputs), regime)
    desk.ask("seeds", lambda: _seedless(inputs, draw, seed), regime)
    # What is estimated without inputs is meant for those of the first regime, the timed one.
    is_timed = [regime] == list(problem.regimes(workload))[:1]
    desk.ask("cost", lambda: _unlikely(problem, workload, inputs, estimated=is_timed), regime)
    desk.ask("reference", lambda: _unlike_honest(problem, workload, inputs, outputs), regime)
    desk.ask("expected", lambda: _unlike_expected(problem, workload, inputs, outputs), regime)
    desk.ask("inputs unchanged", lambda: _changed(seal, inputs), regime)


# -- of a problem ------------------------------------------------------------------------------


def _too_few(found: Mapping[str, Any] | Sequence[Any], least: int, what: str) -> str | None:
    if len(found) >= least:
        return None
    return f"{len(found)} {what} are too few: at least {least} are asked for"


def _repeated_ids(workloads: Sequence[Workload]) -> str | None:
    """Tell workloads apart that have one id, by their places in the list."""
    ids = [workload.id for workload in workloads]
    twice = [id_ for id_, times in Counter(ids).items() if times > 1]
    if not twice:
        return None
    places = [str(place) for place, id_ in enumerate(ids, start=1) if id_ == twice[0]]
    *most, last = places
    return (
        f"workloads number {', '.join(most)} and {last} have one id, {twice[0]!r}: "
        "only the first of them is linted"
    )


# -- of a workload -----------------------------------------------------------------------------


def _undrawn(problem: Problem, workload: Workload, cases: int) -> str | None:
    regimes = list(regimes_of(problem, workload))
    if not regimes:
        return "there is no regime to draw inputs in"
    twice = [name for name, times in Counter(regimes).items() if times > 1]
    if twice:
        return f"several regimes are called {twice[0]!r}"
    left_out = set(regimes) - set(correctness_regimes(problem, workload, cases))
    return f"no case draws {sorted(left_out)}" if left_out else None


def _takes_any_regime(problem: Problem, workload: Workload, device: str) -> str | None:
    try:
        problem.draw(workload, regime=_UNKNOWN_REGIME, seed=0, device=device)
    except ValueError:
        return None
    return "a regime that does not exist is drawn: it must raise ValueError"


def _not_in_order(specs: Sequence[TensorSpec], inputs: Tensors) -> str | None:
    names = [spec.name for spec in specs]
    if list(inputs) != names:
        return f"they come as {list(inputs)}, not in the order {names}"
    for name, tensor in inputs.items():
        if not tensor.is_contiguous():
            return f"{name!r} is not contiguous"
    return None


def _not_finite(inputs: Tensors) -> str | None:
    import torch

    for name, tensor in inputs.items():
        if tensor.is_floating_point():
            wide = tensor if tensor.element_size() > 1 else tensor.float()
            if not torch.isfinite(wide).all():
                return f"{name!r} holds values that are not finite"
    return None


def _seedless(inputs: Tensors, draw: Callable[[int], Tensors], seed: int) -> str | None:
    if changed := _differing(inputs, draw(seed)):
        return f"the same seed gives other values of {changed[0]!r}"
    for step in range(1, _OTHER_SEEDS + 1):
        if _differing(inputs, draw(seed + step)):
            return None
    return f"{_OTHER_SEEDS} other seeds give the same values"


def _odd_cost(cost: Cost) -> str | None:
    figures = {"read bytes": cost.read_bytes, "write bytes": cost.write_bytes}
    figures |= {f"{path} operations": count for path, count in cost.flops.items()}
    for what, figure in figures.items():
        if not math.isfinite(figure) or figure < 0:
            return f"its {what} are {figure}"
    return None if cost.total_bytes > 0 else "no byte has to be moved"


def _unlikely(
    problem: Problem, workload: Workload, inputs: Tensors, *, estimated: bool
) -> str | None:
    guess, cost = problem.cost(workload), problem.cost(workload, lent(inputs))
    if complaint := _odd_cost(cost):
        return complaint
    for what, found, expected in (
        ("operations", sum(cost.flops.values()), sum(guess.flops.values())),
        ("bytes", cost.total_bytes, guess.total_bytes),
    ):
        if estimated and found > _MOST_TIMES * expected:
            return f"{found:.6g} {what} are counted from inputs, {expected:.6g} without them"
    return None


def _unlike_honest(
    problem: Problem, workload: Workload, inputs: Tensors, outputs: Sequence[TensorSpec]
) -> str | None:
    honest = problem.honest(workload, lent(inputs))
    device = next(iter(inputs.values())).device
    if complaint := unlike(outputs, honest, device):
        return complaint
    loose = [spec.name for spec in outputs if not honest[spec.name].is_contiguous()]
    return f"{loose[0]!r} is not contiguous" if loose else None


def _unlike_expected(
    problem: Problem, workload: Workload, inputs: Tensors, outputs: Sequence[TensorSpec]
) -> str | None:
    expected = problem.expected(workload, lent(inputs))
    if set(expected) != {spec.name for spec in outputs}:
        return f"it names {list(expected)}, not {[spec.name for spec in outputs]}"
    for spec in outputs:
        value = expected[spec.name]
        if tuple(value.shape) != spec.shape:
            return f"{spec.name!r} is {list(value.shape)}, not {list(spec.shape)}"
        is_held = spec.name in problem.fp32_truth
        if 0 not in spec.shape and (complaint := _imprecise(spec, value, is_held=is_held)):
            return complaint
    return None


def _imprecise(spec: TensorSpec, value: Any, *, is_held: bool) -> str | None:
    """Say whether a true value is of a type that cannot hold it: float64 of floats, or integers."""
    sample = value.rows(0, 1) if isinstance(value, RowBlocks) else value
    dtype = dtype_of(sample)
    found = f"{spec.name!r} is {dtype or sample.dtype}"
    if sample.is_floating_point() != spec.dtype.is_floating:
        return f"{found}, its output is {spec.dtype}"
    if is_held and dtype is DType.FP32 and spec.dtype.item_bytes <= DType.FP16.item_bytes:
        return None
    if spec.dtype.is_floating and dtype is not DType.FP64:
        return f"{found}, not {DType.FP64}: that is no truth for an output in {spec.dtype}"
    if dtype is not None and dtype.item_bytes < spec.dtype.item_bytes:
        return f"{found}, less precise than its output, {spec.dtype}"
    return None


def _changed(seal: Seal, inputs: Tensors) -> str | None:
    changed = seal.broken(inputs)
    return f"an answer to them, or their cost, has changed {changed[0]!r}" if changed else None


def _differing(first: Tensors, second: Tensors) -> list[str]:
    import torch

    return [name for name in first if not torch.equal(raw(first[name]), raw(second[name]))]
