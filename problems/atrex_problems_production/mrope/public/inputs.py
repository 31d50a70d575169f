"""Inputs of `mrope`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few larger values at places that the seed decides
    image      angles of a sequence with text and with pictures of 8 rows of 13 patches: in text
               the three positions agree, in a picture they do not
    far        three unrelated positions for each token, in any order, up to 2**15
    unlinked   cos and sin have nothing to do with each other, and each axis has a scale of its own
    wide       tokens of very different scale, some of them zero, and heads of somewhat different
               scale; angles anywhere on the circle
"""

import torch


def make_inputs(
    token_count: int,
    num_query_heads: int,
    num_kv_heads: int,
    head_size: int,
    rotary_dim: int,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `q`, `k` bf16 [token_count, heads * head_size], `cos`, `sin` fp32 [3, token_count, ...].

    The last axis of `cos` and `sin` has rotary_dim / 2 entries.
    """
    rng = torch.Generator(device).manual_seed(seed)
    shape = (3, token_count, rotary_dim // 2)

    def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=dtype)

    def integers(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=rng, device=device)

    def angles(positions: torch.Tensor) -> torch.Tensor:
        j = torch.arange(rotary_dim // 2, device=device)
        return positions[..., None] * 1e6 ** (-2 * j / rotary_dim)

    def scaled(x: torch.Tensor) -> torch.Tensor:
        heads = x.view(token_count, -1, head_size)
        by_token, by_head = integers(-8, 9, token_count, 1, 1), integers(-2, 3, heads.shape[1], 1)
        return (heads * (2.0 ** (by_token + by_head)).bfloat16()).view_as(x)

    q = normal(token_count, num_query_heads * head_size)
    k = normal(token_count, num_kv_heads * head_size)
    token = torch.arange(token_count, device=device)
    theta = normal(*shape, dtype=torch.float32)
    if regime in ("published", "nominal"):
        q *= 0.02
        k *= 0.02
        theta *= 0.1
        if regime == "nominal":
            for x in (q, k):
                x.view(-1)[integers(0, x.numel(), 1 + x.numel() // 65536)] = 1.0
    elif regime == "image":
        start = integers(0, 4096, 1)
        index = token + integers(0, 150, 1)
        place = index % 150  # a picture of 104 patches, then 46 tokens of text
        row, column = place // 13, place % 13
        in_picture = place < 104
        picture = torch.stack([row * 0, row, column])
        theta = angles(start + index // 150 * 59 + torch.where(in_picture, picture, place - 91))
    elif regime == "far":
        theta = angles(integers(0, 2**15, 3, token_count))
    elif regime == "wide":
        silent = integers(0, 8, token_count, 1) == 0
        silent[integers(0, token_count, 1)] = False
        q, k = (scaled(x).masked_fill(silent, 0.0) for x in (q, k))
        theta = torch.rand(*shape, generator=rng, device=device) * (2 * torch.pi)
    elif regime == "unlinked":
        order = torch.randperm(3, generator=rng, device=device)
        scale = torch.tensor([0.25, 1.0, 8.0], device=device)[order, None, None]
        cos, sin = (2 * torch.rand(2, *shape, generator=rng, device=device) - 1) * scale
        return {"q": q, "k": k, "cos": cos, "sin": sin}
    else:
        raise ValueError(f"unknown regime {regime!r}")
    return {"q": q, "k": k, "cos": theta.cos(), "sin": theta.sin()}
