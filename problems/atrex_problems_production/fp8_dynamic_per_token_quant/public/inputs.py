"""Inputs of `fp8_dynamic_per_token_quant`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few larger values at places that the seed decides
    negative   the largest magnitude of each row is a negative value, and its scale is far from any
               number of eight bits
    tiny       magnitudes below and near 1e-12; one row of zeros where there are several
    rows       rows of very different scale; one row of zeros where there are several
    outliers   one value dominates each row, the last one in every other row, so that the rest
               falls on the smallest codes
"""

import torch


def make_inputs(
    token_count: int,
    hidden_size: int,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `x` bf16 [token_count, hidden_size]."""
    rng = torch.Generator(device).manual_seed(seed)

    def uniform(low: float, high: float) -> torch.Tensor:
        """Draw one number for each row."""
        unit = torch.rand(token_count, 1, generator=rng, device=device)
        return unit * (high - low) + low

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    every = torch.arange(token_count, device=device)
    x = torch.randn(token_count, hidden_size, generator=rng, device=device, dtype=torch.bfloat16)
    if regime == "nominal":
        x.view(-1)[places(1 + x.numel() // 65536, x.numel())] = 12.0
    elif regime == "negative":
        x[every, places(token_count, hidden_size)] = -143 / 16
    elif regime == "tiny":
        exponent = uniform(-14, -12.8)
        exponent[1::2] += 2.3
        x *= 10**exponent
    elif regime == "rows":
        x *= 10 ** uniform(-6, 6)
    elif regime == "outliers":
        column = places(token_count, hidden_size)
        column[::2] = hidden_size - 1
        side = 1 - 2 * places(token_count, 2)
        x[every, column] = (side * 2 ** uniform(8, 14)[:, 0]).to(x.dtype)
    elif regime != "published":
        raise ValueError(f"unknown regime {regime!r}")
    if regime in ("tiny", "rows") and token_count > 1:
        x[places(1, token_count)] = 0
    return {"x": x}
