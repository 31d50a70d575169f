"""Causal attention over a paged cache, for any mix of prefill and decode: in plain torch.

    out = softmax(q . K / sqrt(head_size)) . V        over the keys that the query sees

Sequence i has the queries `cu_seqlens_q[i]` to `cu_seqlens_q[i + 1]`: its newest tokens, or none.
Their keys and values are in the cache already. Of its `seqused_k[i]` tokens, never fewer than its
queries, token p lies in block `block_table[i, p // block_size]`, slot `p % block_size`. The last
query sees all tokens and each one before it sees one less: query r of n sees the first
`seqused_k[i] - n + r + 1`. That is the usual triangle where all tokens are queries (prefill), every
token where there is one query (decode), and the triangle at the end of the cached tokens in between
(chunked prefill). The mask is there whether or not the two lengths differ.

Query heads share key heads in contiguous groups. Slots past the end of a sequence, and blocks in no
table, may hold anything finite; entries of a table beyond the blocks in use may name any block.
Everything is fp32 from bf16 operands; `out` is rounded to bf16 once. An implementation may round
the scaled query, and softmax before it is multiplied by V, to bf16: what a matrix unit takes.

Below, sequences are padded and computed together as far as memory allows; nothing depends on how.
"""

import torch


class Model(torch.nn.Module):
    """Attend with `q` [tokens, heads, head_size] to caches [blocks, block_size, kv heads, ...]."""

    scores = 1 << 25
    """Scores computed at once."""
    elements = 1 << 25
    """Elements of padded keys at once."""

    def forward(
        self,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        cu_seqlens_q: torch.Tensor,
        seqused_k: torch.Tensor,
        block_table: torch.Tensor,
    ) -> torch.Tensor:
        """Return bf16 of the shape of `q`."""
        lengths = torch.stack([cu_seqlens_q.diff(), seqused_k], dim=1).tolist()
        heads, size = q.shape[1:]
        block, kv_heads = k_cache.shape[1:3]
        group = heads // kv_heads
        out = torch.empty_like(q)
        for batch in _batches(lengths, self.elements // (kv_heads * size)):
            rows, width = (max(lengths[i][side] for i in batch) for side in (0, 1))
            chosen = torch.tensor(batch, device=q.device)
            blocks = block_table[chosen, : -(-width // block)].long()
            keys, values = (cache[blocks].flatten(1, 2) for cache in (k_cache, v_cache))
            is_small = len(batch) * heads * rows * width <= self.scores
            together = kv_heads if is_small else 1
            step = max(1, self.scores // (len(batch) * together * group * width))
            for head in range(0, kv_heads, together):
                of = slice(head * group, (head + together) * group)
                k_wide = keys[:, :, head : head + together].float().permute(0, 2, 3, 1)
                v_wide = values[:, :, head : head + together].float().transpose(1, 2)
                for first in range(0, rows, step):
                    stop = min(first + step, rows)
                    seen = max(min(k, k - n + stop) for n, k in (lengths[i] for i in batch))
                    # Padding repeats the last query of a sequence, and so its answer.
                    row = _rows(cu_seqlens_q.diff()[chosen], first, stop)
                    places = cu_seqlens_q[chosen, None] + row
                    scaled = q[places][:, :, of].float() * size**-0.5
                    # [sequences, kv heads, rows * group, head_size]
                    scaled = scaled.unflatten(2, (together, group)).transpose(1, 2).flatten(2, 3)
                    scores = scaled @ k_wide[..., :seen]
                    newest = (seqused_k - cu_seqlens_q.diff())[chosen, None] + row
                    hidden = torch.arange(seen, device=q.device) > newest[..., None]
                    hidden = hidden.repeat_interleave(group, 1)[:, None]
                    p = torch.softmax(scores.masked_fill_(hidden, -torch.inf), dim=-1)
                    del scores, hidden
                    found = (p @ v_wide[:, :, :seen]).unflatten(2, (-1, group))
                    out[places, of] = found.transpose(1, 2).flatten(2, 3).to(q.dtype)
        return out


def _rows(counts: torch.Tensor, first: int, stop: int) -> torch.Tensor:
    """Return rows `first` to `stop` of sequences of so many; past the last row, the last."""
    return torch.arange(first, stop, device=counts.device).minimum(counts[:, None] - 1)


def _batches(lengths: list[list[int]], most_keys: int) -> list[list[int]]:
    """Put sequences of similar lengths together, so that padding stays small."""
    batches: list[list[int]] = []
    useful = longest = 0
    for keys, rows, i in sorted((keys, rows, i) for i, (rows, keys) in enumerate(lengths) if rows):
        useful, longest = useful + rows, max(longest, rows)
        count = 1 + (len(batches[-1]) if batches else 0)
        fits = count * longest <= 2 * useful + 64 and count * keys <= most_keys
        if not batches or not fits:
            batches.append([])
            useful = longest = rows
        batches[-1].append(i)
    return batches
