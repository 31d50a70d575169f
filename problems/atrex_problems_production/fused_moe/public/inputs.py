"""Inputs of `fused_moe`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only. A token may
               name an expert twice there; nowhere else
    nominal    as in production, with a few loud activations at places that the seed decides
    skewed     activations near one; most tokens choose the same few experts, one expert is chosen
               by none; routing weights that do not sum to one
    scales     experts, and routing weights, of very different size
    ends       every token chooses the first and the last expert, or of two tokens with one route
               each one chooses either; all routes count the same
    gates      gates far from zero, of both signs: exponentials overflow in fp32
"""

import torch


def make_inputs(
    token_count: int,
    hidden_size: int,
    intermediate_size: int,
    num_experts: int,
    top_k: int,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw activations bf16 [T, H], the matrices of E experts, and `top_k` routes per token."""
    if regime not in ("published", "nominal", "skewed", "scales", "ends", "gates"):
        raise ValueError(f"unknown regime {regime!r}")
    rng = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
        drawn = torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)
        return drawn.mul_(scale)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=rng, device=device)

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    hidden = normal(token_count, hidden_size, scale=0.1)
    w1 = normal(num_experts, 2 * intermediate_size, hidden_size, scale=hidden_size**-0.5)
    w2 = normal(num_experts, hidden_size, intermediate_size, scale=intermediate_size**-0.5)
    logits = torch.randn(token_count, top_k, generator=rng, device=device)
    weights = torch.softmax(logits, dim=-1)
    liking = uniform(token_count, num_experts)

    if regime == "nominal":
        hidden.view(-1)[places(1 + hidden.numel() // 65536, hidden.numel())] = 4.0
    elif regime == "skewed":
        hidden *= 10
        order = torch.randperm(num_experts, generator=rng, device=device)
        liking[:, order[: top_k + 1]] += 0.9
        if num_experts > top_k:
            liking[:, order[-1]] -= 2
        weights = weights * (1.5 + uniform(token_count, 1))
    elif regime == "scales":
        hidden *= 10
        w1 *= (10 ** (uniform(num_experts, 1, 1) - 0.5)).to(w1.dtype)
        w2 *= (10 ** (2 * uniform(num_experts, 1, 1) - 1)).to(w2.dtype)
        weights = 10 ** (3 * uniform(token_count, top_k) - 2)
    elif regime == "ends":
        hidden *= 10
        liking[:, 0] += 2
        liking[:, -1] += 2
        liking[0::2, 0] += 1
        liking[1::2, -1] += 1
        weights = torch.full_like(weights, 1 / top_k)
    elif regime == "gates":
        hidden *= 10
        w1[:, :intermediate_size] *= 60
    if regime == "published":
        ids = torch.randint(num_experts, (token_count, top_k), generator=rng, device=device)
    else:
        ids = liking.topk(top_k, dim=-1).indices
    return {
        "hidden_states": hidden,
        "w1": w1,
        "w2": w2,
        "topk_weights": weights,
        "topk_ids": ids.to(torch.int32),
    }
