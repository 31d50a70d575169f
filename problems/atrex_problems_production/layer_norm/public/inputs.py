"""Inputs of `layer_norm`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few larger values at places that the seed decides
    offset     means of six to eight standard deviations, row by row of either sign, that drift
               along the row, so that no part of it tells them: in fp32 the mean of squares less
               the square of the mean still gives the variance, in bf16 not; larger means are not
               drawn, since bf16 itself then holds little of the differences
    tiny       the variance is near 1e-5 or far below it; one constant row where there are several
    biased     the bias decides, and differs from column to column
    outliers   rows of very different scale; one value dominates each, the last in every other row;
               the last weight and bias are not near one and zero
"""

import torch


def make_inputs(
    shape: list[int],
    parameter_dtype: str = "bf16",
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `x` bf16 of `shape`, one element where that is empty; `weight` and `bias` [last]."""
    rng = torch.Generator(device).manual_seed(seed)
    shape = shape or [1]
    kind = {"bf16": torch.bfloat16, "fp32": torch.float32}[parameter_dtype]

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    def uniform(low: float, high: float) -> torch.Tensor:
        share = torch.rand(len(rows), 1, generator=rng, device=device)
        return low + (high - low) * share

    x = torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)
    weight = torch.randn(shape[-1], generator=rng, device=device, dtype=kind)
    bias = torch.randn(shape[-1], generator=rng, device=device, dtype=kind)
    rows = x.view(-1, shape[-1])
    every = torch.arange(len(rows), device=device)
    if regime == "nominal":
        x.view(-1)[places(1 + x.numel() // 65536, x.numel())] = 16.0
    elif regime == "offset":
        sign = 1 - 2 * ((every + places(1, 2)) % 2)
        rows += sign[:, None] * uniform(6.0, 8.0)
        rows += torch.linspace(-1, 1, shape[-1], device=device)
    elif regime == "tiny":
        rows *= 10 ** uniform(-3.5, -2.2)
        if len(rows) > 1:
            rows[places(1, len(rows))] = 0.1
    elif regime == "biased":
        weight *= 0.25
        bias *= 8
    elif regime == "outliers":
        column = places(len(rows), shape[-1])
        column[::2] = shape[-1] - 1
        rows[every, column] = (shape[-1] ** 0.5 * uniform(0.7, 3.0)[:, 0]).to(x.dtype)
        weight[-1] = -0.5
        bias[-1] = 4
        rows *= 10 ** uniform(-1.0, 3.0)
    elif regime != "published":
        raise ValueError(f"unknown regime {regime!r}")
    return {"x": x, "weight": weight, "bias": bias}
