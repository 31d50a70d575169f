"""INTERFACE.md of a release view: how a candidate is constructed and called, and what it returns.

Written from what the problem says of its tensors. Nothing here reads a weight, a tolerance, a cost
or a time.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, combinations_with_replacement
from math import prod

from attrs import frozen

from atrex_core.interfaces import Problem
from atrex_core.model import Container, Protocol, TensorSpec, Workload

_MOST_VALUES = 6
_MOST_FACTOR = 64
_ELSEWHERE = "by workload, below"


def describe(problem: Problem) -> str:
    """Return the text for a problem, in Markdown."""
    workloads = problem.workloads
    given = _tensors([(w, problem.inputs(w)) for w in workloads])
    returned = _tensors([(w, problem.outputs(w)) for w in workloads])
    parts = (
        _head(problem.release_id),
        _constructor(workloads),
        _forward(given),
        _result(problem.container, returned),
        _by_workload(workloads, given, returned),
        _rules(problem),
    )
    return "\n".join(line for part in parts for line in part)


@frozen(kw_only=True)
class _Tensor:
    """One tensor over all workloads that have it."""

    name: str
    specs: Mapping[int, TensorSpec]
    """By position in the list of workloads."""
    sizes: Sequence[Mapping[str, object]]
    """Axes and constructor arguments of the same workloads."""
    is_always: bool

    @property
    def dtype(self) -> str:
        """Return the dtype, or the axis that names it."""
        dtypes = [str(spec.dtype) for spec in self.specs.values()]
        if len(set(dtypes)) == 1:
            return dtypes[0]
        for key in self.sizes[0]:
            if [own.get(key) for own in self.sizes] == dtypes:
                return f"as `{key}` says"
        return _ELSEWHERE

    @property
    def shape(self) -> str:
        """Return the sizes in terms of axes; where one cannot be told so, refer to the list."""
        shapes = [spec.shape for spec in self.specs.values()]
        if len({len(shape) for shape in shapes}) > 1:
            return _ELSEWHERE
        sizes = [_in_axes(sizes, self.sizes) for sizes in zip(*shapes, strict=True)]
        return _ELSEWHERE if None in sizes else f"[{', '.join(map(str, sizes))}]"

    @property
    def is_listed(self) -> bool:
        """Whether the list by workload has to say more."""
        return _ELSEWHERE in (self.dtype, self.shape) or not self.is_always


def _tensors(described: Sequence[tuple[Workload, Sequence[TensorSpec]]]) -> list[_Tensor]:
    names = list(dict.fromkeys(spec.name for _, specs in described for spec in specs))
    found = []
    for name in names:
        having = {
            position: spec
            for position, (_, specs) in enumerate(described)
            for spec in specs
            if spec.name == name
        }
        workloads = [described[position][0] for position in having]
        found.append(
            _Tensor(
                name=name,
                specs=having,
                sizes=[{**w.axes, **w.init} for w in workloads],
                is_always=len(having) == len(described),
            )
        )
    return found


def _in_axes(sizes: Sequence[int], axes: Sequence[Mapping[str, object]]) -> str | None:
    """Return an expression in the axes that gives every one of `sizes`, the plainest there is."""
    for text, values in _expressions(sizes, axes):
        if list(values) == list(sizes):
            return text
    return None


def _expressions(
    sizes: Sequence[int], axes: Sequence[Mapping[str, object]]
) -> Iterator[tuple[str, Sequence[int]]]:
    numbers: dict[str, list[int]] = {}
    for name in axes[0]:
        whole = [v for own in axes if isinstance(v := own.get(name), int) and v > 0]
        if len(whole) == len(axes):
            numbers[name] = whole
    yield from numbers.items()
    yield str(sizes[0]), [sizes[0]] * len(sizes)
    yield from _products(numbers, 2)
    for name, values in numbers.items():
        factor, rest = divmod(sizes[0], values[0])
        if not rest and 1 < factor <= _MOST_FACTOR:
            yield f"{factor} * {name}", [factor * value for value in values]
        divisor, rest = divmod(values[0], sizes[0]) if sizes[0] else (0, 1)
        if not rest and 1 < divisor <= _MOST_FACTOR and not any(v % divisor for v in values):
            yield f"{name} / {divisor}", [value // divisor for value in values]
    for (one, first), (other, second) in combinations(numbers.items(), 2):
        yield f"{one} + {other}", [a + b for a, b in zip(first, second, strict=True)]
    yield from _products(numbers, 3)


def _products(numbers: Mapping[str, list[int]], count: int) -> Iterator[tuple[str, list[int]]]:
    for names in combinations_with_replacement(numbers, count):
        columns = zip(*(numbers[name] for name in names), strict=True)
        yield " * ".join(names), [prod(column) for column in columns]


def _head(name: str) -> Iterator[str]:
    yield f"# {name}"
    yield ""
    yield f"Write `{name}.py`: one Python file that defines `class Model(torch.nn.Module)`."
    yield "`reference.py` defines what it computes, `inputs.py` draws what it is given, and"
    yield "`shapes.json` lists the workloads it is judged on."
    yield ""


def _constructor(workloads: Sequence[Workload]) -> Iterator[str]:
    yield "## Constructor"
    yield ""
    keywords = list(dict.fromkeys(key for w in workloads for key in w.init))
    if not keywords:
        yield "`Model()` is constructed without arguments."
        yield ""
        return
    yield f"`Model({', '.join(keywords)})` is constructed by keyword: `init` of a workload."
    yield ""
    yield "| keyword | values |"
    yield "| --- | --- |"
    for key in keywords:
        having = [w for w in workloads if key in w.init]
        values = list(dict.fromkeys(json.dumps(w.init[key]) for w in having))
        text = ", ".join(values[:_MOST_VALUES])
        if len(values) > _MOST_VALUES:
            text += f" and {len(values) - _MOST_VALUES} more"
        if len(having) < len(workloads):
            text += f"; only in workloads {', '.join(w.id for w in having)}"
        yield f"| `{key}` | {text} |"
    yield ""


def _forward(given: Sequence[_Tensor]) -> Iterator[str]:
    yield "## forward"
    yield ""
    yield f"`forward({', '.join(t.name for t in given)})` is called by keyword, without autograd."
    yield "Sizes are named as in `axes` and `init` of a workload."
    yield ""
    yield from _table("parameter", given)


def _result(container: Container, returned: Sequence[_Tensor]) -> Iterator[str]:
    match container:
        case Container.TENSOR:
            yield "It returns one tensor."
        case Container.TUPLE:
            yield f"It returns a tuple of {len(returned)}, in this order."
        case Container.DICT:
            yield "It returns a dict with exactly these keys."
    yield ""
    yield from _table("output", returned)


def _table(kind: str, tensors: Sequence[_Tensor]) -> Iterator[str]:
    yield f"| {kind} | dtype | shape |"
    yield "| --- | --- | --- |"
    for tensor in tensors:
        shape = tensor.shape if tensor.is_always else f"{tensor.shape}; not in every workload"
        yield f"| `{tensor.name}` | {tensor.dtype} | {shape} |"
    yield ""


def _by_workload(
    workloads: Sequence[Workload], given: Sequence[_Tensor], returned: Sequence[_Tensor]
) -> Iterator[str]:
    columns = [(f"`{tensor.name}`", tensor) for tensor in given if tensor.is_listed]
    columns += [(f"output `{tensor.name}`", tensor) for tensor in returned if tensor.is_listed]
    if not columns:
        return
    yield "## By workload"
    yield ""
    yield f"| workload | {' | '.join(title for title, _ in columns)} |"
    yield f"| --- |{' --- |' * len(columns)}"
    for position, workload in enumerate(workloads):
        cells = [_cell(tensor.specs.get(position)) for _, tensor in columns]
        yield f"| {workload.id} | {' | '.join(cells)} |"
    yield ""


def _cell(spec: TensorSpec | None) -> str:
    return "-" if spec is None else f"{spec.dtype} {list(spec.shape)}"


def _rules(problem: Problem) -> Iterator[str]:
    yield "## Rules"
    yield ""
    yield from _item(
        "Every input is contiguous, row-major and on the device that judges; take the device from "
        "an input. Every output is a plain `torch.Tensor`, contiguous, on that device, and new: "
        "no view of an input."
    )
    for output, source in problem.in_place.items():
        yield from _item(
            f"Output `{output}` may also be the input `{source}` itself, updated in place."
        )
    updated = " and ".join(f"`{name}`" for name in problem.in_place.values())
    yield from _item(f"Inputs keep their values{f', except {updated}' if updated else ''}.")
    yield from _item(
        "Kernels of the DSL that the candidate is submitted for, written in the candidate's own "
        "file, do the work: with their launches suppressed, the answer must become wrong."
    )
    regimes = dict.fromkeys(regime for w in problem.workloads for regime in problem.regimes(w))
    yield from _item(
        f"Each workload is judged on at least {Protocol.STRICT.least_cases} draws of its inputs, "
        "from seeds that are secret and new in every run. Together they have every regime: "
        f"{', '.join(regimes)}."
    )
    yield from _item("Every workload of `shapes.json` is judged in its own right.")
    yield ""


def _item(text: str) -> Iterator[str]:
    yield from textwrap.wrap(text, 96, initial_indent="- ", subsequent_indent="  ")
