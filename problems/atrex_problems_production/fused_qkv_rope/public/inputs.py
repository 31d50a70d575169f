"""Inputs of `fused_qkv_rope`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only. Positions
               count from zero, so that a single token is not rotated at all
    nominal    as in production: consecutive positions that start anywhere below 4096, with a few
               larger values at places that the seed decides
    far        odd positions in any order, up to the limit of the dtype; an odd number that large
               has too many bits for either dtype
    remote     odd positions in any order, up to 2**20 for bf16 and 2**18 for fp16; only elements
               that turn slowly, or not at all, are not zero
    packed     several sequences one after another: positions start again, at zero or elsewhere
    wide       heads of very different scale
    sparse     one element of each head is not zero: where it goes, and that nothing else does;
               without a bias it is a denormal in the heads of v, of either sign
Outside `published` and `nominal` the bias, where there is one, is as large as the values.

Elsewhere positions stay below a limit up to which the error of an fp32 angle is no larger than the
epsilon of the dtype: 2**16 for bf16, 2**13 for fp16. Slow pairs allow for larger ones: they turn
less than a 250th as fast as the fastest does, as bases are 10000 and more.
"""

import torch


def make_inputs(
    total_tokens: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    with_bias: bool = False,
    dtype: str = "bf16",
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `qkv` [total_tokens, heads * head_dim], `positions` int32, and `qkv_bias` if wanted.

    Heads are num_heads + 2 * num_kv_heads. `dtype` is bf16 or fp16.
    """
    rng = torch.Generator(device).manual_seed(seed)
    kind = torch.bfloat16 if dtype == "bf16" else torch.float16
    heads = num_heads + 2 * num_kv_heads
    limit = 2**16 if dtype == "bf16" else 2**13

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=kind)

    def integers(low: int, high: int, count: int) -> torch.Tensor:
        return torch.randint(low, high, (count,), generator=rng, device=device)

    qkv = normal(total_tokens, heads * head_dim)
    bias = normal(heads * head_dim)
    token = torch.arange(total_tokens, device=device)
    if regime == "published":
        positions = token
        bias *= 0.01
    elif regime == "nominal":
        positions = token + integers(1, max(2, min(4096, limit - total_tokens)), 1)
        bias *= 0.01
        qkv.view(-1)[integers(0, qkv.numel(), 1 + qkv.numel() // 65536)] = 8.0
    elif regime == "far":
        positions = 2 * integers(limit // 4, limit // 2, total_tokens) + 1
    elif regime == "remote":
        most = 2**20 if dtype == "bf16" else 2**18
        positions = 2 * integers(3 * most // 8, most // 2, total_tokens) + 1
        # The last fifth of half a head is slow, whether whole heads turn or the first halves.
        column = torch.arange(heads * head_dim, device=device) % (head_dim // 2)
        fast = 5 * column < 2 * head_dim
        qkv.masked_fill_(fast, 0)
        bias.masked_fill_(fast, 0)
    elif regime == "packed":
        starts_here = integers(0, 16, total_tokens) == 0
        starts_here[0] = True
        start = torch.where(starts_here, token, 0).cummax(0).values
        first = integers(0, 2048, total_tokens) * integers(0, 2, total_tokens)
        first[0] = 0
        positions = token - start + first[start]
    elif regime == "wide":
        positions = integers(1, 4096, total_tokens)
        scale = 2.0 ** integers(-6, 7, heads)
        bias = (bias.view(heads, head_dim) * scale[:, None].to(kind)).view(-1)
        qkv = (qkv.view(-1, heads, head_dim) * scale[:, None].to(kind)).view(total_tokens, -1)
    elif regime == "sparse":
        positions = integers(1, 256, total_tokens)
        rows = qkv.view(-1, head_dim)
        place = integers(0, head_dim, len(rows))[:, None]
        kept = rows.gather(1, place)
        rows.zero_().scatter_(1, place, kept + kept.sign())
        if not with_bias:
            v = qkv.view(torch.int16)[:, (num_heads + num_kv_heads) * head_dim :]
            mantissa = 0x007F if dtype == "bf16" else 0x03FF
            v.copy_(torch.where(v == 0, 0, v & (mantissa - 2**15) | 1))
    else:
        raise ValueError(f"unknown regime {regime!r}")
    drawn = {"qkv": qkv, "positions": positions.to(torch.int32)}
    return {**drawn, "qkv_bias": bias} if with_bias else drawn
