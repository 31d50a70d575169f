"""Inputs of `rms_norm`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few larger values at places that the seed decides
    tiny       the mean square is near `eps` or far below it
    shifted    large mean, so that nothing may be subtracted; weights far from one, of both signs
    rows       rows of very different scale; one row of zeros where there are several
    outliers   one value has a third to nine tenths of each row's square, the last one in every
               other row; the last weight is not near one
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
    """Draw `x` bf16 [token_count, hidden_size] and `weight` bf16 [hidden_size]."""
    rng = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    x = normal(token_count, hidden_size)
    weight = normal(hidden_size) * 0.02 + 1
    if regime == "published":
        x *= 0.02
    elif regime == "nominal":
        x *= 0.02
        x.view(-1)[places(1 + x.numel() // 65536, x.numel())] = 1.0
    elif regime == "tiny":
        exponent = torch.rand(token_count, 1, generator=rng, device=device) * 1.3 - 4
        x *= 10**exponent
    elif regime == "shifted":
        x += 2
        weight = normal(hidden_size)
    elif regime == "rows":
        exponent = torch.rand(token_count, 1, generator=rng, device=device) * 6 - 3
        x *= 10**exponent
        weight = normal(hidden_size)
        if token_count > 1:
            x[places(1, token_count)] = 0
    elif regime == "outliers":
        every = torch.arange(token_count, device=device)
        column = places(token_count, hidden_size)
        column[::2] = hidden_size - 1
        share = torch.rand(token_count, generator=rng, device=device)
        loud = hidden_size**0.5 * (0.7 + 2.3 * share)
        x[every, column] = (loud * (1 - 2 * places(token_count, 2))).to(x.dtype)
        weight[-1] = -0.5
    else:
        raise ValueError(f"unknown regime {regime!r}")
    return {"x": x, "weight": weight}
