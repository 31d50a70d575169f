"""RMS normalisation of each token: the definition, in plain torch.

    out = x / sqrt(mean(x * x) + eps) * weight

The mean runs over the last axis. Everything is computed in fp32; `out` is rounded to bf16 once.
"""

import torch


class Model(torch.nn.Module):
    """Normalise `x` [tokens, hidden] by the root of its mean square; scale by `weight` [hidden]."""

    def __init__(self, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return bf16 [tokens, hidden]. Leaves its inputs as they are."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * scale * weight.float()).to(x.dtype)
