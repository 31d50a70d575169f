"""Inputs of `reshape_and_cache`. Run alone; needs nothing but torch.

Regimes, each of which makes some part of the operator visible in the output:
    published  the distribution as published, and nothing else: for comparison only. Empty caches,
               slots in order
    nominal    full caches, and slots as an allocator of blocks leaves them after a while:
               consecutive inside a block, from the middle of the first one on where there is room,
               and no block at its own place; a few larger values at places that the seed decides
    scattered  every slot may be hit, and no token goes to the slot of its own number
    skipped    the same, and about half of the tokens have a negative slot, mostly -1; a single
               token is skipped. What is skipped is loud
    ends       caches of very different scale; tokens go to the last slots, last one first, and the
               last of several to slot zero. Every third element of everything is a denormal, or
               zero, of either sign
"""

from collections.abc import Sequence

import torch

LOUD = 10_000.0
"""What tokens that must not be written hold."""

NO_EXPONENT = 0x807F - 2**16
"""The bits of a bf16 number that are not its exponent, as int16."""


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
    if regime not in ("published", "nominal", "scattered", "skipped", "ends"):
        raise ValueError(f"unknown regime {regime!r}")
    rng = torch.Generator(device).manual_seed(seed)
    tokens, heads, size = shape
    blocks = -(-tokens // block_size) if num_blocks is None else num_blocks
    slots = blocks * block_size

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device, dtype=torch.bfloat16)

    def integers(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=rng, device=device)

    def elsewhere(count: int) -> torch.Tensor:
        """Send each of so many places to another, in one cycle through all of them."""
        order = torch.randperm(count, generator=rng, device=device)
        follower = torch.empty_like(order)
        follower[order] = order.roll(-1)
        return follower

    cache = blocks, block_size, heads, size
    key, value = normal(tokens, heads, size), normal(tokens, heads, size)
    token = torch.arange(tokens, device=device)
    if regime == "published":
        caches = [torch.zeros(cache, dtype=torch.bfloat16, device=device) for _ in range(2)]
    else:
        caches = [normal(*cache), normal(*cache)]

    mapping = token
    if regime == "nominal":
        for x in (key, value):
            x.view(-1)[integers(0, x.numel(), 1 + x.numel() // 65536)] = 100.0
        room = min(block_size - 1, slots - tokens)
        place = token + integers(min(1, room), room + 1, 1)
        mapping = elsewhere(blocks)[place // block_size] * block_size + place % block_size
    elif regime in ("scattered", "skipped"):
        mapping = elsewhere(slots)[:tokens]
    elif regime == "ends":
        mapping = slots - 1 - token
        mapping[1:][-1:] = 0
        for x in caches:
            x.mul_((2.0 ** integers(-10, 11, blocks, block_size, 1, 1)).bfloat16())
        for x in (key, value, *caches):
            x.view(torch.int16)[..., ::3].bitwise_and_(NO_EXPONENT)
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
