"""The same wrapper around a real CUDA driver: launches, suppression, reports, bundled kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from atrex_backend_triton import TritonBackend

from atrex_core import Device, TargetFailure

pytestmark = pytest.mark.gpu

_TUNED_AND_GREEDY = """
@triton.autotune(
    [triton.Config({"BLOCK": b}, num_warps=w) for b in (128, 256) for w in (1, 4)], key=["n"]
)
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) + 1, mask=o < n)

@triton.jit
def greedy(x, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    v = tl.load(x + o)
    for _ in range(4):
        v = tl.dot(v, tl.trans(v)).to(tl.float16)
    tl.store(x + o, v)
"""


@pytest.fixture
def load(load_file: Any) -> Callable[[Path], Any]:
    """Start a worker's runtime on the first GPU and import a file on it."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device is visible")

    def load(path: Path) -> Any:
        major, minor = torch.cuda.get_device_capability()
        device = Device(
            id="cuda",
            accelerator="cuda",
            vendor="nvidia",
            name=torch.cuda.get_device_name(),
            arch=f"sm_{major}{minor}",
        )
        return load_file(path, device)

    return load


@pytest.fixture
def candidate(load: Callable[[Path], Any], tmp_path: Path, header: str, add_one: str) -> Any:
    path = tmp_path / "candidate.py"
    path.write_text(header + add_one + _TUNED_AND_GREEDY)
    return load(path)


def test_launches_are_recorded_and_run(candidate: Any) -> None:
    x = torch.zeros(1000, device="cuda")

    candidate.add_one[(8,)](x, x, 1000, BLOCK=128)

    assert x.tolist() == [1.0] * 1000
    (launch,) = candidate.runtime.launches()
    assert (launch.kernel, launch.own) == ("add_one", True)
    assert launch.binary is not None


def test_launches_are_suppressed_also_of_a_compiled_kernel(candidate: Any) -> None:
    x, y = torch.zeros(1000, device="cuda"), torch.full((1000,), -7.0, device="cuda")
    compiled = candidate.add_one[(8,)](x, x, 1000, BLOCK=128)
    candidate.runtime.clear_launches()

    with candidate.runtime.knocked_out():
        candidate.add_one[(8,)](x, y, 1000, BLOCK=128)
        compiled[(8, 1, 1)](x, y, 1000, 128)
        candidate.tuned[(8,)](x, y, 1000)

    assert y.tolist() == [-7.0] * 1000
    assert candidate.runtime.launches() == ()


def test_a_searchs_trials_are_not_launches(candidate: Any) -> None:
    x, y = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")

    candidate.tuned[lambda meta: (-(-1000 // meta["BLOCK"]),)](x, y, 1000)

    assert [launch.kernel for launch in candidate.runtime.launches()] == ["tuned"]
    assert y.tolist() == [1.0] * 1000
    assert len(candidate.runtime.reports()) == 1


def test_the_drivers_registers_are_those_reported(candidate: Any) -> None:
    x = torch.zeros(1000, device="cuda")

    compiled = candidate.add_one[(8,)](x, x, 1000, BLOCK=128)

    (report,) = candidate.runtime.reports()
    assert report.registers == compiled.n_regs
    assert report.spills == compiled.n_spills == 0


def test_exceeding_the_device_is_a_compile_error(candidate: Any) -> None:
    x = torch.zeros(512 * 512, device="cuda", dtype=torch.float16)

    with pytest.raises(Exception) as caught:
        candidate.greedy[(1,)](x, BLOCK=512, num_warps=8)

    assert "out of resource" in candidate.runtime.compile_error(caught.value)


def test_launched_kernels_compile_for_another_vendor(candidate: Any) -> None:
    x = torch.zeros(1000, device="cuda")
    candidate.add_one[(8,)](x, x, 1000, BLOCK=128)

    (report,) = candidate.runtime.compile_for("gfx942")

    assert report.target == "gfx942"
    with pytest.raises(TargetFailure, match="unknown target"):
        candidate.runtime.compile_for("sm_1")


@pytest.mark.parametrize("shape", [(7, 128), (1000, 1152), (3, 8192)], ids=str)
def test_rms_norm(load: Any, shape: tuple[int, int]) -> None:
    model = load(TritonBackend().kernels / "rms_norm.py").Model()
    x = torch.randn(*shape, device="cuda").bfloat16()
    weight = torch.randn(shape[1], device="cuda").bfloat16()

    out = model(x=x, weight=weight)

    wanted = torch.nn.functional.rms_norm(x.double(), shape[1:], weight.double(), 1e-6)
    torch.testing.assert_close(out.double(), wanted, rtol=2.0**-7, atol=1e-6)


def test_rms_norm_beyond_thirty_two_bit_offsets(load: Any) -> None:
    model = load(TritonBackend().kernels / "rms_norm.py").Model()
    x = torch.ones(2**31 // 8192 + 8, 8192, device="cuda", dtype=torch.bfloat16)
    x[-1] = 2

    out = model(x=x, weight=torch.full((8192,), 3.0, device="cuda", dtype=torch.bfloat16))

    assert out[-1].float().sub(3).abs().max().item() < 0.02
    assert out[0].float().sub(3).abs().max().item() < 0.02


@pytest.mark.parametrize("rows", [1, 13, 64, 90, 500, 2748])
def test_linear_sigmoid_mul(load: Any, rows: int) -> None:
    model = load(TritonBackend().kernels / "linear_sigmoid_mul.py").Model()
    x = torch.randn(rows, 2048, device="cuda").bfloat16()
    weight = (torch.randn(4096, 2048, device="cuda") * 2048**-0.5).bfloat16()
    bias = torch.randn(4096, device="cuda").bfloat16()
    mul = torch.randn(rows, 4096, device="cuda").bfloat16()

    out = model(hidden_states=x, weight=weight, bias=bias, post_mul_mat=mul)

    z = (x.double() @ weight.double().T + bias.double()).bfloat16().double()
    wanted = z.sigmoid() * mul.double()
    assert ((out.double() - wanted).norm() / wanted.norm()).item() < 0.004


def test_moe_topk_gating_softmax(load: Any) -> None:
    model = load(TritonBackend().kernels / "moe_topk_gating_softmax.py").Model(top_k=8)
    logits = torch.randn(8037, 256, device="cuda")

    outputs = model(gating_output=logits)

    ordered = logits.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(outputs["topk_ids"].long(), ordered.indices[:, :8])
    wanted = logits.double().softmax(-1).gather(1, ordered.indices[:, :8])
    torch.testing.assert_close(outputs["topk_weights"].double(), wanted, rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    "sizes", [(256, 64, 16, 16, 128), (1, 128, 16, 2, 256), (4, 100, 64, 8, 128)], ids=str
)
def test_paged_attention_decode(load: Any, sizes: tuple[int, int, int, int, int]) -> None:
    sequences, length, heads, groups, head = sizes
    model = load(TritonBackend().kernels / "paged_attention_decode.py").Model()
    pages = -(-length // 16)
    blocks = sequences * pages
    query = torch.randn(sequences, heads, head, device="cuda").bfloat16()
    keys = torch.randn(blocks, groups, head // 8, 16, 8, device="cuda").bfloat16()
    values = torch.randn(blocks, groups, head, 16, device="cuda").bfloat16()
    tables = torch.randperm(blocks, device="cuda").view(sequences, pages).int()
    lengths = torch.full((sequences,), length, device="cuda", dtype=torch.int32)

    out = model(query=query, k_cache=keys, v_cache=values, block_tables=tables, seq_lens=lengths)

    order = tables.long()
    k = keys[order].permute(0, 1, 4, 2, 3, 5).reshape(sequences, pages * 16, groups, head)
    v = values[order].permute(0, 1, 4, 2, 3).reshape(sequences, pages * 16, groups, head)
    k, v = (t[:, :length].double().repeat_interleave(heads // groups, 2) for t in (k, v))
    scores = torch.einsum("nhd,nlhd->nhl", query.double(), k) * head**-0.5
    wanted = torch.einsum("nhl,nlhd->nhd", scores.softmax(-1), v)
    assert ((out.double() - wanted).norm() / wanted.norm()).item() < 0.004
