"""What a pack's author can do about a finding, in one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from atrex_core.model import Protocol
from atrex_core.model.lint import Fate, Finding, Kind

Needs = Mapping[tuple[str, str | None, Protocol], float]
"""By problem, workload and protocol: the largest share of any bound that an honest one needs."""

_CHECKS = {
    "loads": "mend what the message names; until then this operator is set aside alone, and a run "
    "that would score its whole pack is refused",
    "declaration": "let the problem say what its pack, workloads, phases, weights and summary are",
    "workloads": "let `under` and `workloads` answer without raising",
    "mutants": "ship wrong implementations: zeros, a constant, a dropped term, an ignored input, "
    "too narrow a type, an answer to another call",
    "release": "mend what no release may hold: `release build` refuses it, too",
    "provenance": "say in `private.json` where shapes and weight were observed",
    "vectorised": "let one operation take all rows; loop over chunks only, and read no value on "
    "the host",
    "variants": "ship honest implementations that sum in another order or round elsewhere",
    "smoke workloads": "add small workloads that any machine can run",
    "workload ids": "give every workload an id of its own",
    "public files": "let `public_files` name files that exist, `inputs.py` and `reference.py` too",
    "private text": "remove the number from the public half: what a problem weighs is private",
    "runs alone": "let both public files need nothing but torch, and `inputs.py` be the generator "
    "that `draw` uses",
    "regimes": "let `regimes` name each distribution once",
    "unknown regime": "let the generator raise ValueError for a regime that it does not know",
    "in place": "let `in_place` name outputs and inputs of the same shape and dtype",
    "draw": "make the generator draw every regime of this workload",
    "inputs": "make `inputs` and the generator agree: names in order, dtype, shape, contiguous",
    "finite inputs": "put large finite values where nothing may be read, never NaN or infinity",
    "seeds": "draw every value from a generator that was given the seed",
    "cost": "count work and bytes that any implementation needs, from inputs where they decide",
    "reference": "make `outputs` and the reference agree: names, dtype, shape, contiguous",
    "expected": "return float64 (or `by_rows`, or exact integers) of the declared shapes from "
    "`expected`; `fp32_truth` names what is computed so and held narrower",
    "inputs unchanged": "let `honest`, `expected` and `cost` work on copies",
}
_BY_REASON = {
    "`container` of": "let `container` in private.py be TENSOR for one output, else TUPLE or DICT, "
    "and `outputs` name what `forward` returns",
    "among the axes of workload": "call a size the same in shapes.json, `make_inputs` and "
    "private.py",
    "does not take the axes of": "call a size the same in shapes.json, `make_inputs` and "
    "private.py",
    "does not take the init of": "let `init` in shapes.json hold the keyword arguments of `Model`",
    "does not take what `inputs` names": "call tensors the same in `forward` and in `inputs` of "
    "private.py",
}
"""What is said of these is more telling than which check met it first."""
_VARIANTS_FILE = (
    "let `variants.py` beside `private.py` hold `VARIANTS`, a mapping of names to functions of "
    "(workload, inputs)"
)
_REFERENCE = (
    "`expected` and the reference disagree: compare the two, term by term, on this workload in "
    "this regime; if both are right, the reference rounds more than `tolerance` allows"
)
_BROKEN = {
    Kind.MUTANT: "let it answer on every workload, or raise Inapplicable where it cannot be wrong",
    Kind.VARIANT: "let it answer on every workload in every regime, and change none of its inputs",
    Kind.KERNEL: "the evaluator, the backend or the problem failed: the message says where",
}


def honest_needs(findings: Iterable[Finding]) -> Needs:
    """Return how much of the bounds honest implementations use."""
    needs: dict[tuple[str, str | None, Protocol], float] = {}
    for found in findings:
        if found.kind is Kind.VARIANT and found.fate is Fate.ACCEPTED and found.share is not None:
            key = (found.problem, found.workload, found.protocol)
            needs[key] = max(needs.get(key, 0.0), found.share)
    return needs


def advice(found: Finding, needs: Needs) -> str | None:
    """Return what to change; None where nothing has to."""
    for part, change in _BY_REASON.items():
        if found.fate in (Fate.BROKEN, Fate.FAILED) and part in (found.reason or ""):
            return change
    match found.fate, found.kind:
        case (Fate.BROKEN, Kind.CHECK) if found.name == "variants":
            return _VARIANTS_FILE
        case (Fate.BROKEN | Fate.REFUSED, Kind.VARIANT) if found.name == "reference":
            return _for_reference(found)
        case Fate.BROKEN, Kind.CHECK:
            return _CHECKS.get(found.name, "the message says which of the pack's lines raised")
        case Fate.BROKEN, kind:
            return _BROKEN[kind]
        case Fate.FAILED, _:
            return _CHECKS.get(found.name)
        case Fate.SURVIVED, _:
            return _for_survivor(found, needs)
        case Fate.REFUSED, _:
            return _for_refused(found)
        case Fate.SKIPPED, Kind.KERNEL:
            return "try it on a device on which a referee can judge it"
        case Fate.SKIPPED, _:
            return "lint this workload on a device with more memory, or with fewer jobs"
    return None


def _for_survivor(found: Finding, needs: Needs) -> str:
    if found.workload is None:
        return "add a workload on which it is wrong, or drop it"
    if found.identical:
        return (
            "it gives the reference's answer in every regime: draw inputs in which what it gets "
            "wrong matters, or raise Inapplicable where that is impossible"
        )
    where = f"regime {found.regime!r} comes nearest"
    if found.share is None:
        return f"{where}: sharpen its inputs, or narrow the rule"
    need = needs.get((found.problem, found.workload, found.protocol))
    honest = "" if need is None else f"; honest implementations need {need:.2g} of a bound at most"
    share = f"{found.share:.2g} of the {found.bound} bound"
    return f"{where}, with {share}: sharpen its inputs, or narrow the rule{honest}"


def _for_reference(found: Finding) -> str:
    reason = found.reason or ""
    if found.fate is Fate.BROKEN and "off its own high-precision reference" not in reason:
        return "make the reference answer on every workload in every regime"
    return _REFERENCE


def _for_refused(found: Finding) -> str:
    by = ""
    if found.bound is not None:
        times = f" by a factor of {found.share:.3g}" if found.share is not None else ""
        by = f"it exceeds the {found.bound} bound{times}: "
    if found.kind is Kind.KERNEL:
        return f"{by}mend the kernel, or allow in `tolerance` a freedom that any kernel has"
    return (
        f"{by}if any kernel has this freedom, allow it in `tolerance` or settle it in `canonical`; "
        "otherwise it is not honest, or `expected` is wrong"
    )
