"""Attention within each of several packed sequences: the definition, in plain torch.

    out = softmax(q . K / sqrt(head_dim)) . V        over all keys of the query's own sequence

Sequence i has the queries `cu_seqlens_q[i]` to `cu_seqlens_q[i + 1]` and the keys `cu_seqlens_k[i]`
to `cu_seqlens_k[i + 1]`; the two lengths may differ. There is no mask. A sequence may have no
queries; one that has queries has a key. Everything is fp32 from bf16 operands; `out` is rounded to
bf16 once. An implementation may round the scaled query, and softmax before it is multiplied by V,
to bf16: what a matrix unit takes.

Below, sequences are padded and computed together as far as memory allows; nothing depends on how.
"""

import torch


class Model(torch.nn.Module):
    """Attend with `q` to `k` and `v`, all bf16 [tokens, heads, head_dim], sequences packed."""

    scores = 1 << 26
    """Scores computed at once."""
    elements = 1 << 25
    """Elements of padded keys at once."""

    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        cu_seqlens_q: torch.Tensor,
        cu_seqlens_k: torch.Tensor,
    ) -> torch.Tensor:
        """Return bf16 of the shape of `q`."""
        lengths = torch.stack([cu_seqlens_q.diff(), cu_seqlens_k.diff()], dim=1).tolist()
        heads, size = q.shape[1:]
        out = torch.empty_like(q)
        for batch in _batches(lengths, self.elements // (heads * size)):
            rows, width = (max(lengths[i][side] for i in batch) for side in (0, 1))
            chosen = torch.tensor(batch, device=q.device)
            keys, values = (t[_places(cu_seqlens_k, chosen, 0, width)] for t in (k, v))
            padding = torch.arange(width, device=q.device) >= cu_seqlens_k.diff()[chosen, None]
            is_padded = any(lengths[i][1] < width for i in batch)
            is_small = len(batch) * heads * rows * width <= self.scores
            together = heads if is_small else 1
            step = max(1, self.scores // (len(batch) * together * width))
            for head in range(0, heads, together):
                of = slice(head, head + together)
                k_wide = keys[:, :, of].float().permute(0, 2, 3, 1)
                v_wide = values[:, :, of].float().transpose(1, 2)
                for first in range(0, rows, step):
                    # Padding repeats the last query of a sequence, and so its answer.
                    places = _places(cu_seqlens_q, chosen, first, min(first + step, rows))
                    scaled = q[places][:, :, of].float() * size**-0.5
                    scores = scaled.transpose(1, 2) @ k_wide
                    if is_padded:
                        scores.masked_fill_(padding[:, None, None], -torch.inf)
                    p = torch.softmax(scores, dim=-1)
                    del scores
                    out[places, of] = (p @ v_wide).transpose(1, 2).to(q.dtype)
        return out


def _places(starts: torch.Tensor, chosen: torch.Tensor, first: int, stop: int) -> torch.Tensor:
    """Return where elements `first` to `stop` of the chosen sequences are; past the last, it."""
    element = torch.arange(first, stop, device=starts.device)
    last = (starts.diff()[chosen, None] - 1).clamp(min=0)
    return (starts[chosen, None] + element.minimum(last)).long()


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
