"""Honest implementations of `fused_add_rms_norm`, written as kernels are."""

from __future__ import annotations

from collections.abc import Mapping

from atrex_problems_production._variants import norm, norm_rounded_before_weight

from atrex_core import Implementation, Tensors, Workload


def tree(workload: Workload, inputs: Tensors) -> Tensors:
    total = (inputs["x"].float() + inputs["residual"].float()).bfloat16()
    out = norm(total.float(), inputs["weight"], workload.init["eps"])
    return {"out": out.bfloat16(), "residual": total}


def unrounded(workload: Workload, inputs: Tensors) -> Tensors:
    total = inputs["x"].float() + inputs["residual"].float()
    out = norm(total, inputs["weight"], workload.init["eps"])
    return {"out": out.bfloat16(), "residual": total.bfloat16()}


def rounded(workload: Workload, inputs: Tensors) -> Tensors:
    total = inputs["x"] + inputs["residual"]
    out = norm_rounded_before_weight(total.float(), inputs["weight"], workload.init["eps"])
    return {"out": out, "residual": total}


VARIANTS: Mapping[str, Implementation] = {
    "tree": tree,
    "unrounded": unrounded,
    "rounded": rounded,
}
