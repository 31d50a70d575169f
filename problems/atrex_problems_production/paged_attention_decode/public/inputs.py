"""Inputs of `paged_attention_decode`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production: full sequences, blocks in order, with a few loud keys at places
               that the seed decides
    ragged     lengths from 0 and 1 up, blocks in any order
    flat       queries of zero: every live token counts the same
    peaked     wide scores far from zero, so that softmax must subtract its maximum
    needle     one token of each sequence decides, often the last live one
Outside `nominal`, whatever must not be read holds large finite values.
"""

import torch

LOUD = 10_000.0
"""What slots that must not be read hold: finite in fp16 too, so that a weight of 0 removes it."""


def make_inputs(
    num_seqs: int,
    ctx_len: int,
    num_query_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int = 16,
    dtype: str = "bf16",
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw a query for each sequence, a cache with 16 spare blocks, tables and lengths."""
    if regime not in ("published", "nominal", "ragged", "flat", "peaked", "needle"):
        raise ValueError(f"unknown regime {regime!r}")
    rng = torch.Generator(device).manual_seed(seed)
    kind = torch.bfloat16 if dtype == "bf16" else torch.float16
    table_width = -(-ctx_len // block_size)
    blocks = num_seqs * table_width + 16

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=kind)

    query = normal(num_seqs, num_query_heads, head_size)
    # Token-major here; packed below.
    k = normal(blocks, block_size, num_kv_heads, head_size)
    v = normal(blocks, block_size, num_kv_heads, head_size)
    tables = torch.arange(num_seqs * table_width, device=device)
    lengths = torch.full((num_seqs,), ctx_len, device=device)
    if regime not in ("published", "nominal"):
        tables = _scattered(blocks, rng, device)[tables]
        lengths = _ragged(num_seqs, ctx_len, block_size, rng, device)
        if regime in ("flat", "peaked") and num_seqs == 1:
            lengths[:] = 1 if regime == "flat" else ctx_len
    tables = tables.view(num_seqs, table_width)

    sequence = torch.arange(num_seqs, device=device)
    chosen = (torch.rand(num_seqs, generator=rng, device=device) * lengths).long()
    if regime == "nominal":
        some = torch.randint(num_seqs, (1 + num_seqs // 8,), generator=rng, device=device)
        _plant(k, v, query, tables, some, chosen[some], strength=3.0)
    elif regime == "flat":
        query.zero_()
    elif regime == "peaked":
        side = 1 - 2 * (sequence % 2)
        query *= 2
        query[:, :, 0] = 16
        k[tables, :, :, 0] = (side * 6 * head_size**0.5).to(kind)[:, None, None, None]
    elif regime == "needle":
        last = (lengths - 1).clamp(min=0)
        chosen = torch.where(sequence % 2 == 0, last, chosen)
        _plant(k, v, query, tables, sequence, chosen, strength=9.0)

    if regime not in ("published", "nominal"):
        token = torch.arange(table_width * block_size, device=device)
        live = token < lengths[:, None]
        block, slot = tables[:, token // block_size], (token % block_size).expand_as(live)
        dead = torch.ones(blocks, block_size, dtype=torch.bool, device=device)
        dead[block[live], slot[live]] = False
        k[dead] = LOUD
        v[dead] = LOUD

    x = 16 // k.element_size()
    return {
        "query": query,
        "k_cache": k.view(blocks, block_size, num_kv_heads, head_size // x, x)
        .permute(0, 2, 3, 1, 4)
        .contiguous(),
        "v_cache": v.permute(0, 2, 3, 1).contiguous(),
        "block_tables": tables.to(torch.int32),
        "seq_lens": lengths.to(torch.int32),
    }


def _scattered(blocks: int, rng: torch.Generator, device: str) -> torch.Tensor:
    """Return a permutation that leaves no block where it was: one cycle through all."""
    order = torch.randperm(blocks, generator=rng, device=device)
    where = torch.empty_like(order)
    where[order] = order.roll(-1)
    return where


def _ragged(seqs: int, longest: int, block: int, rng: torch.Generator, device: str) -> torch.Tensor:
    """Draw lengths that end inside a block, and put 0, 1 and the longest among them."""
    lengths = torch.randint(1, max(2, longest), (seqs,), generator=rng, device=device)
    lengths -= ((lengths % block == 0) & (lengths > 1)).long()
    special = torch.tensor([0, longest, 1], device=device)[: max(0, seqs - 1)]
    lengths[1 : 1 + len(special)] = special
    return lengths[torch.randperm(seqs, generator=rng, device=device)]


def _plant(
    k: torch.Tensor,
    v: torch.Tensor,
    query: torch.Tensor,
    tables: torch.Tensor,
    sequence: torch.Tensor,
    token: torch.Tensor,
    *,
    strength: float,
) -> None:
    """Let `token` of each sequence score `strength` against its kv head's first query head."""
    block = k.shape[1]
    kv_heads = k.shape[2]
    at = tables[sequence, token // block], token % block
    leader = query[sequence][:, :: query.shape[1] // kv_heads].float()
    gain = strength * leader.shape[-1] ** 0.5 / leader.square().sum(-1, keepdim=True)
    k[at] = (leader * gain).to(k.dtype)
    v[at] *= 4
