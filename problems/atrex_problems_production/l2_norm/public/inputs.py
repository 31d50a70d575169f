"""Inputs of `l2_norm`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few larger values at places that the seed decides
    tiny       the sum of squares is near `eps` or far below it
    shifted    large mean, so that nothing may be subtracted
    rows       rows of very different scale; one row of zeros where there are several
    outliers   one value has a third to nine tenths of each row's square, the last one in every
               other row
"""

import torch


def make_inputs(
    num_tokens: int,
    hidden_size: int,
    dtype: str = "bfloat16",
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `x` [num_tokens, hidden_size] in bfloat16 or float16."""
    rng = torch.Generator(device).manual_seed(seed)
    kind = {"bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    def spread(low: float, high: float) -> torch.Tensor:
        share = torch.rand(num_tokens, 1, generator=rng, device=device)
        return 10 ** (low + (high - low) * share)

    x = torch.randn(num_tokens, hidden_size, generator=rng, device=device, dtype=kind)
    if regime == "nominal":
        x.view(-1)[places(1 + x.numel() // 65536, x.numel())] = 32.0
    elif regime == "tiny":
        # Of the whole row: its length must not matter.
        x *= spread(-4.0, -2.7) * hidden_size**-0.5
    elif regime == "shifted":
        x += 2
    elif regime == "rows":
        x *= spread(-2.5, 2.5)
        if num_tokens > 1:
            x[places(1, num_tokens)] = 0
    elif regime == "outliers":
        every = torch.arange(num_tokens, device=device)
        column = places(num_tokens, hidden_size)
        column[::2] = hidden_size - 1
        share = torch.rand(num_tokens, generator=rng, device=device)
        loud = hidden_size**0.5 * (0.7 + 2.3 * share)
        x[every, column] = (loud * (1 - 2 * places(num_tokens, 2))).to(kind)
    elif regime != "published":
        raise ValueError(f"unknown regime {regime!r}")
    return {"x": x}
