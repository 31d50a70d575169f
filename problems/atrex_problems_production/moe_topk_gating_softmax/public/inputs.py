"""Inputs of `moe_topk_gating_softmax`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a clear winner in a few rows that the seed decides
    ties       few distinct logits, so that many experts are exactly equal
    near_ties  pairs of experts whose logits differ in the last bit
    sharp      logits spread widely: one expert takes nearly everything
    shifted    logits far from zero: softmax must not overflow or vanish
"""

import torch


def make_inputs(
    token_count: int,
    num_experts: int,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `gating_output` fp32 [token_count, num_experts]."""
    rng = torch.Generator(device).manual_seed(seed)

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    logits = torch.randn(token_count, num_experts, generator=rng, device=device)
    if regime == "nominal":
        rows = places(1 + token_count // 64, token_count)
        logits[rows, places(len(rows), num_experts)] = 6.0
    elif regime == "ties":
        logits = (logits * 2).round() / 2
    elif regime == "near_ties":
        order = torch.randperm(num_experts, generator=rng, device=device)
        half = num_experts // 2
        upper = torch.nextafter(logits[:, order[:half]], logits.new_tensor(torch.inf))
        logits[:, order[half : 2 * half]] = upper
    elif regime == "sharp":
        logits *= 12
    elif regime == "shifted":
        logits += 120 * (1 - 2 * (torch.arange(token_count, device=device) % 2))[:, None]
    elif regime != "published":
        raise ValueError(f"unknown regime {regime!r}")
    return {"gating_output": logits}
