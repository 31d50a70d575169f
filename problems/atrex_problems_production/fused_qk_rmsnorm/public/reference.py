"""RMS normalisation of every query and key head of a packed projection, in plain torch.

    hidden_states = Q | K | V          `head_num`, `kv_head_num` and `kv_head_num` heads a token
    q_out = round(q / sqrt(mean(q * q) + eps)) * q_weight            for each head of Q
    k_out = round(k / sqrt(mean(k * k) + eps)) * k_weight            for each head of K
    out   = q_out | k_out | V

The mean runs over one head. Everything up to the weight is fp32; the normalised head is rounded to
the storage dtype, multiplied by the weight, and rounded again. An implementation may skip the first
of the two roundings. V is copied, bit for bit. `out` is a new tensor.
"""

import torch

_STEP = 1 << 24
"""Elements that are held in fp32 at a time: bounds memory, changes no result."""


class Model(torch.nn.Module):
    """Normalise the heads of Q and K in `hidden_states` [tokens, heads * size_per_head]."""

    def __init__(
        self, head_num: int, kv_head_num: int, size_per_head: int = 128, eps: float = 1e-6
    ) -> None:
        super().__init__()
        self.head_num = head_num
        self.kv_head_num = kv_head_num
        self.size_per_head = size_per_head
        self.eps = eps

    def forward(
        self, hidden_states: torch.Tensor, q_weight: torch.Tensor, k_weight: torch.Tensor
    ) -> torch.Tensor:
        """Return a tensor like `hidden_states`. The weights are [size_per_head]."""
        out = hidden_states.clone()
        heads = out.view(len(out), -1, self.size_per_head)
        step = max(1, _STEP // hidden_states.shape[1])
        for part in heads.split(step):
            q, k, _ = part.split((self.head_num, self.kv_head_num, self.kv_head_num), dim=1)
            for x, weight in ((q, q_weight), (k, k_weight)):
                wide = x.float()
                scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
                x.copy_((wide * scale).to(x.dtype) * weight)
        return out
