"""The production pack: what it lists, what it publishes, and what it costs to look at it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from atrex_problems_production import atrex_problems

from atrex_core import (
    ArithmeticPath,
    Container,
    DType,
    HarnessError,
    Origin,
    Phase,
    Problem,
    Scale,
    Workload,
    dtype_of,
)

PROBLEMS = {problem.name: problem for problem in atrex_problems()}

PUBLISHED = {
    "fused_add_rms_norm": (19, 0.011487),
    "linear_sigmoid_mul": (9, 0.007234),
    "moe_topk_gating_softmax": (10, 0.020529),
    "paged_attention_decode": (8, 0.044119),
    "rms_norm": (56, 0.027508),
    "silu_and_mul": (37, 0.017601),
}

EACH = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)


def workload(name: str, id_: str) -> Workload:
    return next(w for w in PROBLEMS[name].workloads if w.id == id_)


def test_the_pack_lists_the_published_operators() -> None:
    found = {
        name: (len(problem.select(Scale.FULL)), problem.importance)
        for name, problem in PROBLEMS.items()
    }

    assert found == PUBLISHED


def test_looking_at_the_pack_imports_no_torch() -> None:
    script = (
        "import sys, atrex_problems_production as pack\n"
        "problems = list(pack.atrex_problems())\n"
        "[(p.regimes(w), p.inputs(w), p.outputs(w), p.cost(w)) for p in problems"
        " for w in p.workloads]\n"
        "print(sum(len(p.workloads) for p in problems), 'torch' in sys.modules)"
    )

    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert run.stdout == "163 False\n"


def test_every_problem_carries_one_pack_with_a_digest_of_its_files() -> None:
    packs = {problem.pack for problem in PROBLEMS.values()}

    assert len(packs) == 1
    pack = packs.pop()
    assert (pack.name, pack.version) == ("production", "1.0")
    assert len(pack.digest) == 64
    assert [p.pack for p in atrex_problems()] == [pack] * 6


@EACH
def test_workloads_are_published_first_and_small_ones_last(problem: Problem) -> None:
    count, _ = PUBLISHED[problem.name]
    full, smoke = problem.select(Scale.FULL), problem.select(Scale.SMOKE)

    assert [w.id for w in full] == [str(i) for i in range(count)]
    assert len(smoke) >= 3
    assert list(problem.workloads) == [*full, *smoke]
    assert {w.origin for w in full} == {Origin.PUBLISHED}
    assert {w.origin for w in smoke} == {Origin.ADDED}
    assert len({w.id for w in problem.workloads}) == len(problem.workloads)


def test_phases_and_containers_are_as_published() -> None:
    both = (Phase.PREFILL, Phase.DECODE)
    dicts = {n for n, p in PROBLEMS.items() if p.container is Container.DICT}

    assert {n: p.phases for n, p in PROBLEMS.items() if p.phases != both} == {
        "paged_attention_decode": (Phase.DECODE,)
    }
    assert {w.phase for w in PROBLEMS["paged_attention_decode"].workloads} == {Phase.DECODE}
    assert {w.phase for w in PROBLEMS["rms_norm"].workloads} == {Phase.BOTH}
    assert dicts == {"fused_add_rms_norm", "moe_topk_gating_softmax"}


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


@EACH
def test_the_published_work_and_bytes_are_reproduced_exactly(problem: Problem) -> None:
    folder = problem.public_files[0].parent.parent
    published = json.loads((folder / "private.json").read_text())["published"]

    counted = {
        w.id: (
            *problem.published_cost(w).flops.values(),  # type: ignore[attr-defined]  # pack's own
            problem.published_cost(w).read_bytes,  # type: ignore[attr-defined]  # pack's own
            problem.published_cost(w).write_bytes,  # type: ignore[attr-defined]  # pack's own
        )
        for w in problem.select(Scale.FULL)
    }

    assert len(published) == PUBLISHED[problem.name][0]
    assert counted == {
        id_: (*entry["flops"].values(), entry["read_bytes"], entry["write_bytes"])
        for id_, entry in published.items()
    }


def test_what_was_not_published_has_no_published_cost() -> None:
    problem = PROBLEMS["rms_norm"]

    with pytest.raises(HarnessError, match="smoke-1x128"):
        problem.published_cost(workload("rms_norm", "smoke-1x128"))  # type: ignore[attr-defined]  # pack's own


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
        for regime in problem.regimes(shape):
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
                assert tensor.equal(again[spec.name])
            assert not all(drawn[name].equal(other[name]) for name in drawn)


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
            exact = DType.FP64 if spec.dtype.is_floating else DType.INT32
            assert dtype_of(expected[spec.name]) is exact
        assert all(inputs[name].equal(tensor) for name, tensor in before.items())


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
        "entry = shapes['smoke'][0]\n"
        "drawn = inputs.make_inputs(**entry['axes'])\n"
        "reference.Model(**entry['init'])(**drawn)\n"
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
