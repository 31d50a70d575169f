"""Inputs of `topk_filter`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a clear winner in a few rows that the seed decides
    ties       the threshold is met by several logits, by the whole upper part of the row, or by
               all of it
    adjacent   neighbouring fp32 numbers, positive or negative, in rising, falling or any order
    zeros      the threshold is zero, of one sign, and zeros of the other sign follow
    masked     logits at the ends of what fp32 holds, as masks leave them; rows with fewer than
               `top_k` others; rows far below zero
    strided    what is kept stands 256 columns apart, or the largest power of two that the row is
               long enough for; the smaller half of it are denormals of both signs

Rows take turns among the kinds that a regime has, the first one first. `top_k` says where in the
order of a row the threshold will be.
"""

import torch

LOWEST = torch.finfo(torch.float32).min
"""What a masked logit holds."""


def make_inputs(
    seq_len: int,
    hidden_size: int,
    top_k: int = 50,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `logits` fp32 [seq_len, hidden_size]."""
    rng = torch.Generator(device).manual_seed(seed)

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    logits = torch.randn(seq_len, hidden_size, generator=rng, device=device)
    row = torch.arange(seq_len, device=device)
    k = min(top_k, hidden_size)
    if regime == "nominal":
        rows = places(1 + seq_len // 64, seq_len)
        logits[rows, places(len(rows), hidden_size)] = 12.0
        return {"logits": logits}
    if regime == "published":
        return {"logits": logits}

    values, where = logits.sort(-1, descending=True)
    rank = torch.arange(hidden_size, device=device)
    if regime == "ties":
        values[0::3, max(0, k - 2) : k + 3] = values[0::3, k - 1 : k]
        values[1::3] = values[1::3, :1] - rank // (k + 1)
        values[2::3] = values[2::3, :1]
    elif regime == "adjacent":
        # The last bit of the first row's threshold is one: without it the next logit is equal.
        first = 2 * places(seq_len, 2**20)[:, None] + (hidden_size - k + 1) % 2
        start = 1 + first * 2**-23
        values = start - (rank - (hidden_size - 1)) * 2**-23
        values[1::2] = -values[1::2].flip(-1)
        where[0::4], where[1::4] = hidden_size - 1 - rank, rank
    elif regime == "zeros":
        after = 0.0 * (values[:, k:].abs() - 1).sign()
        values = values.abs().sort(-1, descending=True).values
        values[:, k:] = torch.where(rank[k:] < k + 1 + hidden_size // 4, after, -values[:, k:])
        values[:, k - 1] = 0.0
        values[:, k : k + 1] = -0.0
        values[1::2, k - 1 : k + 1] *= -1
    elif regime == "masked":
        most = max(k + 1, hidden_size // 2)
        kept = torch.where(row % 3 == 1, max(1, k // 2), most)[:, None]
        values[2::3] -= 1000
        values[0::3, 0] = -LOWEST / 2
        values = torch.where(rank < kept, values, LOWEST)
    elif regime == "strided":
        values = values.abs().sort(-1, descending=True).values
        values[:, k:] = -0.5 - values[:, k:].flip(-1)
        values[:, k // 2 : k] = _denormals(k - k // 2, device)
        stride = 256
        while stride * k > hidden_size:
            stride //= 2
        beyond = hidden_size - stride * (k - 1)
        start = torch.where(row % 2 == 0, 0, places(seq_len, beyond))[:, None]
        step = rank - start
        is_kept = (step >= 0) & (step < stride * k) & (step % stride == 0)
        order = torch.rand(seq_len, hidden_size, generator=rng, device=device)
        where = (order - is_kept.float()).argsort(-1)
    else:
        raise ValueError(f"unknown regime {regime!r}")
    return {"logits": logits.scatter_(1, where, values)}


def _denormals(count: int, device: str) -> torch.Tensor:
    """Return so many denormals in falling order, the first half of them positive."""
    level = count - 1 - 2 * torch.arange(count, dtype=torch.int32, device=device)
    level += (level >= 0).int()
    bits = level.abs() * (2**22 // count)
    return torch.where(level < 0, bits | -(2**31), bits).view(torch.float32)
