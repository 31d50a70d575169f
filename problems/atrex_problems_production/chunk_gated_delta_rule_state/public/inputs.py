"""Inputs of `chunk_gated_delta_rule_state`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, but with the published gates, which forget within some chunks, and
               with a few loud keys and values at places that the seed decides
    slow       gates near one over the whole sequence, and a loud first token: what came first still
               counts at the end
    carried    gates near one and a state that outweighs all that tokens add: it must stay fp32, and
               so must what it is multiplied by
    stepped    few distinct g in any order, so that many rows equal the last
    opposed    heads in turn: g falls so far in a chunk that exp(g) vanishes and exp(-g) overflows,
               or g rises, so that only the last row of a chunk counts
From `slow` on, sequences use distinct rows of the pool, none of them its own number, keys have norm
one, and `w` is scaled so that w . M is about as large as u while M stays bounded.
"""

import torch


def make_inputs(
    batch_size: int,
    token_count: int,
    num_k_heads: int,
    num_v_heads: int,
    key_dim: int,
    value_dim: int,
    state_count: int,
    chunk_size: int = 64,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `k`, `w`, `u` bf16, `g` fp32, a pool of states fp32, and rows of it."""
    if regime not in ("published", "nominal", "slow", "carried", "stepped", "opposed"):
        raise ValueError(f"unknown regime {regime!r}")
    rng = torch.Generator(device).manual_seed(seed)
    chunks = -(-token_count // chunk_size)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    k = normal(batch_size, token_count, num_k_heads, key_dim)
    w = normal(batch_size, token_count, num_v_heads, key_dim)
    u = normal(batch_size, token_count, num_v_heads, value_dim)
    steps = torch.rand(batch_size, chunks, chunk_size, num_v_heads, generator=rng, device=device)
    pool = torch.randn(state_count, num_v_heads, key_dim, value_dim, generator=rng, device=device)
    rows = torch.arange(batch_size, device=device) % state_count
    if regime in ("published", "nominal"):
        for values in (k, w, u, pool):
            values.mul_(0.02)
        if regime == "nominal":
            for values in (k, u):
                values.view(-1)[places(1 + values.numel() // 65536, values.numel())] = 1.0
        g = -steps
    else:
        rows = _scattered(state_count, rng, device)[rows]
        k *= key_dim**-0.5
        # What all tokens add, or those of a chunk: the scale of M.
        size = (token_count / key_dim) ** 0.5
        if regime in ("slow", "carried"):
            g = (steps * (-2 / token_count)).cumsum(2)
            if regime == "slow":
                u[:, 0] *= token_count**0.5
            else:
                size *= 100
        else:
            size = (min(token_count, chunk_size) / key_dim) ** 0.5
            if regime == "stepped":
                g = -0.25 * (steps * 8).floor()
            else:
                falling = (-256 / max(16, min(token_count, chunk_size)) * (0.5 + steps)).cumsum(2)
                rising = (-0.1 * steps).cumsum(2).flip(2)
                g = torch.where(torch.arange(num_v_heads, device=device) % 2 == 0, falling, rising)
        pool *= size
        w *= (size * key_dim**0.5) ** -1
    return {
        "k": k,
        "w": w,
        "u": u,
        "g": g.flatten(1, 2)[:, :token_count].contiguous(),
        "initial_state": pool,
        "initial_state_indices": rows.to(torch.int32),
    }


def _scattered(states: int, rng: torch.Generator, device: str) -> torch.Tensor:
    """Return a permutation that leaves no row where it was: one cycle through all."""
    order = torch.randperm(states, generator=rng, device=device)
    where = torch.empty_like(order)
    where[order] = order.roll(-1)
    return where
