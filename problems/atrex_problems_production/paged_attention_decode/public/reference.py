"""Attention of one new token per sequence over a paged cache: the definition, in plain torch.

    o = softmax(q . K / sqrt(head_size)) . V        over the first seq_lens[i] tokens

Token p of sequence i lies in block `block_tables[i, p // block_size]`, slot `p % block_size`.
Element d of its key is `k_cache[block, head, d // x, slot, d % x]` with x = 16 bytes' worth of
elements, and of its value `v_cache[block, head, d, slot]`. Query heads share key heads in
contiguous groups. Slots past the end of a sequence, and blocks in no table, may hold anything
finite. A sequence of length zero gives zeros. Everything is fp32; `out` is rounded once. An
implementation may round the scaled query, and softmax before it is multiplied by V, to the cache's
dtype: what a matrix unit takes.

Below, some sequences are computed at a time; nothing depends on how many.
"""

import torch


class Model(torch.nn.Module):
    """Attend with `query` [seqs, heads, head_size] to the cached keys and values."""

    elements = 1 << 25
    """Elements of keys at once."""

    def forward(
        self,
        query: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        block_tables: torch.Tensor,
        seq_lens: torch.Tensor,
    ) -> torch.Tensor:
        """Return [seqs, heads, head_size] in the dtype of `query`."""
        seqs, _, size = query.shape
        kv_heads, block = v_cache.shape[1], v_cache.shape[3]
        tokens = block_tables.shape[1] * block
        out = torch.empty_like(query)
        step = max(1, self.elements // (tokens * kv_heads * size))
        for first in range(0, seqs, step):
            some = slice(first, first + step)
            blocks = block_tables[some].long()
            # [sequences, kv heads, tokens, head_size]
            k = k_cache[blocks].permute(0, 2, 1, 4, 3, 5).flatten(4).flatten(2, 3).float()
            v = v_cache[blocks].permute(0, 2, 1, 4, 3).flatten(2, 3).float()

            q = query[some].float().unflatten(1, (kv_heads, -1)) * size**-0.5
            scores = q @ k.transpose(-1, -2)
            live = torch.arange(tokens, device=query.device) < seq_lens[some, None]
            live = live[:, None, None]
            p = torch.softmax(scores.masked_fill(~live, torch.finfo(torch.float32).min), dim=-1)
            out[some] = ((p * live) @ v).flatten(1, 2).to(query.dtype)
        return out
