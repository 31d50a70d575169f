"""Inputs of `gated_rms_norm`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few larger values of `x` and `z` where the seed puts them
    tiny       the mean square is near `eps` or far below it
    gates      gates far out, where SiLU is nearly zero or nearly the identity, row by row
    rows       rows of very different scale and of large mean; weights far from one, of both signs
    outliers   one value of either input dominates each row, the last one in every fourth; the last
               weight is not near one
"""

import torch


def make_inputs(
    rows: int,
    hidden_size: int,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw bf16 `x` and `z` [rows, hidden_size] and `weight` [hidden_size]."""
    rng = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    def spread(low: float, high: float) -> torch.Tensor:
        share = torch.rand(rows, 1, generator=rng, device=device)
        return 10 ** (low + (high - low) * share)

    x, z = normal(rows, hidden_size), normal(rows, hidden_size)
    weight = normal(hidden_size) * 0.02 + 1
    every = torch.arange(rows, device=device)
    if regime in ("published", "nominal", "gates"):
        x *= 0.02
    if regime == "nominal":
        x.view(-1)[places(1 + x.numel() // 65536, x.numel())] = 1.0
        z.view(-1)[places(1 + z.numel() // 65536, z.numel())] = 8.0
    elif regime == "tiny":
        x *= spread(-4.0, -2.7)
    elif regime == "gates":
        centre = torch.tensor([-6.0, 6.0, -3.0, 30.0, -12.0, 2.0], device=device)
        z += centre[(every + places(1, 6)) % 6][:, None]
    elif regime == "rows":
        x += 2 * (1 - 2 * (every % 2))[:, None]
        x *= spread(-3.0, 3.0)
        weight = normal(hidden_size)
    elif regime == "outliers":
        column = places(rows, hidden_size)
        column[::4] = hidden_size - 1
        share = torch.rand(rows, generator=rng, device=device)
        loud = hidden_size**0.5 * (0.7 + 2.3 * share)
        loud = (loud * (1 - 2 * places(rows, 2))).to(x.dtype)
        x[every[::2], column[::2]] = loud[::2]
        z[every, column] = 2
        z[every[1::2], column[1::2]] = 40
        weight[-1] = -0.5
    elif regime != "published":
        raise ValueError(f"unknown regime {regime!r}")
    return {"x": x, "weight": weight, "z": z}
