"""Every wrong implementation is rejected, and honest ones written differently are accepted.

The honest ones differ from the reference in the order of sums, in where they round, and in how
they break ties: freedoms that a kernel has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest
import torch
from atrex_problems_production import atrex_problems
from attrs import frozen

from atrex_core import Scale, Tensors, Workload
from atrex_core.comparison import compare

Implementation = Callable[[Workload, Tensors], Tensors]

PROBLEMS = {problem.name: problem for problem in atrex_problems()}

_LOG2E = math.log2(math.e)


def _partial_sums(values: Any, parts: int) -> Any:
    """Sum rows as a kernel with `parts` threads would: strided partial sums, then a tree."""
    width = values.shape[-1]
    padded = torch.nn.functional.pad(values, (0, -width % parts))
    sums = padded.unflatten(-1, (-1, parts)).sum(-2)
    while sums.shape[-1] > 1:
        sums = sums[..., : sums.shape[-1] // 2] + sums[..., sums.shape[-1] // 2 :]
    return sums


def _norm(wide: Any, weight: Any, eps: float) -> Any:
    mean = _partial_sums(wide * wide, 32) / wide.shape[-1]
    return wide * (weight.float() / (mean + eps).sqrt())


def _norm_rounded_before_weight(wide: Any, weight: Any, eps: float) -> Any:
    scale = (wide.pow(2).mean(-1, keepdim=True) + eps).pow(-0.5)
    return (wide * scale).bfloat16() * weight


def rms_tree(workload: Workload, inputs: Tensors) -> Tensors:
    out = _norm(inputs["x"].float(), inputs["weight"], workload.init["eps"])
    return {"out": out.bfloat16()}


def rms_rounded(workload: Workload, inputs: Tensors) -> Tensors:
    wide = inputs["x"].float()
    return {"out": _norm_rounded_before_weight(wide, inputs["weight"], workload.init["eps"])}


def add_rms_tree(workload: Workload, inputs: Tensors) -> Tensors:
    total = (inputs["x"].float() + inputs["residual"].float()).bfloat16()
    out = _norm(total.float(), inputs["weight"], workload.init["eps"])
    return {"out": out.bfloat16(), "residual": total}


def add_rms_unrounded(workload: Workload, inputs: Tensors) -> Tensors:
    total = inputs["x"].float() + inputs["residual"].float()
    out = _norm(total, inputs["weight"], workload.init["eps"])
    return {"out": out.bfloat16(), "residual": total.bfloat16()}


def add_rms_rounded(workload: Workload, inputs: Tensors) -> Tensors:
    total = inputs["x"] + inputs["residual"]
    out = _norm_rounded_before_weight(total.float(), inputs["weight"], workload.init["eps"])
    return {"out": out, "residual": total}


def silu_unrounded(workload: Workload, inputs: Tensors) -> Tensors:
    gate, up = inputs["x"].float().chunk(2, dim=-1)
    return {"out": (gate / (1 + torch.exp2(-_LOG2E * gate)) * up).bfloat16()}


def silu_by_tanh(workload: Workload, inputs: Tensors) -> Tensors:
    gate, up = inputs["x"].double().chunk(2, dim=-1)
    silu = 0.5 * gate * (1 + (0.5 * gate).tanh())
    return {"out": (silu.bfloat16().float() * up.float()).bfloat16()}


def linear_wide_z(workload: Workload, inputs: Tensors) -> Tensors:
    z = inputs["hidden_states"].float() @ inputs["weight"].float().T + inputs["bias"].float()
    return {"out": (z.sigmoid() * inputs["post_mul_mat"].float()).bfloat16()}


def linear_split_k(workload: Workload, inputs: Tensors) -> Tensors:
    hidden, weight = inputs["hidden_states"].float(), inputs["weight"].float()
    z = inputs["bias"].float()
    for part in reversed(range(4)):
        z = z + hidden[:, part::4] @ weight[:, part::4].T
    gate = 1 / (1 + torch.exp(-z.bfloat16().float()))
    return {"out": gate.bfloat16() * inputs["post_mul_mat"]}


def topk_by_exp2(workload: Workload, inputs: Tensors) -> Tensors:
    """Scale the logits before subtracting, and let the higher index win a tie."""
    logits = inputs["gating_output"].flip(-1)
    scaled = logits * _LOG2E
    powers = torch.exp2(scaled - scaled.amax(-1, keepdim=True))
    p = powers * (1 / _partial_sums(powers, 32))
    best = p.sort(dim=-1, descending=True, stable=True)
    top_k = workload.init["top_k"]
    ids = logits.shape[-1] - 1 - best.indices[:, :top_k]
    return {"topk_weights": best.values[:, :top_k].contiguous(), "topk_ids": ids.int()}


def topk_of_logits(workload: Workload, inputs: Tensors) -> Tensors:
    """Choose by logit, then take the exponentials of the chosen ones only."""
    logits = inputs["gating_output"]
    best = torch.topk(logits, workload.init["top_k"])
    total = torch.logsumexp(logits, dim=-1, keepdim=True)
    largest = best.values[:, :1]
    weights = torch.exp(best.values - largest) / torch.exp(total - largest)
    return {"topk_weights": weights, "topk_ids": best.indices.int()}


def _paged(
    inputs: Tensors, *, tokens_per_step: int, backwards: bool = False, narrow: bool = False
) -> Tensors:
    """Attend by online softmax over steps of tokens, reading only what is live."""
    query, k_cache, v_cache = inputs["query"], inputs["k_cache"], inputs["v_cache"]
    seqs, heads, size = query.shape
    kv_heads, block = v_cache.shape[1], v_cache.shape[3]
    out = torch.zeros_like(query)
    for i in range(seqs):
        length = int(inputs["seq_lens"][i])
        steps = [
            range(s, min(s + tokens_per_step, length)) for s in range(0, length, tokens_per_step)
        ]
        q = query[i].view(kv_heads, -1, size)
        q = q.float() * (size**-0.5 * _LOG2E)
        if narrow:
            q = q.to(query.dtype).float()
        top = torch.full((kv_heads, heads // kv_heads, 1), -torch.inf)
        total = torch.zeros_like(top)
        acc = torch.zeros(kv_heads, heads // kv_heads, size)
        for step in reversed(steps) if backwards else steps:
            p = torch.tensor(list(step))
            where, slot = inputs["block_tables"][i, p // block].long(), p % block
            k = k_cache[where, :, :, slot].flatten(2).float()
            v = v_cache[where, :, :, slot]
            scores = torch.einsum("hgd,thd->hgt", q, k)
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            weight = torch.exp2(scores - new)
            shrink = torch.exp2(top - new)
            total = total * shrink + weight.sum(-1, keepdim=True)
            if narrow:
                weight = weight.to(v.dtype).float()
            acc = acc * shrink + torch.einsum("hgt,thd->hgd", weight, v.float())
            top = new
        if length:
            out[i] = (acc / total).reshape(heads, size).to(out.dtype)
    return {"out": out}


def paged_online(workload: Workload, inputs: Tensors) -> Tensors:
    return _paged(inputs, tokens_per_step=5, backwards=True)


def paged_narrow_operands(workload: Workload, inputs: Tensors) -> Tensors:
    return _paged(inputs, tokens_per_step=16, narrow=True)


HONEST: Mapping[str, tuple[Implementation, ...]] = {
    "rms_norm": (rms_tree, rms_rounded),
    "fused_add_rms_norm": (add_rms_tree, add_rms_unrounded, add_rms_rounded),
    "silu_and_mul": (silu_unrounded, silu_by_tanh),
    "linear_sigmoid_mul": (linear_wide_z, linear_split_k),
    "moe_topk_gating_softmax": (topk_by_exp2, topk_of_logits),
    "paged_attention_decode": (paged_online, paged_narrow_operands),
}


@frozen
class Case:
    """One draw and its two answers, shared by the tests: drawn once."""

    workload: Workload
    inputs: Tensors
    expected: Tensors
    honest: Tensors


@cache
def cases(name: str, workload_id: str, seed: int) -> tuple[Case, ...]:
    """Draw one case of each regime, as the referee does for five cases."""
    problem = PROBLEMS[name]
    workload = next(w for w in problem.workloads if w.id == workload_id)
    drawn = []
    for i, regime in enumerate(problem.regimes(workload)):
        inputs = problem.draw(workload, regime=regime, seed=seed + i, device="cpu")
        answers = problem.expected(workload, inputs), problem.honest(workload, inputs)
        drawn.append(Case(workload, inputs, *answers))
    return tuple(drawn)


def small(name: str) -> list[str]:
    return [workload.id for workload in PROBLEMS[name].select(Scale.SMOKE)]


def rejected(name: str, case: Case, answer: Tensors) -> list[str]:
    """Return why the correctness rules refuse `answer`."""
    problem = PROBLEMS[name]
    settled = problem.canonical(case.workload, case.inputs, answer)
    reasons = []
    for spec in problem.outputs(case.workload):
        rule = problem.tolerance(spec) if spec.dtype.is_floating else None
        output = spec.name
        verdict = compare(spec, rule, settled[output], case.expected[output], case.honest[output])
        if not verdict.passed:
            reasons.append(f"{output}: {verdict.reason}")
    return reasons


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors on a busy machine wait for threads longer than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_every_operator_has_honest_implementations_and_mutants() -> None:
    assert set(HONEST) == set(PROBLEMS)
    assert all(len(implementations) >= 2 for implementations in HONEST.values())
    assert all(len(problem.mutants()) >= 5 for problem in PROBLEMS.values())
    assert all(len(p.regimes(p.workloads[0])) == 5 for p in PROBLEMS.values())


@pytest.mark.parametrize(
    ("name", "implementation"),
    [(name, f) for name, group in HONEST.items() for f in group],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_honest_implementations_pass_on_every_seed(
    name: str, implementation: Implementation
) -> None:
    complaints = [
        (id_, seed, reason)
        for id_ in small(name)
        for seed in range(0, 200, 10)
        for case in cases(name, id_, seed)
        for reason in rejected(name, case, implementation(case.workload, case.inputs))
    ]

    assert complaints == []


@pytest.mark.parametrize("name", sorted(PROBLEMS))
def test_the_reference_itself_passes(name: str) -> None:
    complaints = [
        (id_, reason)
        for id_ in small(name)
        for case in cases(name, id_, 0)
        for reason in rejected(name, case, case.honest)
    ]

    assert complaints == []


@pytest.mark.parametrize(
    ("name", "mutant"),
    [(name, mutant) for name, problem in PROBLEMS.items() for mutant in problem.mutants()],
    ids=str,
)
def test_mutants_are_rejected_on_every_workload_and_seed(name: str, mutant: str) -> None:
    wrong = PROBLEMS[name].mutants()[mutant]

    survivals = [
        (id_, seed)
        for id_ in small(name)
        for seed in range(0, 50, 10)
        if not any(
            rejected(name, case, wrong(case.workload, case.inputs))
            for case in cases(name, id_, seed)
        )
    ]

    assert survivals == []


def test_the_nominal_case_alone_rejects_a_gate_without_its_matrix_product() -> None:
    name = "linear_sigmoid_mul"
    wrong = PROBLEMS[name].mutants()["half"]

    for id_ in small(name):
        nominal = cases(name, id_, 0)[0]

        assert rejected(name, nominal, wrong(nominal.workload, nominal.inputs))


def test_a_query_head_that_reads_the_wrong_key_head_is_rejected() -> None:
    name = "paged_attention_decode"
    nominal = cases(name, "smoke-3x37", 0)[0]
    # Heads 0, 1 | 2, 3 share a key head; interleaved, 0, 2 | 1, 3 would.
    order = [0, 2, 1, 3]
    swapped = {**nominal.inputs, "query": nominal.inputs["query"][:, order].contiguous()}

    out = PROBLEMS[name].honest(nominal.workload, swapped)["out"][:, order].contiguous()

    assert rejected(name, nominal, {"out": out})
