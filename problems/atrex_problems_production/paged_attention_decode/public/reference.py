"""Attention of one new token per sequence over a paged cache: the definition, in plain torch.

    o = softmax(q . K / sqrt(head_size)) . V        over the first seq_lens[i] tokens

Token p of sequence i lies in block `block_tables[i, p // block_size]`, slot `p % block_size`.
Element d of its key is `k_cache[block, head, d // x, slot, d % x]` with x = 16 bytes' worth of
elements, and of its value `v_cache[block, head, d, slot]`. Query heads share key heads in
contiguous groups. Slots past the end of a sequence, and blocks in no table, may hold anything
finite. A sequence of length zero gives zeros. Everything is fp32; `out` is rounded once. An
implementation may round the scaled query, and softmax before it is multiplied by V, to the cache's
dtype: what a matrix unit takes.
"""

import torch


class Model(torch.nn.Module):
    """Attend with `query` [seqs, heads, head_size] to the cached keys and values."""

    def forward(
        self,
        query: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        block_tables: torch.Tensor,
        seq_lens: torch.Tensor,
    ) -> torch.Tensor:
        """Return [seqs, heads, head_size] in the dtype of `query`."""
        seqs, heads, size = query.shape
        kv_heads, block = v_cache.shape[1], v_cache.shape[3]
        tokens = block_tables.shape[1] * block

        # [seqs, kv_heads, tokens, head_size]
        k = k_cache[block_tables.long()].permute(0, 2, 1, 4, 3, 5)
        k = k.reshape(seqs, kv_heads, tokens, size).float()
        v = v_cache[block_tables.long()].permute(0, 2, 1, 4, 3)
        v = v.reshape(seqs, kv_heads, tokens, size).float()

        q = query.float().view(seqs, kv_heads, heads // kv_heads, size) * size**-0.5
        scores = q @ k.transpose(-1, -2)
        live = torch.arange(tokens, device=query.device) < seq_lens[:, None]
        live = live[:, None, None, :]
        p = torch.softmax(scores.masked_fill(~live, torch.finfo(torch.float32).min), dim=-1)
        out = (p * live) @ v
        return out.view(seqs, heads, size).to(query.dtype)
