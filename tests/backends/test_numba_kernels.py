"""The bundled Numba kernels against float64, as `numba_kernels_child.py` found them."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

KERNELS = (
    "probe",
    "rms_norm",
    "fused_add_rms_norm",
    "silu_and_mul",
    "linear_sigmoid_mul",
    "moe_topk_gating_softmax",
    "paged_attention_decode",
)
Findings = dict[str, Any]

CHILD = Path(__file__).with_name("numba_kernels_child.py")

# Rounding to bf16 errs by at most 2**-9 of a value, 0.29 of that on average.
BF16 = 0.0021
FP16 = BF16 / 8


@pytest.fixture(scope="module")
def findings() -> Mapping[str, Findings]:
    from atrex_accelerator_cpu import CpuAccelerator

    (device,) = CpuAccelerator().devices()
    environment = {**os.environ, **CpuAccelerator().worker_environment(device)}
    shown = subprocess.run(
        [sys.executable, "-W", "error", CHILD],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert shown.returncode == 0, shown.stderr
    return {line["kernel"]: line for line in map(json.loads, shown.stdout.splitlines())}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_runs_in_a_forked_process(findings: Mapping[str, Findings], kernel: str) -> None:
    assert "error" not in findings[kernel], findings[kernel]["error"]
    assert findings[kernel]["layer"] == "omp"


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_file_stands_alone(kernel: str) -> None:
    import atrex_backend_numba

    folder = atrex_backend_numba.NumbaBackend().kernels
    assert folder is not None
    tree = ast.parse((folder / f"{kernel}.py").read_text())
    imported = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    }

    assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert imported <= {"torch", "numba", "numpy"}


def test_probe_adds(findings: Mapping[str, Findings]) -> None:
    assert findings["probe"]["sum"] == [1.5, 3.25, -4.0]
    assert findings["probe"]["empty"] == []


@pytest.mark.parametrize("case", ["1x1", "1x7", "5x129", "16x1024", "3x8192"])
def test_rms_norm_is_as_good_as_rounding(findings: Mapping[str, Findings], case: str) -> None:
    assert findings["rms_norm"][case] < BF16


def test_rms_norm_uses_its_eps(findings: Mapping[str, Findings]) -> None:
    assert findings["rms_norm"]["of 1e-3 with eps 1.0"] == pytest.approx(1e-3, rel=0.01)


def test_rms_norm_keeps_nan_and_infinity(findings: Mapping[str, Findings]) -> None:
    assert findings["rms_norm"]["a row with NaN"] == ["nan", "nan", "nan"]
    assert findings["rms_norm"]["a row with infinity"] == ["nan", "0.0", "0.0"]
    assert findings["rms_norm"]["the row after"] == ["1.0", "1.0", "1.0"]


@pytest.mark.parametrize("case", ["1x7", "5x129", "16x1024"])
def test_fused_add_rms_norm_norms_the_rounded_sum(
    findings: Mapping[str, Findings], case: str
) -> None:
    found = findings["fused_add_rms_norm"][case]

    assert found["residual is exact"]
    assert found["out"] < BF16
    assert found["inputs unchanged"]


@pytest.mark.parametrize("case", ["2", "1x14", "3x5x258", "16x2048"])
def test_silu_and_mul_rounds_as_torch_does(findings: Mapping[str, Findings], case: str) -> None:
    found = findings["silu_and_mul"][case]

    assert found["shape"] == found["expected shape"]
    assert found["share of equal elements"] > 0.999
    assert found["out"] < 2 * BF16


def test_silu_and_mul_at_the_ends(findings: Mapping[str, Findings]) -> None:
    assert findings["silu_and_mul"]["ends"] == {
        "-inf": "nan",
        "inf": "inf",
        "nan": "nan",
        "-100": "-0.0",
        "100": "100.0",
        "0": "0.0",
    }


@pytest.mark.parametrize("case", ["1x7x5", "4x64x48", "13x129x50", "50x256x100", "97x33x49"])
def test_linear_sigmoid_mul_is_as_good_as_rounding_twice(
    findings: Mapping[str, Findings], case: str
) -> None:
    assert findings["linear_sigmoid_mul"][case] < 2 * BF16


@pytest.mark.parametrize(
    "case",
    [
        "1 of 8, top 1",
        "1 of 8, top 8",
        "7 of 33, top 5",
        "64 of 256, top 8",
        "9 of 64, top 6, 2 of 8 groups",
        "9 of 64, top 12, 1 of 8 groups",
        "3 of 8, top 8, 2 of 4 groups",
    ],
)
def test_topk_softmax_chooses_and_weighs(findings: Mapping[str, Findings], case: str) -> None:
    found = findings["moe_topk_gating_softmax"][case]

    assert found["ids are equal"]
    assert found["weights"] < 2e-7


def test_topk_softmax_prefers_the_lower_of_equal_experts(
    findings: Mapping[str, Findings],
) -> None:
    assert findings["moe_topk_gating_softmax"]["ids of ties"] == [1, 2, 3, 5, 0]


def test_topk_softmax_does_not_overflow(findings: Mapping[str, Findings]) -> None:
    assert findings["moe_topk_gating_softmax"]["weights of 1e4 and 0"] == [1.0, 0.0]


@pytest.mark.parametrize(
    "case",
    ["one token", "ragged", "grouped", "odd page", "long", "empty sequences", "garbage behind"],
)
@pytest.mark.parametrize(("dtype", "limit"), [("bf16", BF16), ("fp16", FP16)])
def test_paged_attention_is_as_good_as_rounding(
    findings: Mapping[str, Findings], case: str, dtype: str, limit: float
) -> None:
    found = findings["paged_attention_decode"][f"{case}, {dtype}"]

    assert found["out"] < limit
    assert found["dtype"] == {"bf16": "torch.bfloat16", "fp16": "torch.float16"}[dtype]


def test_an_empty_sequence_gives_zeros(findings: Mapping[str, Findings]) -> None:
    assert findings["paged_attention_decode"]["largest of empty sequences"] == 0.0


def test_every_half_word_is_widened_exactly(findings: Mapping[str, Findings]) -> None:
    assert findings["paged_attention_decode"]["words widened wrongly"] == {"bf16": 0, "fp16": 0}


def test_every_float_is_narrowed_as_torch_does(findings: Mapping[str, Findings]) -> None:
    assert findings["paged_attention_decode"]["floats narrowed wrongly"] == {"bf16": 0, "fp16": 0}


@pytest.mark.parametrize(
    "kernel",
    ["silu_and_mul", "linear_sigmoid_mul", "moe_topk_gating_softmax", "paged_attention_decode"],
)
def test_the_exponential_errs_by_two_units_at_most(
    findings: Mapping[str, Findings], kernel: str
) -> None:
    assert findings[kernel]["worst relative error of exp"] < 2 * 2.0**-23
