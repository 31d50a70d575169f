"""Inputs of `fused_add_rms_norm`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few larger values of `x` at places that the seed decides
    tiny       the mean square of the sum is near `eps` or far below it
    shifted    `x` comparable to `residual`, large mean, weights far from one, of both signs
    rows       rows of very different scale; one row that cancels to zeros where there are several
    outliers   one value of either input dominates each row, the last one in every other row; the
               last weight is not near one
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
    """Draw bf16 `x`, `residual` [token_count, hidden_size] and `weight` [hidden_size]."""
    rng = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    x = normal(token_count, hidden_size)
    residual = normal(token_count, hidden_size)
    weight = normal(hidden_size) * 0.02 + 1
    if regime == "published":
        x *= 0.02
    elif regime == "nominal":
        x *= 0.02
        x.view(-1)[places(1 + x.numel() // 65536, x.numel())] = 8.0
    elif regime == "tiny":
        exponent = torch.rand(token_count, 1, generator=rng, device=device) * 1.3 - 4
        x *= 10**exponent
        residual *= 10**exponent
    elif regime == "shifted":
        x += 2
        residual += 1
        weight = normal(hidden_size)
    elif regime == "rows":
        exponent = torch.rand(token_count, 1, generator=rng, device=device) * 6 - 3
        x *= 10**exponent
        residual *= 10**exponent
        weight = normal(hidden_size)
        if token_count > 1:
            row = places(1, token_count)
            x[row] = -residual[row]
    elif regime == "outliers":
        every = torch.arange(token_count, device=device)
        column = places(token_count, hidden_size)
        column[::2] = hidden_size - 1
        share = torch.rand(token_count, generator=rng, device=device)
        loud = hidden_size**0.5 * (0.7 + 2.3 * share)
        loud = (loud * (1 - 2 * places(token_count, 2))).to(x.dtype)
        x[every[::3], column[::3]] = loud[::3]
        residual[every[1::3], column[1::3]] = loud[1::3]
        x[every[2::3], column[2::3]] = loud[2::3]
        weight[-1] = -0.5
    else:
        raise ValueError(f"unknown regime {regime!r}")
    return {"x": x, "residual": residual, "weight": weight}
