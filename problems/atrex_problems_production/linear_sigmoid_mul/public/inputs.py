"""Inputs of `linear_sigmoid_mul`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few large hidden values at places that the seed decides:
               each moves its whole row, so no part of the sum may be left out
    wide       z spreads over several units, so that sigmoid is nowhere near one half; what the
               first and the last column of `hidden_states` contribute is loud and cancels
    biased     the bias decides
    rows       rows of very different scale in `hidden_states` and `post_mul_mat`
    saturated  whole rows where z is far below or far above zero
    deep       the bias alone brings z to -10 to -30, column by column, and `post_mul_mat` is large
               enough to make all columns equally loud
"""

import torch


def make_inputs(
    token_count: int,
    hidden_size: int,
    out_features: int,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw bf16 `hidden_states` [T, H], `weight` [O, H], `bias` [O] and `post_mul_mat` [T, O]."""
    rng = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    def spread(low: float, high: float) -> torch.Tensor:
        share = torch.rand(token_count, 1, generator=rng, device=device)
        return 10 ** (low + (high - low) * share)

    hidden = normal(token_count, hidden_size)
    weight = normal(out_features, hidden_size) * hidden_size**-0.5
    bias = normal(out_features)
    post = normal(token_count, out_features)
    if regime in ("published", "nominal"):
        hidden *= 0.02
        bias *= 0.02
        post *= 0.02
    if regime == "nominal":
        rows = places(max(8, token_count // 16), token_count)
        hidden[rows, places(len(rows), hidden_size)] = hidden_size**0.5
    elif regime == "wide":
        weight *= 3
        hidden[:, 0] = 32 * hidden_size**0.5
        hidden[:, -1] = -hidden[:, 0]
        weight[:, -1] = weight[:, 0]
    elif regime == "biased":
        bias *= 4
    elif regime == "rows":
        hidden *= spread(-2.0, 0.7)
        post *= spread(-3.0, 3.0)
    elif regime == "saturated":
        column = places(1, hidden_size)
        sign = torch.arange(token_count, device=device) % 2 * 2.0 - 1
        hidden[:, column] = (8 * sign[:, None]).to(hidden.dtype)
        weight[:, column] = 1
    elif regime == "deep":
        hidden /= 8
        bias = (-10 - 20 * torch.rand(out_features, generator=rng, device=device)).to(bias.dtype)
        post = (post.clamp(-2, 2) * torch.exp(-bias.float())).to(post.dtype)
    elif regime != "published":
        raise ValueError(f"unknown regime {regime!r}")
    return {"hidden_states": hidden, "weight": weight, "bias": bias, "post_mul_mat": post}
