"""Everything that a problem says of itself, for its author and for whoever judges by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from atrex_core.interfaces import Problem
from atrex_core.interfaces.declared import (
    cost_of,
    in_place_of,
    inputs_of,
    misplaced,
    mutants_of,
    outputs_of,
    regimes_of,
    variants_of,
)
from atrex_core.model import (
    Allclose,
    CodeSteps,
    Origin,
    Protocol,
    Rule,
    Scale,
    TensorSpec,
    Workload,
)
from atrex_core.printable import many, one_line
from atrex_core.suggest import natural

Sheet = Mapping[str, Any]

OF_A_WORKLOAD = ("workload", "inputs", "outputs", "cost", "protocols")
"""Keys of a sheet that depend on the workload that is shown."""

_MOST_LINE = 2000


def sheet(problem: Problem, workload_id: str | None = None) -> Sheet:
    """Return plain JSON values. Names of implementations may take an import of torch.

    Args:
        problem: As the strict protocol judges it.
        workload_id: Whose tensors and cost are shown; None is the first.
    """
    shown = next((w for w in problem.workloads if workload_id in (None, w.id)), None)
    if shown is None:
        raise ValueError("it has no workload")
    if fault := misplaced(problem, shown):
        raise ValueError(fault)
    judged = {protocol: problem.under(protocol) for protocol in Protocol}
    return {
        "name": problem.name,
        "summary": problem.summary,
        "pack": {"name": problem.pack.name, "version": problem.pack.version},
        "phases": [str(phase) for phase in problem.phases],
        "container": str(problem.container),
        "in_place": dict(in_place_of(problem)),
        "workload": _workload(shown),
        "inputs": [_tensor(spec) for spec in inputs_of(problem, shown)],
        "outputs": [_tensor(spec) for spec in outputs_of(problem, shown)],
        "cost": _cost(problem, shown),
        "protocols": {
            str(protocol): {
                "regimes": list(regimes_of(rules, shown)),
                "rules": {s.name: _in_words(rules, s) for s in rules.outputs(shown)},
                "cost": _cost(rules, shown),
            }
            for protocol, rules in judged.items()
            if rules is not None
        },
        "mutants": list(mutants_of(problem)),
        "variants": list(variants_of(problem)),
        "workloads": {
            group: [_workload(w) for w in problem.workloads if _group(w) == group]
            for group in ("published", "added", "smoke")
        },
    }


def lines(sheet: Sheet) -> Iterator[str]:
    """Yield the same as lines for people."""
    yield one_line(f"{sheet['name']}: {sheet['summary']}", _MOST_LINE)
    pack = sheet["pack"]
    yield from _row("pack", f"{pack['name']} {pack['version']}")
    yield from _row("phases", ", ".join(sheet["phases"]))
    for group, workloads in sheet["workloads"].items():
        ids = ", ".join(sorted((workload["id"] for workload in workloads), key=natural))
        counted = many(len(workloads), "workload")
        yield from _row(group, f"{counted}: {ids}" if workloads else "none")
    yield from workload_lines(sheet)
    yield ""
    yield from _row("mutants", ", ".join(sheet["mutants"]) or "none")
    yield from _row("variants", ", ".join(sheet["variants"]) or "none")


def workload_lines(sheet: Sheet) -> Iterator[str]:
    """Yield what depends on the workload that is shown."""
    shown = sheet["workload"]
    yield ""
    yield one_line(f"workload {shown['id']} ({shown['phase']}): {_arguments(shown['axes'])}")
    yield from _row("Model", f"({_arguments(shown['init'])})")
    for what in ("inputs", "outputs"):
        for spec in sheet[what]:
            yield from _row(what[:-1], _spec(spec, sheet["in_place"] if what == "outputs" else {}))
    yield from _row("returned as", sheet["container"])
    for protocol, rules in sheet["protocols"].items():
        yield ""
        yield from _row(protocol, f"regimes {', '.join(rules['regimes'])}")
        for output, words in rules["rules"].items():
            yield from _row("", f"{output}: {words}")
        cost = rules["cost"]
        for path, count in cost["flops"].items():
            yield from _row("  work", f"{count:,.0f} operations on {path}")
        moved = f"{cost['read_bytes']:,.0f} read, {cost['write_bytes']:,.0f} written"
        yield from _row("  bytes", moved)


def in_words(rule: Rule | None) -> str:
    """Say what a comparison rule asks of one output."""
    match rule:
        case None:
            return "equal to the exact answer"
        case Allclose():
            return (
                f"each element within {rule.absolute:g} + {rule.relative:g} times its own size "
                "of the reference"
            )
        case CodeSteps():
            return (
                f"at most {rule.flips:.3g} of the elements not on the nearest {rule.dtype} code "
                f"({min(1.0, 4 * rule.flips):.3g} in a row), none more than {rule.cap} off"
            )
    outliers = ""
    if rule.outlier_fraction:
        outliers = f", but for {rule.outlier_fraction:.3g} of them"
    beside = f", {rule.absolute:.3g} besides whatever its size" if rule.absolute else ""
    return (
        f"relative L2 error within {rule.relative_l2:g} times an honest one's, "
        f"{rule.row_l2:g} times in each row, a quarter where errors lean one way by more than "
        f"{rule.bias:g} standard deviations; each element within {rule.element:g} times an "
        f"epsilon of {rule.dtype} of itself and of its row{outliers}, none beyond {rule.cap:g}"
        f"{beside}"
    )


def _in_words(problem: Problem, spec: TensorSpec) -> str:
    words = in_words(problem.tolerance(spec) if spec.dtype.is_floating else None)
    is_settled = type(problem).canonical is not Problem.canonical
    return f"{words}, once what the operator leaves open is settled" if is_settled else words


def _cost(problem: Problem, workload: Workload) -> Mapping[str, Any]:
    cost = cost_of(problem, workload)
    return {
        "flops": {str(path): float(count) for path, count in cost.flops.items()},
        "read_bytes": cost.read_bytes,
        "write_bytes": cost.write_bytes,
    }


def _workload(workload: Workload) -> Mapping[str, Any]:
    return {
        "id": workload.id,
        "axes": dict(workload.axes),
        "init": dict(workload.init),
        "phase": str(workload.phase),
        "origin": str(workload.origin),
        "scale": str(workload.scale),
    }


def _group(workload: Workload) -> str:
    if workload.scale is Scale.SMOKE:
        return "smoke"
    return "published" if workload.origin is Origin.PUBLISHED else "added"


def _tensor(spec: TensorSpec) -> Mapping[str, Any]:
    return {
        "name": spec.name,
        "dtype": str(spec.dtype),
        "shape": list(spec.shape),
        "bytes": spec.nbytes,
    }


def _spec(spec: Mapping[str, Any], in_place: Mapping[str, str]) -> str:
    text = f"{spec['name']}: {spec['dtype']} {spec['shape']}, {spec['bytes']:,} bytes"
    updated = in_place.get(spec["name"])
    return f"{text}; may be {updated}, updated" if updated else text


def _arguments(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def _row(head: str, text: str) -> Iterator[str]:
    yield f"{head:12}{one_line(text, _MOST_LINE)}".rstrip()
