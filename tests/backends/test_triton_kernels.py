"""The bundled kernels, against float64, at small and odd shapes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from atrex_backend_triton import TritonBackend

TARGETS = pytest.mark.parametrize("target", ["sm_90", "gfx942"])


@pytest.fixture
def load(load_file: Any, virtual: Any) -> Callable[[str, str], Any]:
    """Start a virtual device and import a bundled kernel on it."""

    def load(name: str, target: str) -> Any:
        return load_file(TritonBackend().kernels / f"{name}.py", virtual(target))

    return load


def _random(*shape: int, seed: int = 0, dtype: Any = torch.bfloat16) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _assert_rounded(actual: Any, wanted: Any, epsilon: float = 2.0**-7) -> None:
    """Accept one rounding to the output's precision, and a little of the computation's own."""
    assert actual.shape == wanted.shape
    error = (actual.double() - wanted.double()).norm() / wanted.double().norm().clamp_min(1e-30)
    assert error < 0.35 * epsilon
    torch.testing.assert_close(actual.double(), wanted.double(), rtol=2 * epsilon, atol=epsilon / 8)


def _normalised(x: Any, weight: Any, eps: float = 1e-6) -> Any:
    wide = x.double()
    return wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps) * weight.double()


@TARGETS
def test_probe_adds(load: Any, target: str) -> None:
    model = load("probe", target).Model()

    assert model(x=torch.arange(5.0), y=torch.ones(5)).tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


@TARGETS
@pytest.mark.parametrize("shape", [(1, 128), (7, 129), (5, 1024), (3, 8192), (0, 64)], ids=str)
def test_rms_norm(load: Any, target: str, shape: tuple[int, int]) -> None:
    x, weight = _random(*shape) * 0.02, 1 + 0.02 * _random(shape[1], seed=1)

    out = load("rms_norm", target).Model(eps=1e-5)(x=x, weight=weight)

    _assert_rounded(out, _normalised(x, weight, 1e-5))


@TARGETS
@pytest.mark.parametrize("shape", [(1, 128), (7, 129), (5, 1280), (0, 64)], ids=str)
def test_fused_add_rms_norm(load: Any, target: str, shape: tuple[int, int]) -> None:
    x, residual = _random(*shape), _random(*shape, seed=1)
    weight = 1 + 0.02 * _random(shape[1], seed=2)
    x_before, residual_before = x.clone(), residual.clone()

    outputs = load("fused_add_rms_norm", target).Model()(x=x, residual=residual, weight=weight)

    assert set(outputs) == {"out", "residual"}
    assert torch.equal(outputs["residual"], x + residual)
    _assert_rounded(outputs["out"], _normalised(x + residual, weight))
    assert torch.equal(x, x_before)
    assert torch.equal(residual, residual_before)


@TARGETS
@pytest.mark.parametrize("shape", [(3, 5, 70), (4, 3072), (2, 7), (3, 1), (0, 8)], ids=str)
def test_silu_and_mul(load: Any, target: str, shape: tuple[int, ...]) -> None:
    x = _random(*shape)
    half = max(shape[-1] // 2, 1)
    gate = x[..., :half].double()
    activated = (gate * gate.sigmoid()).bfloat16()
    wanted = activated if shape[-1] == 1 else activated * x[..., half : 2 * half]

    out = load("silu_and_mul", target).Model()(x=x)

    assert out.dtype == torch.bfloat16
    _assert_rounded(out, wanted)


@TARGETS
@pytest.mark.parametrize(
    "sizes",
    [(1, 72, 50), (13, 130, 96), (33, 64, 64), (90, 40, 70), (130, 33, 40), (0, 16, 16)],
    ids=str,
)
def test_linear_sigmoid_mul(load: Any, target: str, sizes: tuple[int, int, int]) -> None:
    rows, depth, width = sizes
    x, weight = _random(rows, depth), _random(width, depth, seed=1) * depth**-0.5
    bias, mul = _random(width, seed=2), _random(rows, width, seed=3)
    z = (x.double() @ weight.double().T + bias.double()).bfloat16().double()

    out = load("linear_sigmoid_mul", target).Model()(
        hidden_states=x, weight=weight, bias=bias, post_mul_mat=mul
    )

    _assert_rounded(out, z.sigmoid() * mul.double())


def test_linear_sigmoid_mul_at_many_rows_uses_the_wide_tile(load: Any) -> None:
    module = load("linear_sigmoid_mul", "sm_90")
    rows, depth, width = 1030, 48, 40
    x, weight = _random(rows, depth), _random(width, depth, seed=1) * depth**-0.5
    bias, mul = _random(width, seed=2), _random(rows, width, seed=3)

    out = module.Model()(hidden_states=x, weight=weight, bias=bias, post_mul_mat=mul)

    z = (x.double() @ weight.double().T + bias.double()).bfloat16().double()
    _assert_rounded(out, z.sigmoid() * mul.double())
    (report,) = module.runtime.reports()
    assert report.matrix_instructions == ("wgmma.mma_async",)


@TARGETS
@pytest.mark.parametrize("sizes", [(9, 128, 8), (5, 60, 6), (1, 256, 8), (3, 8, 8)], ids=str)
def test_moe_topk_gating_softmax(load: Any, target: str, sizes: tuple[int, int, int]) -> None:
    rows, experts, top_k = sizes
    logits = _random(rows, experts, dtype=torch.float32)
    wanted = logits.double().softmax(-1).topk(top_k)

    outputs = load("moe_topk_gating_softmax", target).Model(top_k=top_k)(gating_output=logits)

    assert outputs["topk_ids"].dtype == torch.int32
    assert torch.equal(outputs["topk_ids"].long(), wanted.indices)
    torch.testing.assert_close(outputs["topk_weights"].double(), wanted.values, rtol=1e-6, atol=0)


@TARGETS
def test_moe_topk_gating_softmax_breaks_ties_towards_the_lower_expert(
    load: Any, target: str
) -> None:
    logits = torch.tensor([[0.0, 1.0, 1.0, -1.0, 1.0, 0.0, -0.5, 1.0]])

    outputs = load("moe_topk_gating_softmax", target).Model(top_k=6)(gating_output=logits)

    assert outputs["topk_ids"].tolist() == [[1, 2, 4, 7, 0, 5]]


@TARGETS
def test_moe_topk_gating_softmax_keeps_only_the_best_groups(load: Any, target: str) -> None:
    logits = torch.tensor([[0.1, 0.2, 3.0, 0.3, 0.4, 0.5, 2.0, 1.9], [1.0, 0.9, 0, 0, 0, 0, 0, 2]])
    probabilities = logits.double().softmax(-1)

    outputs = load("moe_topk_gating_softmax", target).Model(
        top_k=5, num_expert_groups=4, topk_group=2
    )(gating_output=logits)

    # Experts outside the two best groups count as zero, and stand behind those inside.
    ids = outputs["topk_ids"]
    assert ids[:, :4].tolist() == [[2, 6, 7, 3], [7, 0, 1, 6]]
    assert sorted(set(ids[0].tolist())) == sorted(ids[0].tolist())
    wanted = probabilities.gather(1, ids.long())
    wanted[:, 4] = 0
    torch.testing.assert_close(outputs["topk_weights"].double(), wanted, rtol=1e-6, atol=0)


@TARGETS
@pytest.mark.parametrize(
    ("dtype", "query_heads", "groups", "head", "slots", "lengths"),
    [
        (torch.bfloat16, 8, 2, 128, 16, (100, 64, 0, 7)),
        (torch.float16, 3, 3, 64, 16, (1, 65, -3)),
        (torch.bfloat16, 16, 2, 256, 16, (33, 40)),
        (torch.bfloat16, 5, 1, 80, 8, (9, 40)),
    ],
    ids=["shared heads", "own heads", "wide heads", "odd sizes"],
)
def test_paged_attention_decode(
    load: Any,
    target: str,
    dtype: Any,
    query_heads: int,
    groups: int,
    head: int,
    slots: int,
    lengths: tuple[int, ...],
) -> None:
    pack, sequences = 8, len(lengths)
    pages = -(-max(lengths) // slots) + 1
    blocks = sequences * pages + 3
    query = _random(sequences, query_heads, head, dtype=dtype)
    # Whatever is not part of a sequence is NaN, and a table's unused entries point nowhere.
    keys = torch.full((blocks, groups, head // pack, slots, pack), float("nan"), dtype=dtype)
    values = torch.full((blocks, groups, head, slots), float("nan"), dtype=dtype)
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(5))
    tables = order[: sequences * pages].view(sequences, pages).int()
    wanted = torch.zeros(sequences, query_heads, head, dtype=torch.float64)
    for sequence, length in enumerate(lengths):
        if length > 0:
            k = _random(length, groups, head, seed=2 * sequence, dtype=dtype)
            v = _random(length, groups, head, seed=2 * sequence + 1, dtype=dtype)
            for token in range(length):
                block = tables[sequence, token // slots]
                keys[block, :, :, token % slots] = k[token].view(groups, head // pack, pack)
                values[block, :, :, token % slots] = v[token]
            shared = query_heads // groups
            wide_k, wide_v = (t.double().repeat_interleave(shared, 1) for t in (k, v))
            scores = torch.einsum("hd,lhd->hl", query[sequence].double(), wide_k) * head**-0.5
            wanted[sequence] = torch.einsum("hl,lhd->hd", scores.softmax(-1), wide_v)
        tables[sequence, -(-max(length, 0) // slots) :] = 1_000_000

    out = load("paged_attention_decode", target).Model()(
        query=query,
        k_cache=keys,
        v_cache=values,
        block_tables=tables,
        seq_lens=torch.tensor(lengths, dtype=torch.int32),
    )

    assert out.dtype == dtype
    _assert_rounded(out, wanted, torch.finfo(dtype).eps)


@pytest.mark.parametrize("name", ["rms_norm", "silu_and_mul"])
def test_production_widths_are_read_sixteen_bytes_at_a_time(
    load: Any, tmp_path: Path, name: str
) -> None:
    module = load(name, "sm_90")
    x = torch.zeros(32, 2048, dtype=torch.bfloat16)
    inputs = {"x": x, "weight": x[0]} if name == "rms_norm" else {"x": x}

    with module.runtime.knocked_out():
        module.Model()(**inputs)

    (assembly,) = (tmp_path / "triton").glob("*/*.ptx")
    text = assembly.read_text()
    assert "ld.global.v4.b32" in text
    assert "st.global.v4.b32" in text
    assert "ld.global.b16" not in text
