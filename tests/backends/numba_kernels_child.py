"""A process like a worker's: forked after the import, once for each bundled Numba kernel.

Prints one line of JSON for each: how far its results are from float64, and what it does at the
edges. `test_numba_kernels.py` says what should be found.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

Findings = dict[str, Any]


def check_probe(module: ModuleType) -> Findings:
    import torch

    x, y = torch.tensor([1.0, 3.0, -4.5]), torch.tensor([0.5, 0.25, 0.5])
    return {
        "sum": module.Model()(x=x, y=y).tolist(),
        "empty": module.Model()(x=x[:0], y=y[:0]).tolist(),
    }


def check_rms_norm(module: ModuleType) -> Findings:
    import torch

    found: Findings = {}
    for rows, columns in ((1, 1), (1, 7), (5, 129), (16, 1024), (3, 8192)):
        x, weight = normal(rows, columns) * 0.02, normal(columns) * 0.02 + 1
        out = module.Model(eps=1e-6)(x=x, weight=weight)
        found[f"{rows}x{columns}"] = distance(out, norm(x, weight, 1e-6))
    ones = torch.ones(3, dtype=torch.bfloat16)
    small = torch.full((1, 3), 1e-3, dtype=torch.bfloat16)
    found["of 1e-3 with eps 1.0"] = module.Model(eps=1.0)(x=small, weight=ones)[0, 0].item()
    odd = torch.tensor([[1.0, torch.nan, 1.0], [torch.inf, 1.0, 1.0], [1.0, 1.0, 1.0]])
    rows_out = module.Model(eps=0.0)(x=odd.bfloat16(), weight=ones).tolist()
    for name, row in zip(
        ("a row with NaN", "a row with infinity", "the row after"), rows_out, strict=True
    ):
        found[name] = [str(value) for value in row]
    return found


def check_fused_add_rms_norm(module: ModuleType) -> Findings:
    import torch

    found: Findings = {}
    for rows, columns in ((1, 7), (5, 129), (16, 1024)):
        x, residual = normal(rows, columns) * 0.02, normal(rows, columns)
        weight = normal(columns) * 0.02 + 1
        before = x.clone(), residual.clone()
        out = module.Model(eps=1e-6)(x=x, residual=residual, weight=weight)
        found[f"{rows}x{columns}"] = {
            "residual is exact": torch.equal(out["residual"], x + residual),
            "out": distance(out["out"], norm(x + residual, weight, 1e-6)),
            "inputs unchanged": torch.equal(x, before[0]) and torch.equal(residual, before[1]),
        }
    return found


def check_silu_and_mul(module: ModuleType) -> Findings:
    import torch
    from torch.nn.functional import silu

    found: Findings = {"worst relative error of exp": exponential_error(module, 88.0)}
    for shape in ((2,), (1, 14), (3, 5, 258), (16, 2048)):
        x = normal(*shape) * 4
        out = module.Model()(x=x)
        gate, up = x.chunk(2, dim=-1)
        rounded = silu(gate.float()).bfloat16() * up
        found["x".join(map(str, shape))] = {
            "shape": list(out.shape),
            "expected shape": [*shape[:-1], shape[-1] // 2],
            "share of equal elements": (out == rounded).double().mean().item(),
            "out": distance(out, silu(gate.double()) * up.double()),
        }
    gates = ["-inf", "inf", "nan", "-100", "100", "0"]
    values = torch.tensor([*map(float, gates), *[1.0] * len(gates)]).bfloat16()
    ends = module.Model()(x=values).tolist()
    found["ends"] = {gate: str(value) for gate, value in zip(gates, ends, strict=True)}
    return found


def check_linear_sigmoid_mul(module: ModuleType) -> Findings:
    import torch

    found: Findings = {"worst relative error of exp": exponential_error(module, 88.0)}
    for rows, hidden, out_features in (
        (1, 7, 5),
        (4, 64, 48),
        (13, 129, 50),
        (50, 256, 100),
        (97, 33, 49),
    ):
        x, weight = normal(rows, hidden), normal(out_features, hidden) * hidden**-0.5
        bias, factor = normal(out_features), normal(rows, out_features)
        out = module.Model()(hidden_states=x, weight=weight, bias=bias, post_mul_mat=factor)
        z = x.double() @ weight.double().T + bias.double()
        expected = torch.sigmoid(z) * factor.double()
        found[f"{rows}x{hidden}x{out_features}"] = distance(out, expected)
    return found


def check_moe_topk_gating_softmax(module: ModuleType) -> Findings:
    import torch

    found: Findings = {"worst relative error of exp": exponential_error(module, 0.0)}
    for rows, experts, k, groups, kept in (
        (1, 8, 1, 0, 0),
        (1, 8, 8, 0, 0),
        (7, 33, 5, 0, 0),
        (64, 256, 8, 0, 0),
        (9, 64, 6, 8, 2),
        (9, 64, 12, 8, 1),
        (3, 8, 8, 4, 2),
    ):
        logits = torch.randn(rows, experts)
        model = module.Model(top_k=k, num_expert_groups=groups, topk_group=kept)
        out = model(gating_output=logits)
        p = logits.double().softmax(-1)
        if groups:
            best = p.view(rows, groups, -1).amax(-1).topk(kept).indices
            mask = torch.zeros(rows, groups).double().scatter(1, best, 1.0)
            p = p * mask.repeat_interleave(experts // groups, dim=1)
        weights, ids = torch.sort(p, dim=-1, descending=True, stable=True)
        name = f"{rows} of {experts}, top {k}" + (f", {kept} of {groups} groups" if groups else "")
        found[name] = {
            "ids are equal": torch.equal(out["topk_ids"], ids[:, :k].int()),
            "weights": distance(out["topk_weights"], weights[:, :k]),
        }
    ties = torch.tensor([[1.0, 2.0, 2.0, 2.0, 1.0, 2.0]])
    found["ids of ties"] = module.Model(top_k=5)(gating_output=ties)["topk_ids"][0].tolist()
    far = module.Model(top_k=2)(gating_output=torch.tensor([[0.0, 1e4]]))["topk_weights"]
    found["weights of 1e4 and 0"] = [round(value, 30) for value in far[0].tolist()]
    return found


def check_paged_attention_decode(module: ModuleType) -> Findings:
    import torch

    found: Findings = {"worst relative error of exp": exponential_error(module, 0.0)}
    lengths_of = {
        "one token": (1, 1, 1, 8, 16, [1]),
        "ragged": (4, 4, 4, 64, 16, [37, 16, 1, 17]),
        "grouped": (3, 12, 3, 128, 16, [5, 64, 33]),
        "odd page": (2, 4, 2, 24, 5, [23, 11]),
        "long": (1, 8, 1, 64, 16, [1000]),
        "empty sequences": (3, 4, 2, 64, 16, [0, 20, -1]),
        "garbage behind": (2, 4, 2, 64, 16, [3, 29]),
    }
    for dtype, name in ((torch.bfloat16, "bf16"), (torch.float16, "fp16")):
        for case, (seqs, heads, kv_heads, size, page, lengths) in lengths_of.items():
            width = -(-max(lengths) // page)
            blocks = seqs * width + 3
            query = torch.randn(seqs, heads, size).to(dtype)
            keys = torch.randn(blocks, kv_heads, size // 8, page, 8).to(dtype)
            values = torch.randn(blocks, kv_heads, size, page).to(dtype)
            tables = torch.randperm(blocks)[: seqs * width].view(seqs, width).int()
            arguments = {
                "query": query,
                "k_cache": keys,
                "v_cache": values,
                "block_tables": tables,
                "seq_lens": torch.tensor(lengths).int(),
            }
            expected = attention(**arguments)
            if case == "garbage behind":
                for s, length in enumerate(lengths):
                    last, used = tables[s, (length - 1) // page], (length - 1) % page + 1
                    keys[last, :, :, used:] = torch.nan
                    values[last, :, :, used:] = torch.inf
            out = module.Model()(**arguments)
            found[f"{case}, {name}"] = {
                "out": distance(out, expected),
                "dtype": str(out.dtype),
            }
            if case == "empty sequences":
                found["largest of empty sequences"] = out[[0, 2]].abs().max().item()
    return found | check_halves(module)


def check_halves(module: ModuleType) -> Findings:
    """Compare conversions of every 16-bit word, and of floats around every rounding border."""
    import numpy as np
    import torch

    words = np.arange(65536, dtype=np.uint16)
    wrong_wide, wrong_narrow = {}, {}
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        exact = torch.from_numpy(words).view(dtype).float()
        widen = module.widen_fp16 if name == "fp16" else module.widen_bf16
        wide = torch.tensor([widen(word) for word in words])
        wrong_wide[name] = different(wide, exact)
        borders = (exact[:-1].double() + exact[1:].double()).float() / 2
        floats = torch.cat([exact, borders, borders * 1.0000001, borders * 0.9999999])
        floats = torch.cat([floats, torch.tensor([65519.9, 65520.0, 1e38, 1e-45, -1e-8, -0.0])])
        narrow = module.narrow_fp16 if name == "fp16" else module.narrow_bf16
        got = np.array([narrow(value) for value in floats.numpy()], np.uint16)
        wrong_narrow[name] = different(torch.from_numpy(got).view(dtype), floats.to(dtype))
    return {"words widened wrongly": wrong_wide, "floats narrowed wrongly": wrong_narrow}


def different(a: Any, b: Any) -> int:
    """Count elements that differ in value or sign; one NaN is as good as another."""
    same = (a == b) & (a.signbit() == b.signbit())
    return int((~(same | (a.isnan() & b.isnan()))).sum())


def attention(query: Any, k_cache: Any, v_cache: Any, block_tables: Any, seq_lens: Any) -> Any:
    import torch

    seqs, heads, size = query.shape
    share = heads // k_cache.shape[1]
    out = torch.zeros(seqs, heads, size, dtype=torch.float64)
    for s, length in enumerate(seq_lens.tolist()):
        if length <= 0:
            continue
        blocks = block_tables[s].long()
        keys = k_cache[blocks].double().permute(1, 0, 3, 2, 4).flatten(1, 2).flatten(2)
        values = v_cache[blocks].double().permute(1, 0, 3, 2).flatten(1, 2)
        keys = keys[:, :length].repeat_interleave(share, dim=0)
        values = values[:, :length].repeat_interleave(share, dim=0)
        scores = (keys @ query[s].double()[:, :, None]).squeeze(-1) * size**-0.5
        out[s] = (scores.softmax(-1)[:, None, :] @ values).squeeze(1)
    return out


def norm(x: Any, weight: Any, eps: float) -> Any:
    wide = x.double()
    return wide / (wide.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.double()


def normal(*shape: int) -> Any:
    import torch

    return torch.randn(*shape).bfloat16()


def distance(actual: Any, expected: Any) -> float:
    return float((actual.double() - expected).norm() / expected.norm().clamp_min(1e-30))


def exponential_error(module: ModuleType, highest: float) -> float:
    import numpy as np

    points = np.linspace(-87.0, highest, 20001, dtype=np.float32)
    got = np.array([module.exponential(x) for x in points], np.float64)
    return float(np.max(np.abs(got / np.exp(points.astype(np.float64)) - 1)))


CHECKS: dict[str, Callable[[ModuleType], Findings]] = {
    "probe": check_probe,
    "rms_norm": check_rms_norm,
    "fused_add_rms_norm": check_fused_add_rms_norm,
    "silu_and_mul": check_silu_and_mul,
    "linear_sigmoid_mul": check_linear_sigmoid_mul,
    "moe_topk_gating_softmax": check_moe_topk_gating_softmax,
    "paged_attention_decode": check_paged_attention_decode,
}


def check_in_child(path: Path) -> Findings:
    import numba
    import torch

    torch.manual_seed(20_250_101)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return CHECKS[path.stem](module) | {"layer": numba.threading_layer()}


def main() -> None:
    from atrex_backend_numba import NumbaBackend

    backend = NumbaBackend()
    backend.preload()
    assert backend.kernels is not None
    for kernel in CHECKS:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            try:
                found = check_in_child(backend.kernels / f"{kernel}.py")
            except BaseException:
                found = {"error": traceback.format_exc()}
            print(json.dumps({"kernel": kernel, **found}), flush=True)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if status:
            print(json.dumps({"kernel": kernel, "error": f"ended with status {status}"}))


if __name__ == "__main__":
    main()
