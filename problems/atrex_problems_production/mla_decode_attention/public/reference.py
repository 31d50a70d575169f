"""Latent attention of one new token per sequence over a packed cache: in plain torch.

    o = softmax(q . K / sqrt(kv_lora_rank + qk_rope_head_dim)) . V    over the sequence's rows

The rows of sequence i are the next `seq_lens[i]`, at least one, after those of the sequences before
it; rows after the last sequence's may hold anything finite. A row is a key as it is, and a value in
its first `kv_lora_rank` elements; all heads share it. Everything is fp32 from bf16 operands; `out`
is rounded to bf16 once. An implementation may round the scaled query, and softmax before it is
multiplied by V, to bf16: what a matrix unit takes.

Below, sequences are padded and computed together as far as memory allows; nothing depends on how.
"""

import torch


class Model(torch.nn.Module):
    """Attend with `q` bf16 [sequences, nhead, row] to `kv_cache` bf16 [rows, 1, row]."""

    elements = 1 << 25
    """Elements of padded rows, or scores, computed at once."""

    def __init__(self, nhead: int, kv_lora_rank: int, qk_rope_head_dim: int) -> None:
        super().__init__()
        self.nhead = nhead
        self.kv_lora_rank = kv_lora_rank
        self.scale = (kv_lora_rank + qk_rope_head_dim) ** -0.5

    def forward(
        self, q: torch.Tensor, kv_cache: torch.Tensor, seq_lens: torch.Tensor
    ) -> torch.Tensor:
        """Return bf16 [sequences, nhead, kv_lora_rank]."""
        starts, lengths = seq_lens.cumsum(0) - seq_lens, seq_lens.tolist()
        out = q.new_empty(len(q), self.nhead, self.kv_lora_rank)
        for batch in _batches(lengths, self.elements // max(self.nhead, q.shape[2])):
            chosen = torch.tensor(batch, device=q.device)
            length = seq_lens[chosen, None]
            token = torch.arange(max(lengths[i] for i in batch), device=q.device)
            rows = kv_cache[starts[chosen, None] + token.minimum(length - 1), 0].float()
            scores = (q[chosen].float() * self.scale) @ rows.transpose(1, 2)
            scores.masked_fill_((token >= length)[:, None], -torch.inf)
            p = torch.softmax(scores, dim=-1)
            out[chosen] = (p @ rows[:, :, : self.kv_lora_rank]).to(q.dtype)
        return out


def _batches(lengths: list[int], most_rows: int) -> list[list[int]]:
    """Put sequences of similar lengths together, so that padding stays small."""
    batches: list[list[int]] = []
    for length, i in sorted((length, i) for i, length in enumerate(lengths)):
        count = 1 + (len(batches[-1]) if batches else 0)
        if not batches or count * length > most_rows:
            batches.append([])
        batches[-1].append(i)
    return batches
