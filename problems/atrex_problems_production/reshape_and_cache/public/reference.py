"""Writing new keys and values into a block cache: the definition, in plain torch.

    key_cache[s // block_size, s % block_size]   = key[t]      where s = slot_mapping[t] >= 0
    value_cache[s // block_size, s % block_size] = value[t]

Tokens with a negative slot are skipped. No two tokens have the same slot. Every other slot keeps
what it holds. The caches are updated in place and returned; an implementation may as well return
new ones. Nothing is rounded: every element is copied, denormals too; only the sign of a zero may
change.
"""

import torch


class Model(torch.nn.Module):
    """Scatter `key` and `value` [tokens, heads, size] into [blocks, block_size, heads, size]."""

    def forward(
        self,
        key: torch.Tensor,
        value: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        """Return `key_cache` and `value_cache`, updated."""
        live = slot_mapping >= 0
        slots = slot_mapping[live]
        key_cache.view(-1, *key.shape[1:])[slots] = key[live]
        value_cache.view(-1, *value.shape[1:])[slots] = value[live]
        return {"key_cache": key_cache, "value_cache": value_cache}
