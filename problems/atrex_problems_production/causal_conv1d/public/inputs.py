"""Inputs of `causal_conv1d`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few loud samples at places that the seed decides
    unit       samples, taps, bias and state of one scale: each tap and its place count
    state      a loud state before quiet samples: the first outputs owe it nearly everything
    level      a high level in each channel that its taps almost cancel: sums must be exact
    tails      outputs where SiLU nearly vanishes or is nearly the identity, channel by channel
"""

import torch


def make_inputs(
    token_count: int,
    dim: int,
    width: int = 4,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `x` bf16 [dim, token_count], `weight`, `bias` and `initial_state` [1, dim, width-1]."""
    if regime not in ("published", "nominal", "unit", "state", "level", "tails"):
        raise ValueError(f"unknown regime {regime!r}")
    rng = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    x, weight, bias = normal(dim, token_count), normal(dim, width), normal(dim)
    state = normal(1, dim, width - 1)
    if regime in ("published", "nominal"):
        for values in (x, weight, bias, state):
            values.mul_(0.02)
        if regime == "nominal":
            x.view(-1)[places(1 + x.numel() // 65536, x.numel())] = 4.0
        return {"x": x, "weight": weight, "bias": bias, "initial_state": state}

    # So that y hardly falls below -14, where SiLU is next to nothing.
    weight *= 0.5
    if regime == "state":
        x *= 0.02
        bias *= 0.02
    elif regime == "level":
        # Samples keep a last bit of 1/16 beside a level of 8 to 16, of either sign.
        level = (8 + 8 * torch.rand(dim, 1, generator=rng, device=device)).to(x.dtype)
        level *= 1 - 2 * places(dim, 2)[:, None]
        x += level
        state += level
        weight -= weight.mean(1, keepdim=True)
        bias *= 0.1
    elif regime == "tails":
        centre = torch.tensor([-4.0, 3.0, -2.0, 20.0, -3.0, 8.0], device=device)
        bias *= 0.5
        bias += centre[(torch.arange(dim, device=device) + places(1, 6)) % 6]
    return {"x": x, "weight": weight, "bias": bias, "initial_state": state}
