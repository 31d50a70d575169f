"""Inputs of `silu_and_mul`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few larger values at places that the seed decides
    tails      gates far out, where SiLU is nearly zero or nearly the identity, row by row
    small      gates near zero, where SiLU is nearly half the identity
    rows       rows of very different scale in the second half
    outliers   one value of either half dominates each row
    loud       gates of every size from one to 2**120, each with a value of `up` as much smaller
"""

import torch


def make_inputs(
    shape: list[int],
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `x` bf16 of `shape`, whose last axis holds gate and up side by side."""
    rng = torch.Generator(device).manual_seed(seed)
    rows, width = shape[0], shape[-1] // 2

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    x = torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)
    gate, up = x.chunk(2, dim=-1)
    every = torch.arange(rows, device=device)
    if regime == "nominal":
        x.view(-1)[places(1 + x.numel() // 65536, x.numel())] = 16.0
    elif regime == "tails":
        # No row lies below 1e-8 as a whole: fp32 keeps it, flushing to zero would show.
        centre = torch.tensor([-10.0, 10.0, -5.0, 40.0, -17.0, 3.0], device=device)
        gate += centre[(every + places(1, 3) * 2) % 6][:, None]
    elif regime == "small":
        gate *= 0.01
        up *= 8
    elif regime == "rows":
        up *= 10 ** (torch.rand(rows, 1, generator=rng, device=device) * 6 - 3)
        gate *= 3
    elif regime == "outliers":
        column = places(rows, width)
        gate[every[::2], column[::2]] = 50.0
        up[every[1::2], column[1::2]] *= 300
    elif regime == "loud":
        exponent = torch.randint(
            121, gate.shape, generator=rng, device=device, dtype=torch.bfloat16
        )
        size = exponent.exp2_()
        gate.abs_().add_(1).mul_(size)
        up /= size
    elif regime != "published":
        raise ValueError(f"unknown regime {regime!r}")
    return {"x": x}
