"""Honest implementations of `rms_norm`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping

from atrex_problems_production._variants import norm, norm_rounded_before_weight

from atrex_core import Implementation, Tensors, Workload


def tree(workload: Workload, inputs: Tensors) -> Tensors:
    out = norm(inputs["x"].float(), inputs["weight"], workload.init["eps"])
    return {"out": out.bfloat16()}


def rounded(workload: Workload, inputs: Tensors) -> Tensors:
    wide = inputs["x"].float()
    return {"out": norm_rounded_before_weight(wide, inputs["weight"], workload.init["eps"])}


VARIANTS: Mapping[str, Implementation] = {
    "tree": tree,
    "rounded": rounded,
}
