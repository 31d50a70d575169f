"""Do the reference and the generator loop on the host, over rows or tokens?

Operations are counted while each size of a small workload grows by itself: unit by unit, and
doubled. A loop over rows grows with every unit, one over chunks with some. Growth times the largest
such size among the workloads is how many operations the host would have to launch there. Loops
over chunks, experts or sequences pass where they are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from attrs import evolve, frozen

from atrex_core.interfaces import Problem
from atrex_core.model import Workload

MOST_BY_UNIT = 5_000
"""Operations of one call on the largest workload, where each unit of a size adds some."""
MOST_BY_CHUNK = 200_000
"""The same where only some units do, as in a recurrence over chunks."""
MOST_WAITS = 1_000
"""Values that are read on the host: each waits for all that a device has to do."""

_STEPS = 3
"""Units that a size grows by, one after the other."""
_SEED = 11
_WAIT = "_local_scalar_dense"


@frozen
class _Count:
    operations: int
    waits: int


def loop(problem: Problem, smoke: Sequence[Workload]) -> str | None:
    """Say which size would cost too many operations, if any. A size that cannot be is no fault."""
    if not smoke:
        return None
    small = max(smoke, key=lambda w: sum(spec.nbytes for spec in problem.inputs(w)))
    try:
        before = _counted(problem, small)
    except Exception:  # noqa: BLE001  (other checks draw and answer, too, and say what is wrong)
        return None
    for name, extent in _sizes(small.axes):
        largest = max((_extent(w.axes.get(name)) for w in problem.workloads), default=0)
        doubled = _grown(problem, small, name, 2 * extent)
        if doubled is None:
            continue
        steps = [_grown(problem, small, name, extent + n) for n in range(1, _STEPS + 1)]
        for what, few in before.items():
            walk = [few, *(step[what] for step in steps if step is not None)]
            each = len(walk) > _STEPS and all(
                b.operations > a.operations for a, b in pairwise(walk)
            )
            growth = _Growth(few, doubled[what], extent, largest)
            if complaint := growth.complaint(MOST_BY_UNIT if each else MOST_BY_CHUNK):
                return f"{what} loops over {name!r}: {complaint}"
    return None


@frozen
class _Growth:
    few: _Count
    many: _Count
    extent: int
    """The size at first; twice that gave `many`."""
    largest: int

    def complaint(self, most: int) -> str | None:
        operations = self._at_most(self.few.operations, self.many.operations)
        waits = self._at_most(self.few.waits, self.many.waits)
        if waits > MOST_WAITS:
            return (
                f"{waits:,.0f} values are read on the host (`.item()`, `if tensor`) where it is "
                f"{self.largest}, more than {MOST_WAITS:,}"
            )
        if operations > most:
            return f"{operations:,.0f} operations where it is {self.largest}, more than {most:,}"
        return None

    def _at_most(self, few: int, many: int) -> float:
        return few + (many - few) / self.extent * max(0, self.largest - self.extent)


def _sizes(axes: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    return ((name, _extent(value)) for name, value in axes.items() if _extent(value) > 0)


def _grown(
    problem: Problem, workload: Workload, name: str, extent: int
) -> Mapping[str, _Count] | None:
    """Count with one size changed; None where it cannot be so, as some sizes hang together."""
    value = workload.axes[name]
    if not isinstance(value, int):
        first = value.index(_extent(value))
        changed: Any = [extent if place == first else n for place, n in enumerate(value)]
    else:
        changed = extent
    try:
        return _counted(problem, evolve(workload, axes={**workload.axes, name: changed}))
    except Exception:  # noqa: BLE001  (whatever the pack's code raises: it was not made for it)
        return None


def _extent(value: Any) -> int:
    """Return a size, or the largest of several; 0 of anything else."""
    match value:
        case bool():
            return 0
        case int():
            return value
        case list() | tuple() if value and all(type(n) is int for n in value):
            return int(max(value))
    return 0


def _counted(problem: Problem, workload: Workload) -> Mapping[str, _Count]:
    """Count what drawing inputs takes, and what answering does."""
    regime = problem.regimes(workload)[0]
    drawn: list[Any] = []

    def draw() -> None:
        drawn.append(problem.draw(workload, regime=regime, seed=_SEED, device="cpu"))

    generator = _count(draw)
    reference = _count(lambda: problem.honest(workload, drawn[0]))
    return {"the generator": generator, "the reference": reference}


def _count(work: Callable[[], Any]) -> _Count:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        operations = waits = 0

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.operations += 1
            self.waits += _WAIT in str(function)
            return function(*args, **(kwargs or {}))

    with torch.no_grad(), Counting() as counting:
        work()
    return _Count(counting.operations, counting.waits)
