"""Filtering logits by rank: the definition, in plain torch.

    theta = the k-th largest logit of the row, counted with repetition       k = min(top_k, width)
    out   = logits where logits >= theta, -inf elsewhere

Every logit that equals theta is kept, however many there are; -0.0 equals 0.0. What is kept is kept
as it is, denormals too; only the sign of a zero may change. Logits are finite.
"""

import torch


class Model(torch.nn.Module):
    """Keep the `top_k` largest of each row of `logits` fp32 [rows, width], and their equals."""

    def __init__(self, top_k: int = 50) -> None:
        super().__init__()
        self.top_k = top_k

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """Return fp32 [rows, width]."""
        k = min(self.top_k, logits.shape[-1])
        theta = torch.topk(logits, k, dim=-1).values[:, -1:]
        return torch.where(logits >= theta, logits, -torch.inf)
