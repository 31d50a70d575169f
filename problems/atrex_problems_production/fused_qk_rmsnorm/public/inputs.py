"""Inputs of `fused_qk_rmsnorm`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    as in production, with a few larger values at places that the seed decides
    tiny       heads of Q and K whose mean square is near `eps` or far below it
    shifted    large mean, so that nothing may be subtracted; the weight of K three times that of Q
    heads      heads of Q and K of very different scale; one of them all zeros
    outliers   one value dominates each head, also of V, the last one in every other head; the last
               weights are not near one
"""

import torch


def make_inputs(
    num_tokens: int,
    head_num: int,
    kv_head_num: int,
    size_per_head: int = 128,
    dtype: str = "fp16",
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `hidden_states` [num_tokens, heads * size_per_head] and two weights [size_per_head]."""
    rng = torch.Generator(device).manual_seed(seed)
    kind = torch.float16 if dtype == "fp16" else torch.bfloat16
    normed = head_num + kv_head_num
    heads = normed + kv_head_num

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=kind)

    def places(count: int, below: int) -> torch.Tensor:
        return torch.randint(below, (count,), generator=rng, device=device)

    def spread(low: float, high: float) -> torch.Tensor:
        share = torch.rand(num_tokens, normed, 1, generator=rng, device=device)
        return 10 ** (low + (high - low) * share)

    x = normal(num_tokens, heads, size_per_head)
    q_weight, k_weight = normal(size_per_head), normal(size_per_head)
    if regime == "nominal":
        x.view(-1)[places(1 + x.numel() // 65536, x.numel())] = 16.0
    elif regime == "tiny":
        x[:, :normed] *= spread(-4.0, -2.7)
    elif regime == "shifted":
        x += 2
        q_weight = q_weight * 0.25 + 1
        k_weight = k_weight * 0.25 + 3
    elif regime == "heads":
        x[:, :normed] *= spread(-2.5, 2.5)
        x[places(1, num_tokens), places(1, normed)] = 0
    elif regime == "outliers":
        rows = x.view(-1, size_per_head)
        column = places(len(rows), size_per_head)
        column[::2] = size_per_head - 1
        share = torch.rand(len(rows), generator=rng, device=device)
        loud = size_per_head**0.5 * (0.7 + 2.3 * share)
        loud = (loud * (1 - 2 * places(len(rows), 2))).to(kind)
        rows[torch.arange(len(rows), device=device), column] = loud
        q_weight[-1], k_weight[-1] = -0.5, 2.5
    elif regime != "published":
        raise ValueError(f"unknown regime {regime!r}")
    return {"hidden_states": x.view(num_tokens, -1), "q_weight": q_weight, "k_weight": k_weight}
