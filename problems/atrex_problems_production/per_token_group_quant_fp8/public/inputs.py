"""Inputs of `per_token_group_quant_fp8`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few larger values at places that the seed decides
    negative   the largest magnitude of each group is a negative value, and its scale is far from
               any number of eight bits
    tiny       groups whose scale would be below 1e-10 and groups just above in turn; one group of
               zeros where there are several
    groups     groups of very different scale; one group of zeros where there are several
    outliers   one value dominates each group, the last one in every other group, so that the rest
               falls on the smallest codes
"""

import torch


def make_inputs(
    token_count: int,
    hidden_size: int,
    group_size: int = 128,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `x` bf16 [token_count, hidden_size]; regimes vary it by `group_size` columns."""
    rng = torch.Generator(device).manual_seed(seed)
    x = torch.randn(token_count, hidden_size, generator=rng, device=device, dtype=torch.bfloat16)
    grouped = x.view(-1, group_size)
    groups = len(grouped)

    def uniform(low: float, high: float) -> torch.Tensor:
        """Draw one number for each group."""
        unit = torch.rand(groups, 1, generator=rng, device=device)
        return unit * (high - low) + low

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    if regime == "nominal":
        x.view(-1)[places(1 + x.numel() // 65536, x.numel())] = 12.0
    elif regime == "negative":
        grouped.scatter_(1, places(groups, group_size)[:, None], -143 / 16)
    elif regime == "tiny":
        exponent = uniform(-10, -8.7)
        exponent[1::2] += 2.6
        grouped *= 10**exponent
    elif regime == "groups":
        grouped *= 10 ** uniform(-6, 6)
    elif regime == "outliers":
        column = places(groups, group_size)[:, None]
        column[::2] = group_size - 1
        side = 1 - 2 * places(groups, 2)[:, None]
        grouped.scatter_(1, column, (side * 2 ** uniform(8, 14)).to(x.dtype))
    elif regime != "published":
        raise ValueError(f"unknown regime {regime!r}")
    if regime in ("tiny", "groups") and groups > 1:
        grouped[places(1, groups)] = 0
    return {"x": x}
