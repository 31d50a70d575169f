"""Inputs of `moe_count_and_sort`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only
    nominal    the same: every expert is equally likely, and a token may name one twice
    crowded    all slots go to one expert
    sparse     a third of the experts share all slots, unequally; the others are empty
    descending ids in descending order, from the last expert to the first: every slot moves
    boundary   blocks of slots go to experts drawn for each, so that counts are whole numbers of
               blocks; what is left goes to another expert than the first of them
"""

import torch


def make_inputs(
    token_count: int,
    top_k: int,
    num_experts: int,
    block_size: int = 128,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `topk_ids` int32 [token_count, top_k]."""
    rng = torch.Generator(device).manual_seed(seed)
    slots = token_count * top_k

    def integers(below: int, *shape: int) -> torch.Tensor:
        return torch.randint(below, shape, generator=rng, device=device)

    def shuffled(count: int) -> torch.Tensor:
        return torch.randperm(count, generator=rng, device=device)

    if regime in ("published", "nominal"):
        ids = integers(num_experts, slots)
    elif regime == "crowded":
        ids = integers(num_experts, 1).expand(slots).clone()
    elif regime == "sparse":
        some = shuffled(num_experts)[: max(1, num_experts // 3)]
        share = torch.rand(slots, generator=rng, device=device) ** 2
        ids = some[(share * len(some)).long()]
    elif regime == "descending":
        ids = integers(num_experts, slots).sort(descending=True).values
        ids[0], ids[-1] = num_experts - 1, 0
    elif regime == "boundary":
        owners = integers(num_experts, -(-slots // block_size))
        if slots % block_size and len(owners) > 1:
            owners[-1] = (owners[0] + 1) % num_experts
        ids = owners[torch.arange(slots, device=device) // block_size][shuffled(slots)]
    else:
        raise ValueError(f"unknown regime {regime!r}")
    return {"topk_ids": ids.view(token_count, top_k).to(torch.int32)}
