"""Faults that only a real device has, each charged to the right gate while the run goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from atrex_accelerator_cuda import CudaAccelerator

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not CudaAccelerator().devices(), reason="no CUDA device is visible"),
]

_HEAD = """
import torch, triton
import triton.language as tl

@triton.jit
def norm(x, w, out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + c, mask=c < n, other=0.0).to(tl.float32)
    r = tl.rsqrt(tl.sum(v * v, 0) / n + eps)
    y = v * r * tl.load(w + c, mask=c < n, other=0.0).to(tl.float32)
    tl.store(out + row * n + c, y.to(out.dtype.element_ty), mask=c < n)

@triton.jit
def far_away(out):
    tl.store(out + 1099511627776, 1.0)

@triton.jit
def endless(flag):
    while tl.load(flag, volatile=True) == 0:
        pass

def right(x, weight, eps):
    out = torch.empty_like(x)
    norm[(x.shape[0],)](x, weight, out, x.shape[1], eps, BLOCK=triton.next_power_of_2(x.shape[1]))
    return out

class Model(torch.nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.eps = eps
"""

CASES: Mapping[str, tuple[str, str | None, str]] = {
    "a_honest": ("return right(x, weight, self.eps)", None, ""),
    "illegal_access": (
        "out = right(x, weight, self.eps); far_away[(1,)](out.float()); return out",
        "correctness",
        "illegal memory access",
    ),
    "endless_kernel": (
        (
            "endless[(1,)](torch.zeros(1, dtype=torch.int32, device=x.device)); "
            "return right(x, weight, self.eps)"
        ),
        "correctness",
        "no answer within",
    ),
    "exhausts_memory": (
        (
            "self.kept = [torch.empty(1 << 37, device=x.device) for _ in (1, 2)]; "
            "return right(x, weight, self.eps)"
        ),
        "correctness",
        "out of memory",
    ),
    "answers_on_the_host": ("return right(x, weight, self.eps).cpu()", "correctness", "is on cpu"),
    "too_much_shared_memory": (
        (
            "out = torch.empty_like(x); norm[(x.shape[0],)](x, weight, out, x.shape[1], self.eps, "
            "BLOCK=1 << 21); return out"
        ),
        "compile",
        "",
    ),
    "torch_only": (
        (
            "v = x.float(); return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + self.eps) "
            "* weight.float()).to(x.dtype)"
        ),
        "authenticity",
        "launched no triton kernel",
    ),
    "decoy": (
        (
            "right(x, weight, self.eps); v = x.float(); "
            "return (v * torch.rsqrt(v.square().mean(-1, keepdim=True) + self.eps) "
            "* weight.float()).to(x.dtype)"
        ),
        "authenticity",
        "still right",
    ),
    "reads_back": ("out = right(x, weight, self.eps); out[0, 0].item(); return out", None, ""),
    "z_honest": ("return right(x, weight, self.eps)", None, ""),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, Any]]:
    folder = tmp_path_factory.mktemp("candidates")
    (folder / "rms_norm").mkdir()
    for name, (body, _, _) in CASES.items():
        forward = f"    def forward(self, x, weight):\n        {body}\n"
        (folder / "rms_norm" / f"{name}.py").write_text(_HEAD + "\n" + forward)
    command = [sys.executable, "-m", "atrex_core", str(folder), "--backend", "triton"]
    options = ["--workload", "0", "--timeout", "30", "--format", "json"]
    done = subprocess.run([*command, *options], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    return {e["submission"]: e for e in json.loads(done.stdout)["evaluations"]}


@pytest.mark.parametrize("name", CASES)
def test_a_candidate_is_charged_with_what_it_did(
    found: Mapping[str, Mapping[str, Any]], name: str
) -> None:
    _, gate, reason = CASES[name]
    gates: Mapping[str, Any] = found[name]["gates"]
    failed = [g for g, result in gates.items() if result["outcome"] != "passed"]

    assert failed == ([gate] if gate else [])
    if gate:
        assert gates[gate]["outcome"] == "failed"
        assert reason in gates[gate]["reason"]


def test_a_candidate_that_synchronises_has_a_call_time_only(
    found: Mapping[str, Mapping[str, Any]],
) -> None:
    timing = found["reads_back"]["timing"]

    assert timing["device_us"] is None
    assert timing["call_us"] > 0
    assert "synchronises" in timing["reason"]


def test_faults_of_others_leave_a_candidates_time_as_it_was(
    found: Mapping[str, Mapping[str, Any]],
) -> None:
    first, last = (found[name]["timing"]["device_us"] for name in ("a_honest", "z_honest"))

    assert abs(first - last) < 0.25 * first + 0.5
