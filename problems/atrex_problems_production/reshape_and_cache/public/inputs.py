"""Inputs of `reshape_and_cache`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only. Empty caches,
               slots in order
    nominal    the same with a few larger values at places that the seed decides
    scattered  full caches; every slot may be hit, and no token goes to the slot of its own number
    skipped    the same, and about half of the tokens have a negative slot, mostly -1; a single
               token is skipped. What is skipped is loud
    paged      full caches; consecutive slots inside blocks that lie in any order, from the middle
               of the first one on where there is room
    ends       full caches of very different scale; tokens go to the last slots, last one first
"""

from collections.abc import Sequence

import torch

LOUD = 10_000.0
"""What tokens that must not be written hold."""


def make_inputs(
    shape: Sequence[int],
    block_size: int = 16,
    num_blocks: int | None = None,
    *,
    regime: str = "nominal",
    seed: int = 0,
    device: str = "cpu",
) -> dict[str, torch.Tensor]:
    """Draw `key`, `value` bf16 `shape` (tokens, heads, size), two caches, `slot_mapping` int64.

    A cache has `num_blocks` blocks, or as many as the tokens fill.
    """
    if regime not in ("published", "nominal", "scattered", "skipped", "paged", "ends"):
        raise ValueError(f"unknown regime {regime!r}")
    rng = torch.Generator(device).manual_seed(seed)
    tokens, heads, size = shape
    blocks = -(-tokens // block_size) if num_blocks is None else num_blocks
    slots = blocks * block_size

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    def integers(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=rng, device=device)

    def shuffled(count: int) -> torch.Tensor:
        return torch.randperm(count, generator=rng, device=device)

    cache = blocks, block_size, heads, size
    key, value = normal(tokens, heads, size), normal(tokens, heads, size)
    token = torch.arange(tokens, device=device)
    if regime in ("published", "nominal"):
        caches = [torch.zeros(cache, dtype=torch.bfloat16, device=device) for _ in range(2)]
    else:
        caches = [normal(*cache), normal(*cache)]

    mapping = token
    if regime == "nominal":
        for x in (key, value):
            x.view(-1)[integers(0, x.numel(), 1 + x.numel() // 65536)] = 100.0
    elif regime in ("scattered", "skipped"):
        order = shuffled(slots)
        follower = torch.empty_like(order)
        follower[order] = order.roll(-1)  # one cycle through all slots
        mapping = follower[:tokens]
    elif regime == "paged":
        room = min(block_size - 1, slots - tokens)
        place = token + integers(min(1, room), room + 1, 1)
        mapping = shuffled(blocks)[place // block_size] * block_size + place % block_size
    elif regime == "ends":
        mapping = slots - 1 - token
        for x in caches:
            x.mul_((2.0 ** integers(-10, 11, blocks, block_size, 1, 1)).bfloat16())
    if regime == "skipped":
        skipped = integers(0, 2, tokens) == 0
        skipped[integers(0, tokens, 1)] = True
        below = torch.where(integers(0, 4, tokens) == 0, integers(-slots, 0, tokens), -1)
        mapping = torch.where(skipped, below, mapping)
        key, value = (x.masked_fill(skipped[:, None, None], LOUD) for x in (key, value))
    return {
        "key": key,
        "value": value,
        "key_cache": caches[0],
        "value_cache": caches[1],
        "slot_mapping": mapping.contiguous(),
    }
