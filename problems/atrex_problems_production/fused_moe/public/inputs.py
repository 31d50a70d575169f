"""Inputs of `fused_moe`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only. A token may
               name an expert twice there
    nominal    as in production, with a few loud activations at places that the seed decides
    skewed     activations near one; most tokens choose the same few experts, one expert is chosen
               by none; routing weights that do not sum to one
    scales     experts, and routing weights, of very different size
    ends       every token chooses the first and the last expert, or of two tokens with one route
               each one chooses either. All routes count the same; but from three on, those two
               count 32 times as much, and cancel: their second matrices differ in sign alone
    light      of each token's routes every second one weighs 2**14 times less than others, through
               an expert whose second matrix is as much larger
    gates      gates far from zero, of both signs: exponentials overflow in fp32. Each token names
               its experts twice
    tails      gates between -1 and -8 alone, near a depth of each token's own, and all exact in
               bf16; routing weights below 0.05 that make rows equally loud, each a power of two
               and a little less than half of a last bit of bf16
    cancelling what the first and the last column of `hidden_states` contribute to z is loud and
               cancels, as does what the first and the last quarter between the products do;
               routing weights of both signs, and some that are zero
"""

import torch

_REGIMES = (
    *("published", "nominal", "skewed", "scales", "ends", "light"),
    *("gates", "tails", "cancelling"),
)


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
    if regime not in _REGIMES:
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
    every = torch.arange(token_count, device=device)

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
        weights = torch.full_like(weights, 1 / top_k)
        if top_k > 2:
            weights[:, 0 :: top_k - 1] *= 32
            w1[-1] = w1[0]
            w2[-1] = -w2[0]
        else:
            liking[:, 0] += 2
            liking[:, -1] += 2
            liking[0::2, 0] += 1
            liking[1::2, -1] += 1
    elif regime == "light":
        hidden *= 10
        weights = torch.softmax(logits / 2, dim=-1)
        weights[:, 1::2] /= 2**14
        w2[1::2] *= 2**14
    elif regime == "gates":
        hidden *= 10
        w1[:, :intermediate_size] *= 60
        weights = torch.softmax(logits / 2, dim=-1)
    elif regime == "tails":
        hidden *= 10
        depth = torch.tensor([6.0, 3.0, 4.0, 2.0], device=device)[every % 4]
        even = torch.tensor([32.0, 4.0, 8.0, 4.0], device=device)[every % 4]
        column = places(1, hidden_size)
        hidden[:, column] = -depth[:, None].to(hidden.dtype)
        w1[:, :intermediate_size] = 0
        share = 48 + places(num_experts * intermediate_size, 33).view(num_experts, -1, 1)
        w1[:, :intermediate_size, column] = (share / 64).to(w1.dtype)
        weights[:] = (1 + 7 / 2048) / 1024 * even[:, None]
    elif regime == "cancelling":
        hidden *= 10
        hidden[:, 0] = 32 * hidden_size**0.5
        hidden[:, -1] = -hidden[:, 0]
        w1[:, :, -1] = w1[:, :, 0]
        few = intermediate_size // 4
        w1[:, intermediate_size - few : intermediate_size] = w1[:, :few]
        w1[:, -few:] = w1[:, intermediate_size : intermediate_size + few]
        w2[:, :, :few] *= 32
        w2[:, :, -few:] = -w2[:, :, :few]
        signs = 1 - 2 * places(token_count * top_k, 2).view(token_count, top_k)
        signs[every, every % top_k] = -1
        if top_k > 2:
            signs[every, (every + 1) % top_k] = 0
        weights = torch.softmax(logits / 2, dim=-1) * signs
    if regime == "published":
        ids = torch.randint(num_experts, (token_count, top_k), generator=rng, device=device)
    elif regime == "ends" and top_k > 2:
        ids = torch.full((token_count, top_k), num_experts - 1, device=device)
        ids[:, 0] = 0
        ids[:, 1:-1] = 1 + liking[:, 1:-1].topk(top_k - 2, dim=-1).indices
    elif regime == "light":
        ids = torch.empty(token_count, top_k, dtype=torch.long, device=device)
        for parity in range(min(2, top_k)):
            count = (top_k + 1 - parity) // 2
            ids[:, parity::2] = liking[:, parity::2].topk(count, dim=-1).indices * 2 + parity
    else:
        ids = liking.topk(top_k, dim=-1).indices
    if regime == "gates":
        ids[:, 1::2] = ids[:, 0 : top_k - 1 : 2]
    return {
        "hidden_states": hidden,
        "w1": w1,
        "w2": w2,
        "topk_weights": weights,
        "topk_ids": ids.to(torch.int32),
    }
