"""Inputs of `paged_attention_decode`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production: with a few loud keys at places that the seed decides
    ragged     lengths from 0 and 1 up; wide scores, so that few keys decide
    flat       queries of zero: every live token counts the same. Lengths are the largest power of
               two that fits, so that rounded weights are exact. Values have large parts that
               cancel: of one sign in the first half of a sequence, of the other after it
    peaked     scores far from zero, above it in one head and below it in the next, and twice as far
               in the second half of a sequence: softmax must subtract its maximum, which moves
    needle     one token of each sequence decides, in every other one the last
    crowd      one token of each sequence leads, and all others are each far lighter, but their
               values agree: together they count about as much
In `needle`, lengths are as in `ragged`; elsewhere sequences are full. Blocks are in order in
`published` alone. Outside `published` and `nominal`, whatever must not be read holds large finite
values.
"""

import math

import torch

REGIMES = ("published", "nominal", "ragged", "flat", "peaked", "needle", "crowd")

LIGHT = 4096
"""How many times lighter, at least, a key of the crowd is than the leading one."""

LOUD = 10_000.0
"""What slots that must not be read hold: finite in fp16 too, so that a weight of 0 removes it."""

CANCELLING = 256.0
"""Parts of values that cancel, in units of the mean of all values, at most."""

SUMMED = 2.0**28
"""Those parts times how many there are, in units of the dtype's precision, at most.

Tensor cores truncate whenever they add: what that costs must stay far below the tolerance.
"""


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
    if regime not in REGIMES:
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
    if regime != "published":
        tables = _scattered(blocks, rng, device)[tables]
    if regime in ("ragged", "needle"):
        lengths = _ragged(num_seqs, ctx_len, block_size, rng, device)
    elif regime == "flat":
        lengths[:] = 1 << (ctx_len.bit_length() - 1)
    tables = tables.view(num_seqs, table_width)

    sequence = torch.arange(num_seqs, device=device)
    token = torch.arange(table_width * block_size, device=device)
    chosen = (torch.rand(num_seqs, generator=rng, device=device) * lengths).long()
    if regime == "nominal":
        some = torch.randint(num_seqs, (1 + num_seqs // 8,), generator=rng, device=device)
        leader = query[some][:, :: num_query_heads // num_kv_heads].float()
        strength = math.log(ctx_len) + 3
        gain = strength * head_size**0.5 / leader.square().sum(-1, keepdim=True)
        at = tables[some, chosen[some] // block_size], chosen[some] % block_size
        k[at] = (leader * gain).to(kind)
        v[at] *= 4
    elif regime == "ragged":
        query *= 1.5
    elif regime == "flat":
        query.zero_()
        sign = (lengths[0] - 1 - 2 * token).sign() * _cancelling(lengths[0], kind)
        sign /= lengths[0].sqrt()
        part = torch.zeros(blocks, block_size, dtype=kind, device=device)
        part[tables] = sign.to(kind).view(table_width, block_size)
        v += part[:, :, None, None] * normal(num_kv_heads, head_size).sign()
    elif regime == "peaked":
        query *= 1.5
        query[:, :, 0] = 16.0 - 32.0 * (torch.arange(num_query_heads, device=device) % 2)
        level = torch.ones(blocks, block_size, device=device)
        level[tables] += (2 * token >= ctx_len).view(table_width, block_size)
        k[:, :, :, 0] = 8 * head_size**0.5 * level[..., None]
    elif regime == "needle":
        chosen = torch.where(sequence % 2 == 0, (lengths - 1).clamp(min=0), chosen)
        direction = normal(num_kv_heads, head_size).sign()
        strengths = (lengths.clamp(min=1).float().log() + 4)[:, None, None]
        query += direction.repeat_interleave(num_query_heads // num_kv_heads, 0)
        at = tables[sequence, chosen // block_size], chosen % block_size
        k[at] = (direction * strengths / head_size**0.5).to(kind)
        v[at] *= 4
    elif regime == "crowd":
        # Weights below this fp16 could not hold.
        lightness = max(LIGHT, ctx_len) if kind is torch.bfloat16 else LIGHT
        direction = normal(num_kv_heads, head_size)
        gain = math.log(lightness) * head_size**0.5
        gain = gain / direction.float().square().sum(-1, keepdim=True)
        query = 0.5 * query + direction.repeat_interleave(num_query_heads // num_kv_heads, 0)
        k *= 0.5
        at = tables[sequence, chosen // block_size], chosen % block_size
        k[at] = (direction * gain).to(kind)
        leading = v[at] * max(1.0, ctx_len / lightness) ** 0.5
        agreed = normal(num_kv_heads, head_size)
        v = (0.25 * v + agreed) * max(1.0, 0.7 * lightness / ctx_len)
        v[at] = leading

    if regime not in ("published", "nominal"):
        live = token < lengths[:, None]
        dead = torch.ones(blocks, block_size, dtype=torch.bool, device=device)
        dead[tables] = ~live.view(num_seqs, table_width, block_size)
        k.masked_fill_(dead[:, :, None, None], LOUD)
        v.masked_fill_(dead[:, :, None, None], LOUD)

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


def _cancelling(tokens: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    most = SUMMED * torch.finfo(kind).eps
    return (most / tokens.clamp(min=1).float()).clamp(max=CANCELLING)


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
