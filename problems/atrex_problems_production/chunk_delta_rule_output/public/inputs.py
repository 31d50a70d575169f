"""Inputs of `chunk_delta_rule_output`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, but with the published gates, which rise as often as they fall, and
               with a few loud queries, values and states at places that the seed decides
    falling    gates near one, so that g falls slowly through a chunk and each row counts
    stepped    few distinct g in any order, so that many are equal; queries of very different scale
    rising     g rises through each chunk: no row reads an earlier one
    steep      g falls so far in a chunk that exp(g) vanishes and exp(-g) overflows
Outside `nominal`, queries, values and states are of one scale and keys of norm one.
"""

import torch


def make_inputs(
    batch_size: int,
    token_count: int,
    num_q_heads: int,
    num_v_heads: int,
    key_dim: int,
    value_dim: int,
    chunk_size: int = 64,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `q`, `k`, `v` and `h` bf16, and `g` fp32, none of it positive."""
    rng = torch.Generator(device).manual_seed(seed)
    chunks = -(-token_count // chunk_size)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=rng, device=device)

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    q = normal(batch_size, token_count, num_q_heads, key_dim)
    k = normal(batch_size, token_count, num_q_heads, key_dim)
    v = normal(batch_size, token_count, num_v_heads, value_dim)
    h = normal(batch_size, chunks, num_v_heads, key_dim, value_dim)
    steps = uniform(batch_size, chunks, chunk_size, num_v_heads)
    if regime in ("published", "nominal"):
        for values in (q, v, h):
            values.mul_(0.02)
        if regime == "nominal":
            for values in (q, v, h):
                values.view(-1)[places(1 + values.numel() // 65536, values.numel())] = 1.0
        g = -steps
    else:
        k *= key_dim**-0.5
        h *= 0.25
        if regime == "falling":
            g = (-0.1 * steps).cumsum(2)
        elif regime == "stepped":
            g = -0.25 * (steps * 8).floor()
            q *= 10 ** (4 * uniform(batch_size, token_count, 1, 1) - 2)
        elif regime == "rising":
            g = (-0.1 * steps).cumsum(2).flip(2)
        elif regime == "steep":
            rows = max(16, min(token_count, chunk_size))
            g = (-256 / rows * (0.5 + steps)).cumsum(2)
        else:
            raise ValueError(f"unknown regime {regime!r}")
    g = g.flatten(1, 2)[:, :token_count].contiguous()
    return {"q": q, "k": k, "v": v, "h": h, "g": g}
