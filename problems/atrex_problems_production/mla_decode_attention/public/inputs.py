"""Inputs of `mla_decode_attention`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few loud rows at places that the seed decides
    ragged     lengths from 1 to twice `ctx_len`, the last sequence below its share, so that rows
               are left over; wide scores, so that few rows decide
    flat       queries of zero: every row of a sequence counts the same. Lengths are the largest
               power of two that fits, so that rounded weights are exact. Rows have large parts that
               cancel: of one sign in the first half of a sequence, of the other after it
    peaked     scores far from zero, above it in one head and below it in the next, and twice as far
               in the second half of a sequence: softmax must subtract its maximum, which moves
    needle     one row decides for a whole sequence: its last in every other one, else its first
    crowd      one row of each sequence leads, and all others are each far lighter, but agree in the
               half of the latent part that queries leave out: together they count about as much
In `needle`, lengths are as in `ragged`; elsewhere sequences are full. Rows left over hold large
finite values, and each has the highest score for some head of the last query.
"""

import math

import torch

REGIMES = ("published", "nominal", "ragged", "flat", "peaked", "needle", "crowd")

LIGHT = 4096
"""How many times lighter, at least, a key of the crowd is than the leading one."""

LOUD = 10_000.0
"""What must not be read: a weight of 0 removes it."""

CANCELLING = 256.0
"""Parts of rows that cancel, in units of the mean of all rows, at most."""

SUMMED = 2.0**28
"""Those parts times how many there are, in units of the dtype's precision, at most.

Tensor cores truncate whenever they add: what that costs must stay far below the tolerance.
"""


def make_inputs(
    batch_size: int,
    ctx_len: int,
    nhead: int,
    kv_lora_rank: int,
    qk_rope_head_dim: int,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw a query for each sequence, their cached rows back to back, and lengths."""
    if regime not in REGIMES:
        raise ValueError(f"unknown regime {regime!r}")
    rng = torch.Generator(device).manual_seed(seed)
    rows, width = batch_size * ctx_len, kv_lora_rank + qk_rope_head_dim

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=rng, device=device)

    q = normal(batch_size, nhead, width)
    kv = normal(rows, 1, width)
    sequence = torch.arange(batch_size, device=device)
    lengths = torch.full((batch_size,), ctx_len, device=device)
    if regime in ("ragged", "needle"):
        order = torch.randperm(batch_size, generator=rng, device=device)
        lengths = _resplit(lengths, order, uniform(batch_size // 2))
        less = 1 + (uniform(batch_size) * (lengths - 1)).long()
        lengths = torch.where((sequence % 3 == 2) | (sequence == batch_size - 1), less, lengths)
    elif regime == "flat":
        lengths[:] = 1 << (ctx_len.bit_length() - 1)
    starts = lengths.cumsum(0) - lengths
    row = torch.arange(rows, device=device)

    if regime == "nominal":
        some = torch.randint(batch_size, (1 + batch_size // 8,), generator=rng, device=device)
        chosen = (uniform(batch_size) * lengths).long()
        head = (uniform(batch_size) * nhead).long()
        leader = q[some, head[some]].float()
        strength = (lengths[some].float().log() + 3)[:, None]
        gain = strength * width**0.5 / leader.square().sum(-1, keepdim=True)
        kv[starts[some] + chosen[some], 0] = (leader * gain).bfloat16()
    elif regime == "ragged":
        q *= 1.5
    elif regime == "flat":
        q.zero_()
        length = lengths[0]
        part = (length - 1 - 2 * (row % length)).sign() * _cancelling(length, torch.bfloat16)
        part /= length.sqrt()
        kv += part[:, None, None].bfloat16() * normal(width).sign()
    elif regime == "peaked":
        q *= 1.5
        # The last element is in keys only.
        q[:, :, -1] = 16.0 - 32.0 * (torch.arange(nhead, device=device) % 2)
        kv[:, 0, -1] = 8 * width**0.5 * (1 + (2 * (row % ctx_len) >= ctx_len))
    elif regime == "needle":
        chosen = torch.where(sequence % 2 == 0, lengths - 1, 0)
        direction = normal(width).sign()
        strength = (lengths.float().log() + 4)[:, None]
        q += direction
        kv[starts + chosen, 0] = (direction * strength / width**0.5).bfloat16()
    elif regime == "crowd":
        chosen = starts + (uniform(batch_size) * lengths).long()
        lightness = max(LIGHT, ctx_len)
        out = slice(kv_lora_rank // 2, kv_lora_rank)
        direction = normal(width)
        direction[out] = 0
        gain = math.log(lightness) * width**0.5 / direction.float().square().sum()
        q = 0.5 * q + direction
        q[:, :, out] = 0
        leading = 2 * kv[chosen, 0, out]
        kv *= 0.5
        size = 2 * max(1.0, 0.7 * lightness / ctx_len)
        kv[:, :, out] = (0.5 * kv[:, :, out] + normal(width)[out]) * size
        kv[chosen, 0] = (direction * gain).bfloat16()
        kv[chosen, 0, out] = leading
    loud = torch.where(q[-1] < 0, -LOUD, LOUD).bfloat16()[row % nhead]
    kv[:, 0] = torch.where((row >= lengths.sum())[:, None], loud, kv[:, 0])
    return {"q": q, "kv_cache": kv, "seq_lens": lengths.to(torch.int32)}


def _cancelling(tokens: torch.Tensor, kind: torch.dtype) -> torch.Tensor:
    most = SUMMED * torch.finfo(kind).eps
    return (most / tokens.clamp(min=1).float()).clamp(max=CANCELLING)


def _resplit(lengths: torch.Tensor, order: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    """Share out anew what each two sequences have together, one at least to each."""
    pairs = len(share)
    first, second = order[:pairs], order[pairs : 2 * pairs]
    total = lengths[first] + lengths[second]
    new = 1 + (share * (total - 1)).long()
    lengths = lengths.clone()
    lengths[first], lengths[second] = new, total - new
    return lengths
