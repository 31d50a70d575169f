"""The production pack: what it lists, what it publishes, and what it costs to look at it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import atrex_problems_production as pack
import pytest
import torch
from atrex_problems_production import atrex_problems

from atrex_core import (
    ArithmeticPath,
    Container,
    DType,
    Origin,
    Phase,
    Problem,
    Scale,
    Workload,
    dense,
    dtype_of,
)

PROBLEMS = {problem.name: problem for problem in atrex_problems()}

PUBLISHED = {
    "attention_forward": (21, 0.022438),
    "block_scaled_mm": (24, 0.093155),
    "causal_conv1d": (9, 0.021834),
    "chunk_delta_rule_output": (16, 0.008234),
    "chunk_gated_delta_rule_state": (25, 0.015735),
    "fp8_blockscale_fused_moe": (6, 0.051305),
    "fp8_dynamic_per_token_quant": (20, 0.008223),
    "fused_add_rms_norm": (19, 0.011487),
    "fused_moe": (23, 0.113586),
    "fused_qk_rmsnorm": (4, 0.018695),
    "fused_qkv_rope": (6, 0.033527),
    "fused_rmsnorm_quant": (11, 0.003433),
    "gated_delta_rule_update": (17, 0.034959),
    "gated_rms_norm": (7, 0.004735),
    "l2_norm": (13, 0.004661),
    "layer_norm": (13, 0.000773),
    "linear_sigmoid_mul": (9, 0.007234),
    "mla_decode_attention": (3, 0.022828),
    "moe_align_block_size": (6, 0.011082),
    "moe_count_and_sort": (5, 0.004544),
    "moe_sum_reduce": (7, 0.003393),
    "moe_topk_gating_softmax": (10, 0.020529),
    "mrope": (5, 0.010032),
    "paged_attention_decode": (8, 0.044119),
    "per_token_group_quant_fp8": (19, 0.005308),
    "reshape_and_cache": (8, 0.043524),
    "rms_norm": (56, 0.027508),
    "silu_and_mul": (37, 0.017601),
    "topk_filter": (8, 0.035326),
    "unified_attention": (25, 0.394972),
}

FOLDER = Path(pack.__file__).parent

EACH = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


def published(problem: Problem) -> list[Workload]:
    return [w for w in problem.workloads if w.origin is Origin.PUBLISHED]


def _same(one: Any, other: Any) -> bool:
    """Return whether two tensors hold the same bytes; not every type can be compared."""
    return torch.equal(*(t.contiguous().view(-1).view(torch.uint8) for t in (one, other)))


def workload(name: str, id_: str) -> Workload:
    return next(w for w in PROBLEMS[name].workloads if w.id == id_)


def test_the_pack_lists_the_published_operators() -> None:
    found = {
        name: (len(published(problem)), problem.importance) for name, problem in PROBLEMS.items()
    }

    assert found == PUBLISHED
    assert sum(count for count, _ in found.values()) == 440
    assert sum(weight for _, weight in found.values()) == pytest.approx(1.09478)


def test_looking_at_the_pack_imports_no_torch() -> None:
    script = (
        "import sys, atrex_problems_production as pack\n"
        "problems = list(pack.atrex_problems())\n"
        "[(p.regimes(w), p.inputs(w), p.outputs(w), p.cost(w)) for p in problems"
        " for w in p.workloads]\n"
        "print(len(problems), 'torch' in sys.modules)"
    )

    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert run.stdout == "30 False\n"


def test_every_problem_carries_one_pack_with_a_digest_of_its_files() -> None:
    packs = {problem.pack for problem in PROBLEMS.values()}

    (found,) = packs
    assert (found.name, found.version) == ("production", "3.0")
    assert len(found.digest) == 64
    assert [p.pack for p in atrex_problems()] == [found] * 30


@EACH
def test_workloads_are_published_first_and_small_ones_last(problem: Problem) -> None:
    full, smoke = problem.select(Scale.FULL), problem.select(Scale.SMOKE)
    origins = [w.origin for w in full]
    recorded = json.loads((FOLDER / problem.name / "private.json").read_text())["published"]

    assert [w.id for w in published(problem)] == list(recorded)
    assert len(smoke) >= 3
    assert list(problem.workloads) == [*full, *smoke]
    assert origins == sorted(origins, key=[Origin.PUBLISHED, Origin.ADDED].index)
    assert {w.origin for w in smoke} == {Origin.ADDED}
    assert len({w.id for w in problem.workloads}) == len(problem.workloads)
    assert all(w.id.startswith("added-") for w in full if w.origin is Origin.ADDED)
    assert all(w.id.startswith("smoke-") for w in smoke)


def test_phases_and_containers_are_as_published() -> None:
    containers = {
        kind: {n for n, p in PROBLEMS.items() if p.container is kind} for kind in Container
    }
    both = (Phase.PREFILL, Phase.DECODE)

    assert {n: p.phases for n, p in PROBLEMS.items() if p.phases != both} == {
        "attention_forward": (Phase.PREFILL,),
        "causal_conv1d": (Phase.PREFILL,),
        "chunk_delta_rule_output": (Phase.PREFILL,),
        "chunk_gated_delta_rule_state": (Phase.PREFILL,),
        "gated_delta_rule_update": (Phase.DECODE,),
        "mla_decode_attention": (Phase.DECODE,),
        "paged_attention_decode": (Phase.DECODE,),
        "topk_filter": (Phase.DECODE,),
    }
    assert containers[Container.TUPLE] == {
        "fp8_dynamic_per_token_quant",
        "fused_qkv_rope",
        "fused_rmsnorm_quant",
    }
    assert containers[Container.DICT] == {
        "chunk_gated_delta_rule_state",
        "fused_add_rms_norm",
        "gated_delta_rule_update",
        "moe_align_block_size",
        "moe_count_and_sort",
        "moe_topk_gating_softmax",
        "mrope",
        "per_token_group_quant_fp8",
        "reshape_and_cache",
    }


def test_published_workloads_have_the_published_phase() -> None:
    for problem in PROBLEMS.values():
        (phase,) = {w.phase for w in published(problem)}
        assert phase is (problem.phases[0] if len(problem.phases) == 1 else Phase.BOTH)


def test_some_published_shapes_are_what_was_published() -> None:
    assert workload("rms_norm", "55").axes == {"token_count": 510, "hidden_size": 8192}
    assert workload("rms_norm", "55").init == {"eps": 1e-6}
    assert workload("silu_and_mul", "36").axes == {"shape": [15381, 8192]}
    assert workload("moe_topk_gating_softmax", "9").init == {"top_k": 8}
    assert workload("paged_attention_decode", "6").axes == {
        "num_seqs": 4,
        "ctx_len": 128,
        "num_query_heads": 40,
        "num_kv_heads": 8,
        "head_size": 128,
        "block_size": 16,
        "dtype": "fp16",
    }


def test_costs_of_single_shapes() -> None:
    norm = PROBLEMS["rms_norm"].cost(workload("rms_norm", "0"))
    gate = PROBLEMS["linear_sigmoid_mul"].cost(workload("linear_sigmoid_mul", "7"))
    half = PROBLEMS["paged_attention_decode"].cost(workload("paged_attention_decode", "6"))

    # 2500 rows of 1024.
    assert norm.flops == {ArithmeticPath.FP32_VECTOR: 10_245_000}
    assert (norm.read_bytes, norm.write_bytes) == (5_122_048, 5_120_000)
    # 13 tokens, 2048 -> 4096.
    assert gate.flops == {
        ArithmeticPath.BF16_MATRIX: 218_103_808,
        ArithmeticPath.FP32_VECTOR: 106_496,
    }
    # 4 sequences of 128 tokens, 40 query heads on 8 key heads of 128, fp16: 512 live tokens.
    assert half.flops == {
        ArithmeticPath.FP16_MATRIX: 10_485_760,
        ArithmeticPath.FP32_VECTOR: 61_440,
    }
    assert half.read_bytes == 40_960 + 2_097_152 + 4 * (32 + 4)
    assert half.write_bytes == 40_960


def test_attention_costs_what_the_drawn_lengths_make_live() -> None:
    problem = PROBLEMS["paged_attention_decode"]
    shape = workload("paged_attention_decode", "smoke-3x37")
    inputs = problem.draw(shape, regime="ragged", seed=4, device="cpu")
    inputs = {**inputs, "seq_lens": inputs["seq_lens"].new_tensor([0, 17, 1])}

    cost = problem.cost(shape, inputs)

    # 18 live tokens of two sequences on 3 pages; 4 query heads on 2 key heads of 64, bf16.
    assert cost.flops[ArithmeticPath.BF16_MATRIX] == 4 * 4 * 64 * 18
    assert cost.read_bytes == 2 * 2 * 4 * 64 + 2 * 2 * 18 * 2 * 64 + 4 * (3 + 3)
    assert cost.write_bytes == 3 * 4 * 64 * 2


@EACH
def test_drawn_inputs_are_what_the_problem_describes(problem: Problem) -> None:
    for shape in problem.select(Scale.SMOKE):
        for regime in (*problem.regimes(shape), "published"):
            drawn = problem.draw(shape, regime=regime, seed=7, device="cpu")
            again = problem.draw(shape, regime=regime, seed=7, device="cpu")
            other = problem.draw(shape, regime=regime, seed=8, device="cpu")

            assert list(drawn) == [spec.name for spec in problem.inputs(shape)]
            for spec in problem.inputs(shape):
                tensor = drawn[spec.name]
                assert tuple(tensor.shape) == spec.shape
                assert dtype_of(tensor) is spec.dtype
                assert tensor.is_contiguous()
                assert tensor.double().isfinite().all()
                assert _same(tensor, again[spec.name])
            assert not all(_same(drawn[name], other[name]) for name in drawn)


@EACH
def test_outputs_are_what_the_problem_describes(problem: Problem) -> None:
    for shape in problem.select(Scale.SMOKE):
        inputs = problem.draw(shape, regime="nominal", seed=7, device="cpu")
        before = {name: tensor.clone() for name, tensor in inputs.items()}
        honest, expected = problem.honest(shape, inputs), problem.expected(shape, inputs)

        assert list(honest) == list(expected) == [spec.name for spec in problem.outputs(shape)]
        for spec in problem.outputs(shape):
            assert tuple(honest[spec.name].shape) == tuple(expected[spec.name].shape) == spec.shape
            assert dtype_of(honest[spec.name]) is spec.dtype
            assert honest[spec.name].is_contiguous()
            wide = dtype_of(dense(expected[spec.name]))
            allowed = (DType.FP64, DType.FP32) if spec.dtype.is_floating else (spec.dtype,)
            assert wide in allowed
        assert all(_same(inputs[name], tensor) for name, tensor in before.items())


@EACH
def test_an_unknown_regime_is_refused(problem: Problem) -> None:
    with pytest.raises(ValueError, match="unknown regime 'surprise'"):
        problem.draw(problem.workloads[-1], regime="surprise", seed=0, device="cpu")


@EACH
def test_the_public_half_runs_alone(problem: Problem, tmp_path: Path) -> None:
    for file in problem.public_files:
        (tmp_path / file.name).write_bytes(file.read_bytes())
    script = (
        "import json, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import inputs, reference\n"
        "shapes = json.load(open(sys.argv[1] + '/shapes.json'))\n"
        "for entry in shapes['smoke']:\n"
        "    drawn = inputs.make_inputs(**entry['axes'])\n"
        "    reference.Model(**entry['init'])(**drawn)\n"
        "print(any(name.startswith('atrex') for name in sys.modules))"
    )

    run = subprocess.run(
        [sys.executable, "-I", "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert run.stdout == "False\n"


@EACH
def test_the_public_half_tells_nothing_private(problem: Problem) -> None:
    public = "".join(file.read_text() for file in problem.public_files)

    assert [file.name for file in problem.public_files] == [
        "reference.py",
        "inputs.py",
        "shapes.json",
    ]
    assert str(problem.importance) not in public
    assert "production_us" not in public
    assert '"us"' not in public
