"""Inputs of `fused_rmsnorm_quant`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few larger values of `x` at places that the seed decides
    tiny       the mean square of the sum is near `eps` or far below it
    shifted    large mean, so that nothing may be subtracted; the largest magnitude of each row is
               a negative value
    rows       rows of very different scale; one row that cancels to zeros
    outliers   two values dominate each row, the larger one of either input and the last in every
               other row, so that the rest falls on the smallest codes
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

    def uniform(low: float, high: float) -> torch.Tensor:
        """Draw one number for each row."""
        unit = torch.rand(token_count, 1, generator=rng, device=device)
        return unit * (high - low) + low

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    x = normal(token_count, hidden_size)
    residual = normal(token_count, hidden_size)
    weight = normal(hidden_size)
    if regime == "nominal":
        x.view(-1)[places(1 + x.numel() // 65536, x.numel())] = 32.0
    elif regime == "tiny":
        factor = 10 ** uniform(-4, -2.8)
        x *= factor
        residual *= factor
    elif regime == "shifted":
        x += 2
        residual += 1
        weight = -weight.abs()
    elif regime == "rows":
        factor = 10 ** uniform(-3, 3)
        x *= factor
        residual *= factor
        zero = places(1, token_count)
        x[zero] = -residual[zero]
    elif regime == "outliers":
        every = torch.arange(token_count, device=device)
        column = places(token_count, hidden_size)
        column[::2] = hidden_size - 1
        loud = (2 ** uniform(8, 12)[:, 0]).to(x.dtype)
        x[every[::3], column[::3]] = loud[::3]
        residual[every[1::3], column[1::3]] = -loud[1::3]
        x[every[2::3], column[2::3]] = -loud[2::3]
        second = (column + max(1, hidden_size // 2)) % hidden_size
        x[every, second] = (loud * uniform(0.3, 0.9)[:, 0]).to(x.dtype)
        weight[-1] = 4
    elif regime != "published":
        raise ValueError(f"unknown regime {regime!r}")
    return {"x": x, "residual": residual, "weight": weight}
