"""Inputs of `gated_delta_rule_update`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, but with the published gates, which halve the state with each
               token, and with a few loud values and states at places that the seed decides
    carried    gates of one but for some 32 tokens of a head, small beta, and a state that outweighs
               what tokens add: it must stay fp32, and what came first still counts at the end
    repeated   few directions of keys and large beta: tokens replace what others wrote
    gated      heads in turn: steps of 100 and tiny exp(A_log), where exp(step) overflows, or steps
               on either side of zero, where softplus bends; `a` near 40 or -40, the rest `dt_bias`.
               In turns over tokens and heads b is near zero, from 14 to 20, or from -14 to -20 with
               values as much larger as beta is small
    uneven     queries, keys and values of very different scale, some queries and keys zero, none so
               short otherwise that 1e-6 counts; beta from nearly zero to nearly one
From `carried` on, sequences use distinct rows of the pool, none of them its own number. Where the
operator does not normalise queries and keys (`qk_l2norm` false), keys have norms below one.
"""

import math

import torch


def make_inputs(
    batch_size: int,
    token_count: int,
    num_q_heads: int,
    num_v_heads: int,
    key_dim: int,
    value_dim: int,
    state_count: int,
    qk_l2norm: bool = True,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw tokens in bf16, `A_log` fp32, a pool of states fp32, rows of it."""
    if regime not in ("published", "nominal", "carried", "repeated", "gated", "uneven"):
        raise ValueError(f"unknown regime {regime!r}")
    rng = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=dtype)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=rng, device=device)

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    tokens = (batch_size, token_count)
    a_log = normal(num_v_heads, dtype=torch.float32)
    a, dt_bias = normal(*tokens, num_v_heads), normal(num_v_heads)
    q, k = normal(*tokens, num_q_heads, key_dim), normal(*tokens, num_q_heads, key_dim)
    v, b = normal(*tokens, num_v_heads, value_dim), normal(*tokens, num_v_heads)
    pool = normal(state_count, num_v_heads, key_dim, value_dim, dtype=torch.float32)
    rows = torch.arange(batch_size, device=device) % state_count
    if regime in ("published", "nominal"):
        for values in (a_log, a, dt_bias, q, v, pool):
            values.mul_(0.02)
        if regime == "nominal":
            for values in (v, pool):
                values.view(-1)[places(1 + values.numel() // 65536, values.numel())] = 1.0
    else:
        rows = _scattered(state_count, rng, device)[rows]
    if regime == "carried":
        a_log *= 0.1
        a *= 0.3
        dt_bias *= 0.1
        dt_bias += math.log(math.expm1(0.5 / min(token_count, 32)))
        # So few, since an exponential may be off by a bit each time.
        a.masked_fill_(uniform(*a.shape) * token_count >= 32, -30.0)
        v *= 0.05
        b = b * 0.3 - 3
    elif regime == "repeated":
        a_log *= 0.1
        dt_bias -= 4
        few = normal(batch_size, 4, num_q_heads, key_dim)
        which = places(batch_size * token_count, 4).view(tokens)
        k = few[torch.arange(batch_size, device=device)[:, None], which] + 0.3 * k
        b += 3
    elif regime == "gated":
        odd = (torch.arange(num_v_heads, device=device) + places(1, 2)) % 2 == 1
        a_log = torch.where(odd, 0.3 * a_log - 5.5, 0.5 * a_log - 1)
        dt_bias += torch.where(odd, 60.0, 40.0).to(dt_bias.dtype)
        a *= 2
        a += torch.where(odd, 40.0, -40.0).to(a.dtype)
        b *= 2
        turn = torch.arange(token_count, device=device)[:, None] + places(1, 3)
        turn = turn + torch.arange(num_v_heads, device=device)
        side = (turn + torch.arange(batch_size, device=device)[:, None, None]) % 3 - 1
        b = torch.where(side == 0, b, side * (14 + 6 * uniform(*b.shape))).to(b.dtype)
        v *= torch.where(side < 0, torch.exp(-b.float()), 1.0)[..., None]
    elif regime == "uneven":
        a_log *= 0.5
        b *= 3
        for values in (q, k):
            values.mul_(10 ** (3 * uniform(*tokens, num_q_heads, 1)))
            count = values.numel() // key_dim
            values.view(-1, key_dim)[places(1 + count // 16, count)] = 0
        v *= 10 ** (2 * uniform(*tokens, num_v_heads, 1) - 1)
    if not qk_l2norm:
        q_norm = 10 ** (uniform(*tokens, num_q_heads, 1) - 0.5)
        k_norm = 0.6 + 0.3 * uniform(*tokens, num_q_heads, 1)
        q, k = _with_norm(q, q_norm), _with_norm(k, k_norm)
    return {
        "A_log": a_log,
        "a": a,
        "dt_bias": dt_bias,
        "q": q,
        "k": k,
        "v": v,
        "b": b,
        "initial_state": pool,
        "initial_state_indices": rows.to(torch.int32),
    }


def _with_norm(x: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
    return (x * (norm / x.float().norm(dim=-1, keepdim=True).clamp(min=1e-6))).to(x.dtype)


def _scattered(states: int, rng: torch.Generator, device: str) -> torch.Tensor:
    """Return a permutation that leaves no row where it was: one cycle through all."""
    order = torch.randperm(states, generator=rng, device=device)
    where = torch.empty_like(order)
    where[order] = order.roll(-1)
    return where
