"""Inputs of `moe_topk_gating_softmax`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a clear winner in a few rows that the seed decides
    ties       few distinct logits, so that many experts are exactly equal
    near_ties  pairs of experts whose logits differ in the last bit
    close      logits 2**-18 apart, which fp32 tells well apart; of the eight best experts four
               stand 32 columns apart, or as far as there is room for, and four side by side
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
    elif regime == "close":
        logits.scatter_(1, _close(token_count, num_experts, rng), _falling(logits))
    elif regime == "sharp":
        logits *= 12
    elif regime == "shifted":
        logits += 120 * (1 - 2 * (torch.arange(token_count, device=device) % 2))[:, None]
    elif regime != "published":
        raise ValueError(f"unknown regime {regime!r}")
    return {"gating_output": logits}


def _falling(logits: torch.Tensor) -> torch.Tensor:
    rank = torch.arange(logits.shape[1], device=logits.device)
    return (1 + (logits.shape[1] - rank) * 2.0**-18).expand_as(logits)


def _close(tokens: int, experts: int, rng: torch.Generator) -> torch.Tensor:
    """Return experts of each token, the best first: by turns from a comb and from a run."""
    stride = 32
    while 4 * stride > experts:
        stride //= 2

    def from_start(below: int) -> torch.Tensor:
        start = torch.randint(below, (tokens, 1), generator=rng, device=rng.device)
        return torch.arange(experts, device=rng.device) - start

    order = 8 + torch.rand(tokens, experts, generator=rng, device=rng.device)
    step, place = from_start(experts - 3 * stride), from_start(experts - 3)
    in_comb = (step >= 0) & (step < 4 * stride) & (step % stride == 0)
    order = torch.where(in_comb, 6.0 - 2 * step // stride, order)
    order = torch.where((place >= 0) & (place < 4), 7.0 - 2 * place, order)
    return order.argsort(-1)
